from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class StoryLine(_message.Message):
    __slots__ = ("id", "cause_id", "unix_us", "process", "place", "attempt", "event", "change", "effects")
    ID_FIELD_NUMBER: _ClassVar[int]
    CAUSE_ID_FIELD_NUMBER: _ClassVar[int]
    UNIX_US_FIELD_NUMBER: _ClassVar[int]
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    EVENT_FIELD_NUMBER: _ClassVar[int]
    CHANGE_FIELD_NUMBER: _ClassVar[int]
    EFFECTS_FIELD_NUMBER: _ClassVar[int]
    id: str
    cause_id: str
    unix_us: int
    process: str
    place: str
    attempt: int
    event: str
    change: str
    effects: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, id: _Optional[str] = ..., cause_id: _Optional[str] = ..., unix_us: _Optional[int] = ..., process: _Optional[str] = ..., place: _Optional[str] = ..., attempt: _Optional[int] = ..., event: _Optional[str] = ..., change: _Optional[str] = ..., effects: _Optional[_Iterable[str]] = ...) -> None: ...
