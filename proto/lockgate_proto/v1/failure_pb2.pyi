from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FailureCause(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FAILURE_CAUSE_UNSPECIFIED: _ClassVar[FailureCause]
    USER_ERROR: _ClassVar[FailureCause]
    FAULT: _ClassVar[FailureCause]
    PEER_LOST: _ClassVar[FailureCause]
    STATE_UNREADABLE: _ClassVar[FailureCause]
    DATA_ERROR: _ClassVar[FailureCause]
    USER_CODE: _ClassVar[FailureCause]
    INTERNAL_ERROR: _ClassVar[FailureCause]
    STORAGE_AWAY: _ClassVar[FailureCause]
FAILURE_CAUSE_UNSPECIFIED: FailureCause
USER_ERROR: FailureCause
FAULT: FailureCause
PEER_LOST: FailureCause
STATE_UNREADABLE: FailureCause
DATA_ERROR: FailureCause
USER_CODE: FailureCause
INTERNAL_ERROR: FailureCause
STORAGE_AWAY: FailureCause

class SplitRange(_message.Message):
    __slots__ = ("split", "start", "end")
    SPLIT_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    split: str
    start: int
    end: int
    def __init__(self, split: _Optional[str] = ..., start: _Optional[int] = ..., end: _Optional[int] = ...) -> None: ...

class FailurePlace(_message.Message):
    __slots__ = ("operator_id", "column", "ranges", "traceback")
    OPERATOR_ID_FIELD_NUMBER: _ClassVar[int]
    COLUMN_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    TRACEBACK_FIELD_NUMBER: _ClassVar[int]
    operator_id: str
    column: str
    ranges: _containers.RepeatedCompositeFieldContainer[SplitRange]
    traceback: str
    def __init__(self, operator_id: _Optional[str] = ..., column: _Optional[str] = ..., ranges: _Optional[_Iterable[_Union[SplitRange, _Mapping]]] = ..., traceback: _Optional[str] = ...) -> None: ...

class JobFailure(_message.Message):
    __slots__ = ("cause", "vertex_id", "subtask", "place", "times", "attempt")
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    VERTEX_ID_FIELD_NUMBER: _ClassVar[int]
    SUBTASK_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    TIMES_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    cause: FailureCause
    vertex_id: str
    subtask: int
    place: FailurePlace
    times: int
    attempt: int
    def __init__(self, cause: _Optional[_Union[FailureCause, str]] = ..., vertex_id: _Optional[str] = ..., subtask: _Optional[int] = ..., place: _Optional[_Union[FailurePlace, _Mapping]] = ..., times: _Optional[int] = ..., attempt: _Optional[int] = ...) -> None: ...
