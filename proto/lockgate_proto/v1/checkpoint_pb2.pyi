from lockgate_proto.v1 import failure_pb2 as _failure_pb2
from lockgate_proto.v1 import graph_pb2 as _graph_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class StateKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STATE_KIND_UNSPECIFIED: _ClassVar[StateKind]
    SOURCE_STATE: _ClassVar[StateKind]
    KEYED_STATE: _ClassVar[StateKind]
    SINK_STATE: _ClassVar[StateKind]
    ROCKSDB_STATE: _ClassVar[StateKind]
    OBJECT_STATE: _ClassVar[StateKind]

class ObjectForm(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OBJECT_FORM_UNSPECIFIED: _ClassVar[ObjectForm]
    OBJECT_WHOLE: _ClassVar[ObjectForm]
    OBJECT_FIELDS: _ClassVar[ObjectForm]
    OBJECT_ITEMS: _ClassVar[ObjectForm]
    OBJECT_PARTS: _ClassVar[ObjectForm]

class ChannelSide(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CHANNEL_SIDE_UNSPECIFIED: _ClassVar[ChannelSide]
    INPUT_CHANNEL: _ClassVar[ChannelSide]
    OUTPUT_CHANNEL: _ClassVar[ChannelSide]

class CheckpointKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CHECKPOINT_KIND_UNSPECIFIED: _ClassVar[CheckpointKind]
    CHECKPOINT: _ClassVar[CheckpointKind]
    SAVEPOINT: _ClassVar[CheckpointKind]
STATE_KIND_UNSPECIFIED: StateKind
SOURCE_STATE: StateKind
KEYED_STATE: StateKind
SINK_STATE: StateKind
ROCKSDB_STATE: StateKind
OBJECT_STATE: StateKind
OBJECT_FORM_UNSPECIFIED: ObjectForm
OBJECT_WHOLE: ObjectForm
OBJECT_FIELDS: ObjectForm
OBJECT_ITEMS: ObjectForm
OBJECT_PARTS: ObjectForm
CHANNEL_SIDE_UNSPECIFIED: ChannelSide
INPUT_CHANNEL: ChannelSide
OUTPUT_CHANNEL: ChannelSide
CHECKPOINT_KIND_UNSPECIFIED: CheckpointKind
CHECKPOINT: CheckpointKind
SAVEPOINT: CheckpointKind

class StateHandle(_message.Message):
    __slots__ = ("inline", "path", "size_bytes", "checksum", "checkpoint_id", "shared", "taken_over", "name", "diff_values", "diff_saved_bytes")
    INLINE_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_ID_FIELD_NUMBER: _ClassVar[int]
    SHARED_FIELD_NUMBER: _ClassVar[int]
    TAKEN_OVER_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    DIFF_VALUES_FIELD_NUMBER: _ClassVar[int]
    DIFF_SAVED_BYTES_FIELD_NUMBER: _ClassVar[int]
    inline: bytes
    path: str
    size_bytes: int
    checksum: str
    checkpoint_id: int
    shared: bool
    taken_over: bool
    name: str
    diff_values: int
    diff_saved_bytes: int
    def __init__(self, inline: _Optional[bytes] = ..., path: _Optional[str] = ..., size_bytes: _Optional[int] = ..., checksum: _Optional[str] = ..., checkpoint_id: _Optional[int] = ..., shared: _Optional[bool] = ..., taken_over: _Optional[bool] = ..., name: _Optional[str] = ..., diff_values: _Optional[int] = ..., diff_saved_bytes: _Optional[int] = ...) -> None: ...

class StatePart(_message.Message):
    __slots__ = ("name", "file", "offset", "size_bytes", "digest", "items")
    NAME_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    name: str
    file: int
    offset: int
    size_bytes: int
    digest: bytes
    items: int
    def __init__(self, name: _Optional[str] = ..., file: _Optional[int] = ..., offset: _Optional[int] = ..., size_bytes: _Optional[int] = ..., digest: _Optional[bytes] = ..., items: _Optional[int] = ...) -> None: ...

class ObjectIndex(_message.Message):
    __slots__ = ("form", "class_name", "subtask", "parallelism", "parts", "broadcast")
    FORM_FIELD_NUMBER: _ClassVar[int]
    CLASS_NAME_FIELD_NUMBER: _ClassVar[int]
    SUBTASK_FIELD_NUMBER: _ClassVar[int]
    PARALLELISM_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    BROADCAST_FIELD_NUMBER: _ClassVar[int]
    form: ObjectForm
    class_name: str
    subtask: int
    parallelism: int
    parts: _containers.RepeatedCompositeFieldContainer[StatePart]
    broadcast: bool
    def __init__(self, form: _Optional[_Union[ObjectForm, str]] = ..., class_name: _Optional[str] = ..., subtask: _Optional[int] = ..., parallelism: _Optional[int] = ..., parts: _Optional[_Iterable[_Union[StatePart, _Mapping]]] = ..., broadcast: _Optional[bool] = ...) -> None: ...

class OperatorState(_message.Message):
    __slots__ = ("operator_id", "kind", "handle", "increments", "files")
    OPERATOR_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    INCREMENTS_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    operator_id: str
    kind: StateKind
    handle: StateHandle
    increments: _containers.RepeatedCompositeFieldContainer[StateHandle]
    files: _containers.RepeatedCompositeFieldContainer[StateHandle]
    def __init__(self, operator_id: _Optional[str] = ..., kind: _Optional[_Union[StateKind, str]] = ..., handle: _Optional[_Union[StateHandle, _Mapping]] = ..., increments: _Optional[_Iterable[_Union[StateHandle, _Mapping]]] = ..., files: _Optional[_Iterable[_Union[StateHandle, _Mapping]]] = ...) -> None: ...

class OperatorCounters(_message.Message):
    __slots__ = ("operator_id", "records_in", "records_out", "records_late", "records_malformed", "records_ahead", "records_failed", "records_lost")
    OPERATOR_ID_FIELD_NUMBER: _ClassVar[int]
    RECORDS_IN_FIELD_NUMBER: _ClassVar[int]
    RECORDS_OUT_FIELD_NUMBER: _ClassVar[int]
    RECORDS_LATE_FIELD_NUMBER: _ClassVar[int]
    RECORDS_MALFORMED_FIELD_NUMBER: _ClassVar[int]
    RECORDS_AHEAD_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FAILED_FIELD_NUMBER: _ClassVar[int]
    RECORDS_LOST_FIELD_NUMBER: _ClassVar[int]
    operator_id: str
    records_in: int
    records_out: int
    records_late: int
    records_malformed: int
    records_ahead: int
    records_failed: int
    records_lost: int
    def __init__(self, operator_id: _Optional[str] = ..., records_in: _Optional[int] = ..., records_out: _Optional[int] = ..., records_late: _Optional[int] = ..., records_malformed: _Optional[int] = ..., records_ahead: _Optional[int] = ..., records_failed: _Optional[int] = ..., records_lost: _Optional[int] = ...) -> None: ...

class ChannelState(_message.Message):
    __slots__ = ("side", "vertex_id", "subtask", "handle", "elements", "rows", "feedback", "moved")
    SIDE_FIELD_NUMBER: _ClassVar[int]
    VERTEX_ID_FIELD_NUMBER: _ClassVar[int]
    SUBTASK_FIELD_NUMBER: _ClassVar[int]
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    ELEMENTS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    FEEDBACK_FIELD_NUMBER: _ClassVar[int]
    MOVED_FIELD_NUMBER: _ClassVar[int]
    side: ChannelSide
    vertex_id: str
    subtask: int
    handle: StateHandle
    elements: int
    rows: int
    feedback: bool
    moved: bool
    def __init__(self, side: _Optional[_Union[ChannelSide, str]] = ..., vertex_id: _Optional[str] = ..., subtask: _Optional[int] = ..., handle: _Optional[_Union[StateHandle, _Mapping]] = ..., elements: _Optional[int] = ..., rows: _Optional[int] = ..., feedback: _Optional[bool] = ..., moved: _Optional[bool] = ...) -> None: ...

class SubtaskState(_message.Message):
    __slots__ = ("vertex_id", "subtask", "operators", "counters", "channels")
    VERTEX_ID_FIELD_NUMBER: _ClassVar[int]
    SUBTASK_FIELD_NUMBER: _ClassVar[int]
    OPERATORS_FIELD_NUMBER: _ClassVar[int]
    COUNTERS_FIELD_NUMBER: _ClassVar[int]
    CHANNELS_FIELD_NUMBER: _ClassVar[int]
    vertex_id: str
    subtask: int
    operators: _containers.RepeatedCompositeFieldContainer[OperatorState]
    counters: _containers.RepeatedCompositeFieldContainer[OperatorCounters]
    channels: _containers.RepeatedCompositeFieldContainer[ChannelState]
    def __init__(self, vertex_id: _Optional[str] = ..., subtask: _Optional[int] = ..., operators: _Optional[_Iterable[_Union[OperatorState, _Mapping]]] = ..., counters: _Optional[_Iterable[_Union[OperatorCounters, _Mapping]]] = ..., channels: _Optional[_Iterable[_Union[ChannelState, _Mapping]]] = ...) -> None: ...

class SplitState(_message.Message):
    __slots__ = ("split", "offset", "end", "max_event_time_ms", "rested", "seen")
    SPLIT_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    MAX_EVENT_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    RESTED_FIELD_NUMBER: _ClassVar[int]
    SEEN_FIELD_NUMBER: _ClassVar[int]
    split: str
    offset: int
    end: int
    max_event_time_ms: int
    rested: bool
    seen: int
    def __init__(self, split: _Optional[str] = ..., offset: _Optional[int] = ..., end: _Optional[int] = ..., max_event_time_ms: _Optional[int] = ..., rested: _Optional[bool] = ..., seen: _Optional[int] = ...) -> None: ...

class SourceState(_message.Message):
    __slots__ = ("splits", "complete", "reopened")
    SPLITS_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    REOPENED_FIELD_NUMBER: _ClassVar[int]
    splits: _containers.RepeatedCompositeFieldContainer[SplitState]
    complete: bool
    reopened: bool
    def __init__(self, splits: _Optional[_Iterable[_Union[SplitState, _Mapping]]] = ..., complete: _Optional[bool] = ..., reopened: _Optional[bool] = ...) -> None: ...

class SinkTransaction(_message.Message):
    __slots__ = ("checkpoint_id", "subtask", "files", "rows", "targets", "folder", "job_key", "run_id", "name")
    CHECKPOINT_ID_FIELD_NUMBER: _ClassVar[int]
    SUBTASK_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    FOLDER_FIELD_NUMBER: _ClassVar[int]
    JOB_KEY_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    checkpoint_id: int
    subtask: int
    files: _containers.RepeatedScalarFieldContainer[str]
    rows: StateHandle
    targets: _containers.RepeatedScalarFieldContainer[str]
    folder: str
    job_key: str
    run_id: str
    name: str
    def __init__(self, checkpoint_id: _Optional[int] = ..., subtask: _Optional[int] = ..., files: _Optional[_Iterable[str]] = ..., rows: _Optional[_Union[StateHandle, _Mapping]] = ..., targets: _Optional[_Iterable[str]] = ..., folder: _Optional[str] = ..., job_key: _Optional[str] = ..., run_id: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class SinkState(_message.Message):
    __slots__ = ("pending",)
    PENDING_FIELD_NUMBER: _ClassVar[int]
    pending: _containers.RepeatedCompositeFieldContainer[SinkTransaction]
    def __init__(self, pending: _Optional[_Iterable[_Union[SinkTransaction, _Mapping]]] = ...) -> None: ...

class VertexShape(_message.Message):
    __slots__ = ("vertex_id", "parallelism", "max_parallelism", "operator_ids", "inputs")
    VERTEX_ID_FIELD_NUMBER: _ClassVar[int]
    PARALLELISM_FIELD_NUMBER: _ClassVar[int]
    MAX_PARALLELISM_FIELD_NUMBER: _ClassVar[int]
    OPERATOR_IDS_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    vertex_id: str
    parallelism: int
    max_parallelism: int
    operator_ids: _containers.RepeatedScalarFieldContainer[str]
    inputs: _containers.RepeatedCompositeFieldContainer[InputShape]
    def __init__(self, vertex_id: _Optional[str] = ..., parallelism: _Optional[int] = ..., max_parallelism: _Optional[int] = ..., operator_ids: _Optional[_Iterable[str]] = ..., inputs: _Optional[_Iterable[_Union[InputShape, _Mapping]]] = ...) -> None: ...

class InputShape(_message.Message):
    __slots__ = ("source", "keys")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    source: str
    keys: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, source: _Optional[str] = ..., keys: _Optional[_Iterable[str]] = ...) -> None: ...

class CheckpointMetadata(_message.Message):
    __slots__ = ("format_version", "job_key", "run_id", "checkpoint_id", "kind", "token", "attempt", "triggered_unix_ms", "completed_unix_ms", "vertices", "subtasks", "terminal", "digest", "seal")
    FORMAT_VERSION_FIELD_NUMBER: _ClassVar[int]
    JOB_KEY_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    TRIGGERED_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    COMPLETED_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    VERTICES_FIELD_NUMBER: _ClassVar[int]
    SUBTASKS_FIELD_NUMBER: _ClassVar[int]
    TERMINAL_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    SEAL_FIELD_NUMBER: _ClassVar[int]
    format_version: int
    job_key: str
    run_id: str
    checkpoint_id: int
    kind: CheckpointKind
    token: int
    attempt: int
    triggered_unix_ms: int
    completed_unix_ms: int
    vertices: _containers.RepeatedCompositeFieldContainer[VertexShape]
    subtasks: _containers.RepeatedCompositeFieldContainer[SubtaskState]
    terminal: bool
    digest: bytes
    seal: bytes
    def __init__(self, format_version: _Optional[int] = ..., job_key: _Optional[str] = ..., run_id: _Optional[str] = ..., checkpoint_id: _Optional[int] = ..., kind: _Optional[_Union[CheckpointKind, str]] = ..., token: _Optional[int] = ..., attempt: _Optional[int] = ..., triggered_unix_ms: _Optional[int] = ..., completed_unix_ms: _Optional[int] = ..., vertices: _Optional[_Iterable[_Union[VertexShape, _Mapping]]] = ..., subtasks: _Optional[_Iterable[_Union[SubtaskState, _Mapping]]] = ..., terminal: _Optional[bool] = ..., digest: _Optional[bytes] = ..., seal: _Optional[bytes] = ...) -> None: ...

class CompletedCheckpoint(_message.Message):
    __slots__ = ("checkpoint_id", "pointer", "checksum", "size_bytes", "token", "kind", "triggered_unix_ms", "duration_ms", "longest_sync_us", "longest_alignment_ms", "metadata", "incremental", "written_bytes", "unaligned", "channel_state_bytes", "diff_values", "diff_saved_bytes", "request_ids", "format_version")
    CHECKPOINT_ID_FIELD_NUMBER: _ClassVar[int]
    POINTER_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    TRIGGERED_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    DURATION_MS_FIELD_NUMBER: _ClassVar[int]
    LONGEST_SYNC_US_FIELD_NUMBER: _ClassVar[int]
    LONGEST_ALIGNMENT_MS_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    INCREMENTAL_FIELD_NUMBER: _ClassVar[int]
    WRITTEN_BYTES_FIELD_NUMBER: _ClassVar[int]
    UNALIGNED_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_STATE_BYTES_FIELD_NUMBER: _ClassVar[int]
    DIFF_VALUES_FIELD_NUMBER: _ClassVar[int]
    DIFF_SAVED_BYTES_FIELD_NUMBER: _ClassVar[int]
    REQUEST_IDS_FIELD_NUMBER: _ClassVar[int]
    FORMAT_VERSION_FIELD_NUMBER: _ClassVar[int]
    checkpoint_id: int
    pointer: str
    checksum: str
    size_bytes: int
    token: int
    kind: CheckpointKind
    triggered_unix_ms: int
    duration_ms: int
    longest_sync_us: int
    longest_alignment_ms: int
    metadata: bytes
    incremental: bool
    written_bytes: int
    unaligned: bool
    channel_state_bytes: int
    diff_values: int
    diff_saved_bytes: int
    request_ids: _containers.RepeatedScalarFieldContainer[str]
    format_version: int
    def __init__(self, checkpoint_id: _Optional[int] = ..., pointer: _Optional[str] = ..., checksum: _Optional[str] = ..., size_bytes: _Optional[int] = ..., token: _Optional[int] = ..., kind: _Optional[_Union[CheckpointKind, str]] = ..., triggered_unix_ms: _Optional[int] = ..., duration_ms: _Optional[int] = ..., longest_sync_us: _Optional[int] = ..., longest_alignment_ms: _Optional[int] = ..., metadata: _Optional[bytes] = ..., incremental: _Optional[bool] = ..., written_bytes: _Optional[int] = ..., unaligned: _Optional[bool] = ..., channel_state_bytes: _Optional[int] = ..., diff_values: _Optional[int] = ..., diff_saved_bytes: _Optional[int] = ..., request_ids: _Optional[_Iterable[str]] = ..., format_version: _Optional[int] = ...) -> None: ...

class JobRecord(_message.Message):
    __slots__ = ("job_key", "run_id", "graph", "graph_pointer", "graph_checksum", "submitted_unix_ms", "restore_from", "token", "storage", "cancel_requested", "allow_unmatched_state", "restore_checksum", "leader_failover", "format_version")
    JOB_KEY_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    GRAPH_FIELD_NUMBER: _ClassVar[int]
    GRAPH_POINTER_FIELD_NUMBER: _ClassVar[int]
    GRAPH_CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    SUBMITTED_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    RESTORE_FROM_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    STORAGE_FIELD_NUMBER: _ClassVar[int]
    CANCEL_REQUESTED_FIELD_NUMBER: _ClassVar[int]
    ALLOW_UNMATCHED_STATE_FIELD_NUMBER: _ClassVar[int]
    RESTORE_CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    LEADER_FAILOVER_FIELD_NUMBER: _ClassVar[int]
    FORMAT_VERSION_FIELD_NUMBER: _ClassVar[int]
    job_key: str
    run_id: str
    graph: bytes
    graph_pointer: str
    graph_checksum: str
    submitted_unix_ms: int
    restore_from: str
    token: int
    storage: str
    cancel_requested: bool
    allow_unmatched_state: bool
    restore_checksum: str
    leader_failover: _graph_pb2.LeaderFailover
    format_version: int
    def __init__(self, job_key: _Optional[str] = ..., run_id: _Optional[str] = ..., graph: _Optional[bytes] = ..., graph_pointer: _Optional[str] = ..., graph_checksum: _Optional[str] = ..., submitted_unix_ms: _Optional[int] = ..., restore_from: _Optional[str] = ..., token: _Optional[int] = ..., storage: _Optional[str] = ..., cancel_requested: _Optional[bool] = ..., allow_unmatched_state: _Optional[bool] = ..., restore_checksum: _Optional[str] = ..., leader_failover: _Optional[_Union[_graph_pb2.LeaderFailover, str]] = ..., format_version: _Optional[int] = ...) -> None: ...

class VertexParallelism(_message.Message):
    __slots__ = ("vertex_id", "parallelism")
    VERTEX_ID_FIELD_NUMBER: _ClassVar[int]
    PARALLELISM_FIELD_NUMBER: _ClassVar[int]
    vertex_id: str
    parallelism: int
    def __init__(self, vertex_id: _Optional[str] = ..., parallelism: _Optional[int] = ...) -> None: ...

class StopOrder(_message.Message):
    __slots__ = ("drain", "after_checkpoint_id")
    DRAIN_FIELD_NUMBER: _ClassVar[int]
    AFTER_CHECKPOINT_ID_FIELD_NUMBER: _ClassVar[int]
    drain: bool
    after_checkpoint_id: int
    def __init__(self, drain: _Optional[bool] = ..., after_checkpoint_id: _Optional[int] = ...) -> None: ...

class JobOrders(_message.Message):
    __slots__ = ("parallelism", "stop", "format_version")
    PARALLELISM_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    FORMAT_VERSION_FIELD_NUMBER: _ClassVar[int]
    parallelism: _containers.RepeatedCompositeFieldContainer[VertexParallelism]
    stop: StopOrder
    format_version: int
    def __init__(self, parallelism: _Optional[_Iterable[_Union[VertexParallelism, _Mapping]]] = ..., stop: _Optional[_Union[StopOrder, _Mapping]] = ..., format_version: _Optional[int] = ...) -> None: ...

class AttemptRecord(_message.Message):
    __slots__ = ("attempt", "task_manager_ids", "token", "restarts", "moves", "failures", "addresses", "slot_attempts", "first_positions", "format_version")
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    TASK_MANAGER_IDS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    RESTARTS_FIELD_NUMBER: _ClassVar[int]
    MOVES_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    SLOT_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    FIRST_POSITIONS_FIELD_NUMBER: _ClassVar[int]
    FORMAT_VERSION_FIELD_NUMBER: _ClassVar[int]
    attempt: int
    task_manager_ids: _containers.RepeatedScalarFieldContainer[str]
    token: int
    restarts: int
    moves: _containers.RepeatedCompositeFieldContainer[StragglerMove]
    failures: _containers.RepeatedCompositeFieldContainer[RecurringFailure]
    addresses: _containers.RepeatedCompositeFieldContainer[TaskManagerAddress]
    slot_attempts: _containers.RepeatedScalarFieldContainer[int]
    first_positions: _containers.RepeatedCompositeFieldContainer[FirstPositions]
    format_version: int
    def __init__(self, attempt: _Optional[int] = ..., task_manager_ids: _Optional[_Iterable[str]] = ..., token: _Optional[int] = ..., restarts: _Optional[int] = ..., moves: _Optional[_Iterable[_Union[StragglerMove, _Mapping]]] = ..., failures: _Optional[_Iterable[_Union[RecurringFailure, _Mapping]]] = ..., addresses: _Optional[_Iterable[_Union[TaskManagerAddress, _Mapping]]] = ..., slot_attempts: _Optional[_Iterable[int]] = ..., first_positions: _Optional[_Iterable[_Union[FirstPositions, _Mapping]]] = ..., format_version: _Optional[int] = ...) -> None: ...

class FirstPositions(_message.Message):
    __slots__ = ("vertex_id", "source_state")
    VERTEX_ID_FIELD_NUMBER: _ClassVar[int]
    SOURCE_STATE_FIELD_NUMBER: _ClassVar[int]
    vertex_id: str
    source_state: bytes
    def __init__(self, vertex_id: _Optional[str] = ..., source_state: _Optional[bytes] = ...) -> None: ...

class TaskManagerAddress(_message.Message):
    __slots__ = ("task_manager_id", "exchange_address")
    TASK_MANAGER_ID_FIELD_NUMBER: _ClassVar[int]
    EXCHANGE_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    task_manager_id: str
    exchange_address: str
    def __init__(self, task_manager_id: _Optional[str] = ..., exchange_address: _Optional[str] = ...) -> None: ...

class RecurringFailure(_message.Message):
    __slots__ = ("vertex_id", "operator_id", "words", "restored_id", "ranges", "times")
    VERTEX_ID_FIELD_NUMBER: _ClassVar[int]
    OPERATOR_ID_FIELD_NUMBER: _ClassVar[int]
    WORDS_FIELD_NUMBER: _ClassVar[int]
    RESTORED_ID_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    TIMES_FIELD_NUMBER: _ClassVar[int]
    vertex_id: str
    operator_id: str
    words: str
    restored_id: int
    ranges: _containers.RepeatedCompositeFieldContainer[_failure_pb2.SplitRange]
    times: int
    def __init__(self, vertex_id: _Optional[str] = ..., operator_id: _Optional[str] = ..., words: _Optional[str] = ..., restored_id: _Optional[int] = ..., ranges: _Optional[_Iterable[_Union[_failure_pb2.SplitRange, _Mapping]]] = ..., times: _Optional[int] = ...) -> None: ...

class RecoveryRecord(_message.Message):
    __slots__ = ("begun", "token", "format_version")
    BEGUN_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    FORMAT_VERSION_FIELD_NUMBER: _ClassVar[int]
    begun: int
    token: int
    format_version: int
    def __init__(self, begun: _Optional[int] = ..., token: _Optional[int] = ..., format_version: _Optional[int] = ...) -> None: ...

class StragglerMove(_message.Message):
    __slots__ = ("slots", "from_task_manager", "to_task_manager", "text")
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    FROM_TASK_MANAGER_FIELD_NUMBER: _ClassVar[int]
    TO_TASK_MANAGER_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    slots: _containers.RepeatedScalarFieldContainer[int]
    from_task_manager: str
    to_task_manager: str
    text: str
    def __init__(self, slots: _Optional[_Iterable[int]] = ..., from_task_manager: _Optional[str] = ..., to_task_manager: _Optional[str] = ..., text: _Optional[str] = ...) -> None: ...

class JobResult(_message.Message):
    __slots__ = ("job_key", "run_id", "name", "outcome", "error", "submitted_unix_ms", "ended_unix_ms", "dirty", "graph_checksum", "last_checkpoint", "counters", "attempt", "restarts", "token", "retained", "storage", "keep_files", "restore_from", "stopped_with", "failure", "records_read", "records_written", "format_version")
    JOB_KEY_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    SUBMITTED_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    ENDED_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    DIRTY_FIELD_NUMBER: _ClassVar[int]
    GRAPH_CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    LAST_CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    COUNTERS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    RESTARTS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    RETAINED_FIELD_NUMBER: _ClassVar[int]
    STORAGE_FIELD_NUMBER: _ClassVar[int]
    KEEP_FILES_FIELD_NUMBER: _ClassVar[int]
    RESTORE_FROM_FIELD_NUMBER: _ClassVar[int]
    STOPPED_WITH_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    RECORDS_READ_FIELD_NUMBER: _ClassVar[int]
    RECORDS_WRITTEN_FIELD_NUMBER: _ClassVar[int]
    FORMAT_VERSION_FIELD_NUMBER: _ClassVar[int]
    job_key: str
    run_id: str
    name: str
    outcome: str
    error: str
    submitted_unix_ms: int
    ended_unix_ms: int
    dirty: bool
    graph_checksum: str
    last_checkpoint: CompletedCheckpoint
    counters: _containers.RepeatedCompositeFieldContainer[OperatorCounters]
    attempt: int
    restarts: int
    token: int
    retained: _containers.RepeatedCompositeFieldContainer[CompletedCheckpoint]
    storage: str
    keep_files: bool
    restore_from: str
    stopped_with: int
    failure: _failure_pb2.JobFailure
    records_read: int
    records_written: int
    format_version: int
    def __init__(self, job_key: _Optional[str] = ..., run_id: _Optional[str] = ..., name: _Optional[str] = ..., outcome: _Optional[str] = ..., error: _Optional[str] = ..., submitted_unix_ms: _Optional[int] = ..., ended_unix_ms: _Optional[int] = ..., dirty: _Optional[bool] = ..., graph_checksum: _Optional[str] = ..., last_checkpoint: _Optional[_Union[CompletedCheckpoint, _Mapping]] = ..., counters: _Optional[_Iterable[_Union[OperatorCounters, _Mapping]]] = ..., attempt: _Optional[int] = ..., restarts: _Optional[int] = ..., token: _Optional[int] = ..., retained: _Optional[_Iterable[_Union[CompletedCheckpoint, _Mapping]]] = ..., storage: _Optional[str] = ..., keep_files: _Optional[bool] = ..., restore_from: _Optional[str] = ..., stopped_with: _Optional[int] = ..., failure: _Optional[_Union[_failure_pb2.JobFailure, _Mapping]] = ..., records_read: _Optional[int] = ..., records_written: _Optional[int] = ..., format_version: _Optional[int] = ...) -> None: ...

class LeaderRecord(_message.Message):
    __slots__ = ("token", "address", "session", "pid", "coordinator_id", "granted_unix_us", "instance", "dashboard")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    COORDINATOR_ID_FIELD_NUMBER: _ClassVar[int]
    GRANTED_UNIX_US_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    DASHBOARD_FIELD_NUMBER: _ClassVar[int]
    token: int
    address: str
    session: str
    pid: int
    coordinator_id: str
    granted_unix_us: int
    instance: str
    dashboard: str
    def __init__(self, token: _Optional[int] = ..., address: _Optional[str] = ..., session: _Optional[str] = ..., pid: _Optional[int] = ..., coordinator_id: _Optional[str] = ..., granted_unix_us: _Optional[int] = ..., instance: _Optional[str] = ..., dashboard: _Optional[str] = ...) -> None: ...

class LeadershipRecord(_message.Message):
    __slots__ = ("token", "coordinator_id", "address", "granted_unix_us", "ended_unix_us")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    COORDINATOR_ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    GRANTED_UNIX_US_FIELD_NUMBER: _ClassVar[int]
    ENDED_UNIX_US_FIELD_NUMBER: _ClassVar[int]
    token: int
    coordinator_id: str
    address: str
    granted_unix_us: int
    ended_unix_us: int
    def __init__(self, token: _Optional[int] = ..., coordinator_id: _Optional[str] = ..., address: _Optional[str] = ..., granted_unix_us: _Optional[int] = ..., ended_unix_us: _Optional[int] = ...) -> None: ...

class LeaderHistory(_message.Message):
    __slots__ = ("leaders", "format_version")
    LEADERS_FIELD_NUMBER: _ClassVar[int]
    FORMAT_VERSION_FIELD_NUMBER: _ClassVar[int]
    leaders: _containers.RepeatedCompositeFieldContainer[LeadershipRecord]
    format_version: int
    def __init__(self, leaders: _Optional[_Iterable[_Union[LeadershipRecord, _Mapping]]] = ..., format_version: _Optional[int] = ...) -> None: ...
