from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class SubtaskLoad(_message.Message):
    __slots__ = ("busy_permille", "backpressured_permille", "watermark_unix_ms", "lag_ms", "has_watermark", "has_lag", "backlog_records", "backlog_bytes", "backlog_splits", "has_backlog_records", "has_backlog_bytes", "has_backlog_splits")
    BUSY_PERMILLE_FIELD_NUMBER: _ClassVar[int]
    BACKPRESSURED_PERMILLE_FIELD_NUMBER: _ClassVar[int]
    WATERMARK_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    LAG_MS_FIELD_NUMBER: _ClassVar[int]
    HAS_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    HAS_LAG_FIELD_NUMBER: _ClassVar[int]
    BACKLOG_RECORDS_FIELD_NUMBER: _ClassVar[int]
    BACKLOG_BYTES_FIELD_NUMBER: _ClassVar[int]
    BACKLOG_SPLITS_FIELD_NUMBER: _ClassVar[int]
    HAS_BACKLOG_RECORDS_FIELD_NUMBER: _ClassVar[int]
    HAS_BACKLOG_BYTES_FIELD_NUMBER: _ClassVar[int]
    HAS_BACKLOG_SPLITS_FIELD_NUMBER: _ClassVar[int]
    busy_permille: int
    backpressured_permille: int
    watermark_unix_ms: int
    lag_ms: int
    has_watermark: bool
    has_lag: bool
    backlog_records: int
    backlog_bytes: int
    backlog_splits: int
    has_backlog_records: bool
    has_backlog_bytes: bool
    has_backlog_splits: bool
    def __init__(self, busy_permille: _Optional[int] = ..., backpressured_permille: _Optional[int] = ..., watermark_unix_ms: _Optional[int] = ..., lag_ms: _Optional[int] = ..., has_watermark: _Optional[bool] = ..., has_lag: _Optional[bool] = ..., backlog_records: _Optional[int] = ..., backlog_bytes: _Optional[int] = ..., backlog_splits: _Optional[int] = ..., has_backlog_records: _Optional[bool] = ..., has_backlog_bytes: _Optional[bool] = ..., has_backlog_splits: _Optional[bool] = ...) -> None: ...
