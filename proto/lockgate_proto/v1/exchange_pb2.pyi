from lockgate_proto.v1 import checkpoint_pb2 as _checkpoint_pb2
from lockgate_proto.v1 import control_pb2 as _control_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ChannelOpen(_message.Message):
    __slots__ = ("token", "source", "target")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    token: int
    source: _control_pb2.SubtaskId
    target: _control_pb2.SubtaskId
    def __init__(self, token: _Optional[int] = ..., source: _Optional[_Union[_control_pb2.SubtaskId, _Mapping]] = ..., target: _Optional[_Union[_control_pb2.SubtaskId, _Mapping]] = ...) -> None: ...

class RecordBatch(_message.Message):
    __slots__ = ("arrow_ipc", "rows")
    ARROW_IPC_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    arrow_ipc: bytes
    rows: int
    def __init__(self, arrow_ipc: _Optional[bytes] = ..., rows: _Optional[int] = ...) -> None: ...

class Barrier(_message.Message):
    __slots__ = ("checkpoint_id", "kind", "terminal", "triggered_unix_ms", "completed_id", "unaligned", "cause_id")
    CHECKPOINT_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    TERMINAL_FIELD_NUMBER: _ClassVar[int]
    TRIGGERED_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    COMPLETED_ID_FIELD_NUMBER: _ClassVar[int]
    UNALIGNED_FIELD_NUMBER: _ClassVar[int]
    CAUSE_ID_FIELD_NUMBER: _ClassVar[int]
    checkpoint_id: int
    kind: _checkpoint_pb2.CheckpointKind
    terminal: bool
    triggered_unix_ms: int
    completed_id: int
    unaligned: bool
    cause_id: str
    def __init__(self, checkpoint_id: _Optional[int] = ..., kind: _Optional[_Union[_checkpoint_pb2.CheckpointKind, str]] = ..., terminal: _Optional[bool] = ..., triggered_unix_ms: _Optional[int] = ..., completed_id: _Optional[int] = ..., unaligned: _Optional[bool] = ..., cause_id: _Optional[str] = ...) -> None: ...

class Watermark(_message.Message):
    __slots__ = ("event_time_ms", "idle")
    EVENT_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    IDLE_FIELD_NUMBER: _ClassVar[int]
    event_time_ms: int
    idle: bool
    def __init__(self, event_time_ms: _Optional[int] = ..., idle: _Optional[bool] = ...) -> None: ...

class EndOfInput(_message.Message):
    __slots__ = ("drained",)
    DRAINED_FIELD_NUMBER: _ClassVar[int]
    drained: bool
    def __init__(self, drained: _Optional[bool] = ...) -> None: ...

class LoopProbe(_message.Message):
    __slots__ = ("round", "quiet_rounds")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    QUIET_ROUNDS_FIELD_NUMBER: _ClassVar[int]
    round: int
    quiet_rounds: int
    def __init__(self, round: _Optional[int] = ..., quiet_rounds: _Optional[int] = ...) -> None: ...

class SplitPosition(_message.Message):
    __slots__ = ("split", "offset")
    SPLIT_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    split: str
    offset: int
    def __init__(self, split: _Optional[str] = ..., offset: _Optional[int] = ...) -> None: ...

class StreamElement(_message.Message):
    __slots__ = ("open", "records", "barrier", "watermark", "end", "probe", "more", "read_to")
    OPEN_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    BARRIER_FIELD_NUMBER: _ClassVar[int]
    WATERMARK_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    PROBE_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    READ_TO_FIELD_NUMBER: _ClassVar[int]
    open: ChannelOpen
    records: RecordBatch
    barrier: Barrier
    watermark: Watermark
    end: EndOfInput
    probe: LoopProbe
    more: bool
    read_to: _containers.RepeatedCompositeFieldContainer[SplitPosition]
    def __init__(self, open: _Optional[_Union[ChannelOpen, _Mapping]] = ..., records: _Optional[_Union[RecordBatch, _Mapping]] = ..., barrier: _Optional[_Union[Barrier, _Mapping]] = ..., watermark: _Optional[_Union[Watermark, _Mapping]] = ..., end: _Optional[_Union[EndOfInput, _Mapping]] = ..., probe: _Optional[_Union[LoopProbe, _Mapping]] = ..., more: _Optional[bool] = ..., read_to: _Optional[_Iterable[_Union[SplitPosition, _Mapping]]] = ...) -> None: ...

class ExchangeSignal(_message.Message):
    __slots__ = ("accepted", "received", "ended")
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    accepted: bool
    received: _containers.RepeatedCompositeFieldContainer[SplitPosition]
    ended: bool
    def __init__(self, accepted: _Optional[bool] = ..., received: _Optional[_Iterable[_Union[SplitPosition, _Mapping]]] = ..., ended: _Optional[bool] = ...) -> None: ...
