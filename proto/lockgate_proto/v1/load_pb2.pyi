from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class SubtaskLoad(_message.Message):
    __slots__ = ("busy_permille", "backpressured_permille", "watermark_unix_ms", "lag_ms", "has_watermark", "has_lag")
    BUSY_PERMILLE_FIELD_NUMBER: _ClassVar[int]
    BACKPRESSURED_PERMILLE_FIELD_NUMBER: _ClassVar[int]
    WATERMARK_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    LAG_MS_FIELD_NUMBER: _ClassVar[int]
    HAS_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    HAS_LAG_FIELD_NUMBER: _ClassVar[int]
    busy_permille: int
    backpressured_permille: int
    watermark_unix_ms: int
    lag_ms: int
    has_watermark: bool
    has_lag: bool
    def __init__(self, busy_permille: _Optional[int] = ..., backpressured_permille: _Optional[int] = ..., watermark_unix_ms: _Optional[int] = ..., lag_ms: _Optional[int] = ..., has_watermark: _Optional[bool] = ..., has_lag: _Optional[bool] = ...) -> None: ...
