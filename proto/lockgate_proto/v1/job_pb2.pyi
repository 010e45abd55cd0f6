from lockgate_proto.v1 import checkpoint_pb2 as _checkpoint_pb2
from lockgate_proto.v1 import failure_pb2 as _failure_pb2
from lockgate_proto.v1 import graph_pb2 as _graph_pb2
from lockgate_proto.v1 import load_pb2 as _load_pb2
from lockgate_proto.v1 import query_pb2 as _query_pb2
from lockgate_proto.v1 import story_pb2 as _story_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class JobState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    JOB_STATE_UNSPECIFIED: _ClassVar[JobState]
    WAITING_FOR_SLOTS: _ClassVar[JobState]
    DEPLOYING: _ClassVar[JobState]
    RUNNING: _ClassVar[JobState]
    FINISHING: _ClassVar[JobState]
    RESTARTING: _ClassVar[JobState]
    CANCELING: _ClassVar[JobState]
    FINISHED: _ClassVar[JobState]
    FAILED: _ClassVar[JobState]
    CANCELED: _ClassVar[JobState]
    HELD_BACK: _ClassVar[JobState]
    ADOPTING: _ClassVar[JobState]

class AbortReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ABORT_REASON_UNSPECIFIED: _ClassVar[AbortReason]
    ABORT_ID_NOT_WRITTEN: _ClassVar[AbortReason]
    ABORT_DECLINED: _ClassVar[AbortReason]
    ABORT_STORAGE_DECLINED: _ClassVar[AbortReason]
    ABORT_EXPIRED: _ClassVar[AbortReason]
    ABORT_BASE_MISSING: _ClassVar[AbortReason]
    ABORT_INCOMPLETE: _ClassVar[AbortReason]
    ABORT_NOT_WRITTEN: _ClassVar[AbortReason]
    ABORT_STORAGE_FAILED: _ClassVar[AbortReason]
    ABORT_STORE_AWAY: _ClassVar[AbortReason]
    ABORT_SUBSUMED: _ClassVar[AbortReason]
    ABORT_SOURCES_STOP: _ClassVar[AbortReason]
    ABORT_ATTEMPT_ENDED: _ClassVar[AbortReason]

class JobEventKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    JOB_EVENT_KIND_UNSPECIFIED: _ClassVar[JobEventKind]
    LEADER_LOSS_DETECTED: _ClassVar[JobEventKind]
    LEADER_GRANTED: _ClassVar[JobEventKind]
    JOB_RECOVERED: _ClassVar[JobEventKind]
    ATTEMPT_DEPLOYED: _ClassVar[JobEventKind]
    FIRST_RECORD: _ClassVar[JobEventKind]
    CHECKPOINT_COMPLETED: _ClassVar[JobEventKind]
    CHECKPOINT_ABORTED: _ClassVar[JobEventKind]
    ATTEMPT_FAILED: _ClassVar[JobEventKind]
    TASK_MANAGER_LOST: _ClassVar[JobEventKind]
    STATE_CHANGED: _ClassVar[JobEventKind]
    TASK_MANAGER_LEFT: _ClassVar[JobEventKind]
    SUBTASK_MOVED: _ClassVar[JobEventKind]
    SUBTASK_STAYS: _ClassVar[JobEventKind]
    RECORDS_AHEAD: _ClassVar[JobEventKind]
    ATTEMPT_ADOPTED: _ClassVar[JobEventKind]
    ATTEMPT_NOT_ADOPTED: _ClassVar[JobEventKind]
    FIRST_COMMIT: _ClassVar[JobEventKind]
    RESTART_EXTENT: _ClassVar[JobEventKind]
JOB_STATE_UNSPECIFIED: JobState
WAITING_FOR_SLOTS: JobState
DEPLOYING: JobState
RUNNING: JobState
FINISHING: JobState
RESTARTING: JobState
CANCELING: JobState
FINISHED: JobState
FAILED: JobState
CANCELED: JobState
HELD_BACK: JobState
ADOPTING: JobState
ABORT_REASON_UNSPECIFIED: AbortReason
ABORT_ID_NOT_WRITTEN: AbortReason
ABORT_DECLINED: AbortReason
ABORT_STORAGE_DECLINED: AbortReason
ABORT_EXPIRED: AbortReason
ABORT_BASE_MISSING: AbortReason
ABORT_INCOMPLETE: AbortReason
ABORT_NOT_WRITTEN: AbortReason
ABORT_STORAGE_FAILED: AbortReason
ABORT_STORE_AWAY: AbortReason
ABORT_SUBSUMED: AbortReason
ABORT_SOURCES_STOP: AbortReason
ABORT_ATTEMPT_ENDED: AbortReason
JOB_EVENT_KIND_UNSPECIFIED: JobEventKind
LEADER_LOSS_DETECTED: JobEventKind
LEADER_GRANTED: JobEventKind
JOB_RECOVERED: JobEventKind
ATTEMPT_DEPLOYED: JobEventKind
FIRST_RECORD: JobEventKind
CHECKPOINT_COMPLETED: JobEventKind
CHECKPOINT_ABORTED: JobEventKind
ATTEMPT_FAILED: JobEventKind
TASK_MANAGER_LOST: JobEventKind
STATE_CHANGED: JobEventKind
TASK_MANAGER_LEFT: JobEventKind
SUBTASK_MOVED: JobEventKind
SUBTASK_STAYS: JobEventKind
RECORDS_AHEAD: JobEventKind
ATTEMPT_ADOPTED: JobEventKind
ATTEMPT_NOT_ADOPTED: JobEventKind
FIRST_COMMIT: JobEventKind
RESTART_EXTENT: JobEventKind

class SubmitRequest(_message.Message):
    __slots__ = ("job_key", "graph", "restore_from", "allow_unmatched_state", "trust_snapshot")
    JOB_KEY_FIELD_NUMBER: _ClassVar[int]
    GRAPH_FIELD_NUMBER: _ClassVar[int]
    RESTORE_FROM_FIELD_NUMBER: _ClassVar[int]
    ALLOW_UNMATCHED_STATE_FIELD_NUMBER: _ClassVar[int]
    TRUST_SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    job_key: str
    graph: _graph_pb2.JobGraph
    restore_from: str
    allow_unmatched_state: bool
    trust_snapshot: bool
    def __init__(self, job_key: _Optional[str] = ..., graph: _Optional[_Union[_graph_pb2.JobGraph, _Mapping]] = ..., restore_from: _Optional[str] = ..., allow_unmatched_state: _Optional[bool] = ..., trust_snapshot: _Optional[bool] = ...) -> None: ...

class SubmitResponse(_message.Message):
    __slots__ = ("job_key", "run_id", "created", "warnings")
    JOB_KEY_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    job_key: str
    run_id: str
    created: bool
    warnings: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, job_key: _Optional[str] = ..., run_id: _Optional[str] = ..., created: _Optional[bool] = ..., warnings: _Optional[_Iterable[str]] = ...) -> None: ...

class GetRequest(_message.Message):
    __slots__ = ("job_key", "with_reads")
    JOB_KEY_FIELD_NUMBER: _ClassVar[int]
    WITH_READS_FIELD_NUMBER: _ClassVar[int]
    job_key: str
    with_reads: bool
    def __init__(self, job_key: _Optional[str] = ..., with_reads: _Optional[bool] = ...) -> None: ...

class ListRequest(_message.Message):
    __slots__ = ("without_subtasks",)
    WITHOUT_SUBTASKS_FIELD_NUMBER: _ClassVar[int]
    without_subtasks: bool
    def __init__(self, without_subtasks: _Optional[bool] = ...) -> None: ...

class ListResponse(_message.Message):
    __slots__ = ("jobs",)
    JOBS_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[JobStatus]
    def __init__(self, jobs: _Optional[_Iterable[_Union[JobStatus, _Mapping]]] = ...) -> None: ...

class WatchRequest(_message.Message):
    __slots__ = ("job_key", "changes")
    JOB_KEY_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    job_key: str
    changes: bool
    def __init__(self, job_key: _Optional[str] = ..., changes: _Optional[bool] = ...) -> None: ...

class CancelRequest(_message.Message):
    __slots__ = ("job_key",)
    JOB_KEY_FIELD_NUMBER: _ClassVar[int]
    job_key: str
    def __init__(self, job_key: _Optional[str] = ...) -> None: ...

class CancelResponse(_message.Message):
    __slots__ = ("state",)
    STATE_FIELD_NUMBER: _ClassVar[int]
    state: JobState
    def __init__(self, state: _Optional[_Union[JobState, str]] = ...) -> None: ...

class ReleaseRequest(_message.Message):
    __slots__ = ("job_key",)
    JOB_KEY_FIELD_NUMBER: _ClassVar[int]
    job_key: str
    def __init__(self, job_key: _Optional[str] = ...) -> None: ...

class ReleaseResponse(_message.Message):
    __slots__ = ("state",)
    STATE_FIELD_NUMBER: _ClassVar[int]
    state: JobState
    def __init__(self, state: _Optional[_Union[JobState, str]] = ...) -> None: ...

class TriggerSavepointRequest(_message.Message):
    __slots__ = ("job_key", "timeout_ms", "request_id")
    JOB_KEY_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    job_key: str
    timeout_ms: int
    request_id: str
    def __init__(self, job_key: _Optional[str] = ..., timeout_ms: _Optional[int] = ..., request_id: _Optional[str] = ...) -> None: ...

class TriggerSavepointResponse(_message.Message):
    __slots__ = ("savepoint",)
    SAVEPOINT_FIELD_NUMBER: _ClassVar[int]
    savepoint: _checkpoint_pb2.CompletedCheckpoint
    def __init__(self, savepoint: _Optional[_Union[_checkpoint_pb2.CompletedCheckpoint, _Mapping]] = ...) -> None: ...

class StopRequest(_message.Message):
    __slots__ = ("job_key", "drain", "timeout_ms")
    JOB_KEY_FIELD_NUMBER: _ClassVar[int]
    DRAIN_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    job_key: str
    drain: bool
    timeout_ms: int
    def __init__(self, job_key: _Optional[str] = ..., drain: _Optional[bool] = ..., timeout_ms: _Optional[int] = ...) -> None: ...

class StopResponse(_message.Message):
    __slots__ = ("savepoint",)
    SAVEPOINT_FIELD_NUMBER: _ClassVar[int]
    savepoint: _checkpoint_pb2.CompletedCheckpoint
    def __init__(self, savepoint: _Optional[_Union[_checkpoint_pb2.CompletedCheckpoint, _Mapping]] = ...) -> None: ...

class DisposeSavepointRequest(_message.Message):
    __slots__ = ("job_key", "checkpoint_id")
    JOB_KEY_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_ID_FIELD_NUMBER: _ClassVar[int]
    job_key: str
    checkpoint_id: int
    def __init__(self, job_key: _Optional[str] = ..., checkpoint_id: _Optional[int] = ...) -> None: ...

class DisposeSavepointResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RescaleRequest(_message.Message):
    __slots__ = ("job_key", "parallelism", "timeout_ms")
    JOB_KEY_FIELD_NUMBER: _ClassVar[int]
    PARALLELISM_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    job_key: str
    parallelism: _containers.RepeatedCompositeFieldContainer[_checkpoint_pb2.VertexParallelism]
    timeout_ms: int
    def __init__(self, job_key: _Optional[str] = ..., parallelism: _Optional[_Iterable[_Union[_checkpoint_pb2.VertexParallelism, _Mapping]]] = ..., timeout_ms: _Optional[int] = ...) -> None: ...

class RescaleResponse(_message.Message):
    __slots__ = ("parallelism", "after_attempt")
    PARALLELISM_FIELD_NUMBER: _ClassVar[int]
    AFTER_ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    parallelism: _containers.RepeatedCompositeFieldContainer[_checkpoint_pb2.VertexParallelism]
    after_attempt: int
    def __init__(self, parallelism: _Optional[_Iterable[_Union[_checkpoint_pb2.VertexParallelism, _Mapping]]] = ..., after_attempt: _Optional[int] = ...) -> None: ...

class ListCheckpointsRequest(_message.Message):
    __slots__ = ("job_key", "offsets", "history")
    JOB_KEY_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    job_key: str
    offsets: bool
    history: bool
    def __init__(self, job_key: _Optional[str] = ..., offsets: _Optional[bool] = ..., history: _Optional[bool] = ...) -> None: ...

class ListCheckpointsResponse(_message.Message):
    __slots__ = ("checkpoints", "offsets", "history")
    CHECKPOINTS_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    checkpoints: _containers.RepeatedCompositeFieldContainer[_checkpoint_pb2.CompletedCheckpoint]
    offsets: _containers.RepeatedCompositeFieldContainer[CheckpointOffsets]
    history: _containers.RepeatedCompositeFieldContainer[CheckpointOutcome]
    def __init__(self, checkpoints: _Optional[_Iterable[_Union[_checkpoint_pb2.CompletedCheckpoint, _Mapping]]] = ..., offsets: _Optional[_Iterable[_Union[CheckpointOffsets, _Mapping]]] = ..., history: _Optional[_Iterable[_Union[CheckpointOutcome, _Mapping]]] = ...) -> None: ...

class CheckpointOutcome(_message.Message):
    __slots__ = ("checkpoint", "aborted", "text", "attempt", "acknowledged", "subtasks", "retained")
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    ABORTED_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_FIELD_NUMBER: _ClassVar[int]
    SUBTASKS_FIELD_NUMBER: _ClassVar[int]
    RETAINED_FIELD_NUMBER: _ClassVar[int]
    checkpoint: _checkpoint_pb2.CompletedCheckpoint
    aborted: AbortReason
    text: str
    attempt: int
    acknowledged: int
    subtasks: int
    retained: bool
    def __init__(self, checkpoint: _Optional[_Union[_checkpoint_pb2.CompletedCheckpoint, _Mapping]] = ..., aborted: _Optional[_Union[AbortReason, str]] = ..., text: _Optional[str] = ..., attempt: _Optional[int] = ..., acknowledged: _Optional[int] = ..., subtasks: _Optional[int] = ..., retained: _Optional[bool] = ...) -> None: ...

class CheckpointOffsets(_message.Message):
    __slots__ = ("checkpoint_id", "sources")
    CHECKPOINT_ID_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    checkpoint_id: int
    sources: _containers.RepeatedCompositeFieldContainer[SourceOffsets]
    def __init__(self, checkpoint_id: _Optional[int] = ..., sources: _Optional[_Iterable[_Union[SourceOffsets, _Mapping]]] = ...) -> None: ...

class SourceOffsets(_message.Message):
    __slots__ = ("operator_id", "subtask", "splits", "read_splits")
    OPERATOR_ID_FIELD_NUMBER: _ClassVar[int]
    SUBTASK_FIELD_NUMBER: _ClassVar[int]
    SPLITS_FIELD_NUMBER: _ClassVar[int]
    READ_SPLITS_FIELD_NUMBER: _ClassVar[int]
    operator_id: str
    subtask: int
    splits: _containers.RepeatedCompositeFieldContainer[_checkpoint_pb2.SplitState]
    read_splits: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, operator_id: _Optional[str] = ..., subtask: _Optional[int] = ..., splits: _Optional[_Iterable[_Union[_checkpoint_pb2.SplitState, _Mapping]]] = ..., read_splits: _Optional[_Iterable[str]] = ...) -> None: ...

class QueryStateRequest(_message.Message):
    __slots__ = ("job_key", "checkpoint_id", "operators")
    JOB_KEY_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_ID_FIELD_NUMBER: _ClassVar[int]
    OPERATORS_FIELD_NUMBER: _ClassVar[int]
    job_key: str
    checkpoint_id: int
    operators: _containers.RepeatedCompositeFieldContainer[_query_pb2.OperatorKeys]
    def __init__(self, job_key: _Optional[str] = ..., checkpoint_id: _Optional[int] = ..., operators: _Optional[_Iterable[_Union[_query_pb2.OperatorKeys, _Mapping]]] = ...) -> None: ...

class QueryStateResponse(_message.Message):
    __slots__ = ("checkpoint_id", "values")
    CHECKPOINT_ID_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    checkpoint_id: int
    values: _containers.RepeatedCompositeFieldContainer[_query_pb2.KeyedValue]
    def __init__(self, checkpoint_id: _Optional[int] = ..., values: _Optional[_Iterable[_Union[_query_pb2.KeyedValue, _Mapping]]] = ...) -> None: ...

class GetCheckpointRequest(_message.Message):
    __slots__ = ("job_key", "checkpoint_id")
    JOB_KEY_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_ID_FIELD_NUMBER: _ClassVar[int]
    job_key: str
    checkpoint_id: int
    def __init__(self, job_key: _Optional[str] = ..., checkpoint_id: _Optional[int] = ...) -> None: ...

class GetCheckpointResponse(_message.Message):
    __slots__ = ("subtasks",)
    SUBTASKS_FIELD_NUMBER: _ClassVar[int]
    subtasks: _containers.RepeatedCompositeFieldContainer[SubtaskSnapshot]
    def __init__(self, subtasks: _Optional[_Iterable[_Union[SubtaskSnapshot, _Mapping]]] = ...) -> None: ...

class SubtaskSnapshot(_message.Message):
    __slots__ = ("vertex_id", "subtask", "task_manager_id", "duration_ms", "size_bytes", "written_bytes", "sync_us", "async_ms", "alignment_ms")
    VERTEX_ID_FIELD_NUMBER: _ClassVar[int]
    SUBTASK_FIELD_NUMBER: _ClassVar[int]
    TASK_MANAGER_ID_FIELD_NUMBER: _ClassVar[int]
    DURATION_MS_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    WRITTEN_BYTES_FIELD_NUMBER: _ClassVar[int]
    SYNC_US_FIELD_NUMBER: _ClassVar[int]
    ASYNC_MS_FIELD_NUMBER: _ClassVar[int]
    ALIGNMENT_MS_FIELD_NUMBER: _ClassVar[int]
    vertex_id: str
    subtask: int
    task_manager_id: str
    duration_ms: int
    size_bytes: int
    written_bytes: int
    sync_us: int
    async_ms: int
    alignment_ms: int
    def __init__(self, vertex_id: _Optional[str] = ..., subtask: _Optional[int] = ..., task_manager_id: _Optional[str] = ..., duration_ms: _Optional[int] = ..., size_bytes: _Optional[int] = ..., written_bytes: _Optional[int] = ..., sync_us: _Optional[int] = ..., async_ms: _Optional[int] = ..., alignment_ms: _Optional[int] = ...) -> None: ...

class GetStoryRequest(_message.Message):
    __slots__ = ("job_key",)
    JOB_KEY_FIELD_NUMBER: _ClassVar[int]
    job_key: str
    def __init__(self, job_key: _Optional[str] = ...) -> None: ...

class JobStory(_message.Message):
    __slots__ = ("lines", "remarks")
    LINES_FIELD_NUMBER: _ClassVar[int]
    REMARKS_FIELD_NUMBER: _ClassVar[int]
    lines: _containers.RepeatedCompositeFieldContainer[_story_pb2.StoryLine]
    remarks: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, lines: _Optional[_Iterable[_Union[_story_pb2.StoryLine, _Mapping]]] = ..., remarks: _Optional[_Iterable[str]] = ...) -> None: ...

class GetLeaderRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetClusterRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class TaskManagerStatus(_message.Message):
    __slots__ = ("task_manager_id", "address", "pid", "slots", "free_slots")
    TASK_MANAGER_ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    FREE_SLOTS_FIELD_NUMBER: _ClassVar[int]
    task_manager_id: str
    address: str
    pid: int
    slots: int
    free_slots: int
    def __init__(self, task_manager_id: _Optional[str] = ..., address: _Optional[str] = ..., pid: _Optional[int] = ..., slots: _Optional[int] = ..., free_slots: _Optional[int] = ...) -> None: ...

class CoordinatorStatus(_message.Message):
    __slots__ = ("coordinator_id", "address", "pid", "leader", "dashboard")
    COORDINATOR_ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    DASHBOARD_FIELD_NUMBER: _ClassVar[int]
    coordinator_id: str
    address: str
    pid: int
    leader: bool
    dashboard: str
    def __init__(self, coordinator_id: _Optional[str] = ..., address: _Optional[str] = ..., pid: _Optional[int] = ..., leader: _Optional[bool] = ..., dashboard: _Optional[str] = ...) -> None: ...

class ClusterStatus(_message.Message):
    __slots__ = ("leader", "task_managers", "coordinators", "zookeeper_trouble", "leader_silent", "leaders")
    LEADER_FIELD_NUMBER: _ClassVar[int]
    TASK_MANAGERS_FIELD_NUMBER: _ClassVar[int]
    COORDINATORS_FIELD_NUMBER: _ClassVar[int]
    ZOOKEEPER_TROUBLE_FIELD_NUMBER: _ClassVar[int]
    LEADER_SILENT_FIELD_NUMBER: _ClassVar[int]
    LEADERS_FIELD_NUMBER: _ClassVar[int]
    leader: _checkpoint_pb2.LeaderRecord
    task_managers: _containers.RepeatedCompositeFieldContainer[TaskManagerStatus]
    coordinators: _containers.RepeatedCompositeFieldContainer[CoordinatorStatus]
    zookeeper_trouble: str
    leader_silent: bool
    leaders: _containers.RepeatedCompositeFieldContainer[_checkpoint_pb2.LeadershipRecord]
    def __init__(self, leader: _Optional[_Union[_checkpoint_pb2.LeaderRecord, _Mapping]] = ..., task_managers: _Optional[_Iterable[_Union[TaskManagerStatus, _Mapping]]] = ..., coordinators: _Optional[_Iterable[_Union[CoordinatorStatus, _Mapping]]] = ..., zookeeper_trouble: _Optional[str] = ..., leader_silent: _Optional[bool] = ..., leaders: _Optional[_Iterable[_Union[_checkpoint_pb2.LeadershipRecord, _Mapping]]] = ...) -> None: ...

class OperatorStatus(_message.Message):
    __slots__ = ("operator_id", "name", "vertex_id", "records_in", "records_out", "records_late", "records_malformed", "records_ahead", "records_failed", "records_lost")
    OPERATOR_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERTEX_ID_FIELD_NUMBER: _ClassVar[int]
    RECORDS_IN_FIELD_NUMBER: _ClassVar[int]
    RECORDS_OUT_FIELD_NUMBER: _ClassVar[int]
    RECORDS_LATE_FIELD_NUMBER: _ClassVar[int]
    RECORDS_MALFORMED_FIELD_NUMBER: _ClassVar[int]
    RECORDS_AHEAD_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FAILED_FIELD_NUMBER: _ClassVar[int]
    RECORDS_LOST_FIELD_NUMBER: _ClassVar[int]
    operator_id: str
    name: str
    vertex_id: str
    records_in: int
    records_out: int
    records_late: int
    records_malformed: int
    records_ahead: int
    records_failed: int
    records_lost: int
    def __init__(self, operator_id: _Optional[str] = ..., name: _Optional[str] = ..., vertex_id: _Optional[str] = ..., records_in: _Optional[int] = ..., records_out: _Optional[int] = ..., records_late: _Optional[int] = ..., records_malformed: _Optional[int] = ..., records_ahead: _Optional[int] = ..., records_failed: _Optional[int] = ..., records_lost: _Optional[int] = ...) -> None: ...

class EdgeView(_message.Message):
    __slots__ = ("source", "target", "partitioning", "side_output")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    PARTITIONING_FIELD_NUMBER: _ClassVar[int]
    SIDE_OUTPUT_FIELD_NUMBER: _ClassVar[int]
    source: str
    target: str
    partitioning: _graph_pb2.Partitioning
    side_output: str
    def __init__(self, source: _Optional[str] = ..., target: _Optional[str] = ..., partitioning: _Optional[_Union[_graph_pb2.Partitioning, str]] = ..., side_output: _Optional[str] = ...) -> None: ...

class SubtaskStatusView(_message.Message):
    __slots__ = ("vertex_id", "subtask", "task_manager_id", "state", "load", "attempt")
    VERTEX_ID_FIELD_NUMBER: _ClassVar[int]
    SUBTASK_FIELD_NUMBER: _ClassVar[int]
    TASK_MANAGER_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    vertex_id: str
    subtask: int
    task_manager_id: str
    state: str
    load: _load_pb2.SubtaskLoad
    attempt: int
    def __init__(self, vertex_id: _Optional[str] = ..., subtask: _Optional[int] = ..., task_manager_id: _Optional[str] = ..., state: _Optional[str] = ..., load: _Optional[_Union[_load_pb2.SubtaskLoad, _Mapping]] = ..., attempt: _Optional[int] = ...) -> None: ...

class StorageTrouble(_message.Message):
    __slots__ = ("since_unix_ms", "reason")
    SINCE_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    since_unix_ms: int
    reason: str
    def __init__(self, since_unix_ms: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class JobStatus(_message.Message):
    __slots__ = ("job_key", "run_id", "name", "state", "message", "error", "attempt", "restarts", "submitted_unix_ms", "ended_unix_ms", "operators", "subtasks", "last_checkpoint", "checkpoints_completed", "checkpoints_aborted", "token", "leader_address", "checkpoint_mode", "storage_trouble", "straggler", "failure", "edges", "records_read", "records_written", "records_read_again", "reads", "standby_copies", "subtask_count", "backlog")
    JOB_KEY_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    RESTARTS_FIELD_NUMBER: _ClassVar[int]
    SUBMITTED_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    ENDED_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    OPERATORS_FIELD_NUMBER: _ClassVar[int]
    SUBTASKS_FIELD_NUMBER: _ClassVar[int]
    LAST_CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINTS_COMPLETED_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINTS_ABORTED_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    LEADER_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_MODE_FIELD_NUMBER: _ClassVar[int]
    STORAGE_TROUBLE_FIELD_NUMBER: _ClassVar[int]
    STRAGGLER_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    EDGES_FIELD_NUMBER: _ClassVar[int]
    RECORDS_READ_FIELD_NUMBER: _ClassVar[int]
    RECORDS_WRITTEN_FIELD_NUMBER: _ClassVar[int]
    RECORDS_READ_AGAIN_FIELD_NUMBER: _ClassVar[int]
    READS_FIELD_NUMBER: _ClassVar[int]
    STANDBY_COPIES_FIELD_NUMBER: _ClassVar[int]
    SUBTASK_COUNT_FIELD_NUMBER: _ClassVar[int]
    BACKLOG_FIELD_NUMBER: _ClassVar[int]
    job_key: str
    run_id: str
    name: str
    state: JobState
    message: str
    error: str
    attempt: int
    restarts: int
    submitted_unix_ms: int
    ended_unix_ms: int
    operators: _containers.RepeatedCompositeFieldContainer[OperatorStatus]
    subtasks: _containers.RepeatedCompositeFieldContainer[SubtaskStatusView]
    last_checkpoint: _checkpoint_pb2.CompletedCheckpoint
    checkpoints_completed: int
    checkpoints_aborted: int
    token: int
    leader_address: str
    checkpoint_mode: _graph_pb2.CheckpointMode
    storage_trouble: StorageTrouble
    straggler: str
    failure: _failure_pb2.JobFailure
    edges: _containers.RepeatedCompositeFieldContainer[EdgeView]
    records_read: int
    records_written: int
    records_read_again: int
    reads: ReadHistory
    standby_copies: StandbyStatus
    subtask_count: int
    backlog: JobBacklog
    def __init__(self, job_key: _Optional[str] = ..., run_id: _Optional[str] = ..., name: _Optional[str] = ..., state: _Optional[_Union[JobState, str]] = ..., message: _Optional[str] = ..., error: _Optional[str] = ..., attempt: _Optional[int] = ..., restarts: _Optional[int] = ..., submitted_unix_ms: _Optional[int] = ..., ended_unix_ms: _Optional[int] = ..., operators: _Optional[_Iterable[_Union[OperatorStatus, _Mapping]]] = ..., subtasks: _Optional[_Iterable[_Union[SubtaskStatusView, _Mapping]]] = ..., last_checkpoint: _Optional[_Union[_checkpoint_pb2.CompletedCheckpoint, _Mapping]] = ..., checkpoints_completed: _Optional[int] = ..., checkpoints_aborted: _Optional[int] = ..., token: _Optional[int] = ..., leader_address: _Optional[str] = ..., checkpoint_mode: _Optional[_Union[_graph_pb2.CheckpointMode, str]] = ..., storage_trouble: _Optional[_Union[StorageTrouble, _Mapping]] = ..., straggler: _Optional[str] = ..., failure: _Optional[_Union[_failure_pb2.JobFailure, _Mapping]] = ..., edges: _Optional[_Iterable[_Union[EdgeView, _Mapping]]] = ..., records_read: _Optional[int] = ..., records_written: _Optional[int] = ..., records_read_again: _Optional[int] = ..., reads: _Optional[_Union[ReadHistory, _Mapping]] = ..., standby_copies: _Optional[_Union[StandbyStatus, _Mapping]] = ..., subtask_count: _Optional[int] = ..., backlog: _Optional[_Union[JobBacklog, _Mapping]] = ...) -> None: ...

class JobBacklog(_message.Message):
    __slots__ = ("records", "size_bytes", "splits")
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    SPLITS_FIELD_NUMBER: _ClassVar[int]
    records: int
    size_bytes: int
    splits: int
    def __init__(self, records: _Optional[int] = ..., size_bytes: _Optional[int] = ..., splits: _Optional[int] = ...) -> None: ...

class StandbyStatus(_message.Message):
    __slots__ = ("wanted", "complete", "keepers")
    WANTED_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    KEEPERS_FIELD_NUMBER: _ClassVar[int]
    wanted: int
    complete: int
    keepers: _containers.RepeatedCompositeFieldContainer[CopyStatus]
    def __init__(self, wanted: _Optional[int] = ..., complete: _Optional[int] = ..., keepers: _Optional[_Iterable[_Union[CopyStatus, _Mapping]]] = ...) -> None: ...

class CopyStatus(_message.Message):
    __slots__ = ("task_manager_id", "stands_by_for", "checkpoint_id", "files", "size_bytes", "files_kept", "complete_id", "problem")
    TASK_MANAGER_ID_FIELD_NUMBER: _ClassVar[int]
    STANDS_BY_FOR_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_ID_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    FILES_KEPT_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_ID_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    task_manager_id: str
    stands_by_for: _containers.RepeatedScalarFieldContainer[str]
    checkpoint_id: int
    files: int
    size_bytes: int
    files_kept: int
    complete_id: int
    problem: str
    def __init__(self, task_manager_id: _Optional[str] = ..., stands_by_for: _Optional[_Iterable[str]] = ..., checkpoint_id: _Optional[int] = ..., files: _Optional[int] = ..., size_bytes: _Optional[int] = ..., files_kept: _Optional[int] = ..., complete_id: _Optional[int] = ..., problem: _Optional[str] = ...) -> None: ...

class ReadHistory(_message.Message):
    __slots__ = ("unix_ms", "records")
    UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    unix_ms: _containers.RepeatedScalarFieldContainer[int]
    records: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, unix_ms: _Optional[_Iterable[int]] = ..., records: _Optional[_Iterable[int]] = ...) -> None: ...

class JobEvent(_message.Message):
    __slots__ = ("kind", "unix_us", "attempt", "checkpoint_id", "token", "text")
    KIND_FIELD_NUMBER: _ClassVar[int]
    UNIX_US_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_ID_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    kind: JobEventKind
    unix_us: int
    attempt: int
    checkpoint_id: int
    token: int
    text: str
    def __init__(self, kind: _Optional[_Union[JobEventKind, str]] = ..., unix_us: _Optional[int] = ..., attempt: _Optional[int] = ..., checkpoint_id: _Optional[int] = ..., token: _Optional[int] = ..., text: _Optional[str] = ...) -> None: ...

class JobUpdate(_message.Message):
    __slots__ = ("status", "event", "change")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    EVENT_FIELD_NUMBER: _ClassVar[int]
    CHANGE_FIELD_NUMBER: _ClassVar[int]
    status: JobStatus
    event: JobEvent
    change: StatusChange
    def __init__(self, status: _Optional[_Union[JobStatus, _Mapping]] = ..., event: _Optional[_Union[JobEvent, _Mapping]] = ..., change: _Optional[_Union[StatusChange, _Mapping]] = ...) -> None: ...

class StatusChange(_message.Message):
    __slots__ = ("fields", "status", "subtasks")
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    SUBTASKS_FIELD_NUMBER: _ClassVar[int]
    fields: _containers.RepeatedScalarFieldContainer[str]
    status: JobStatus
    subtasks: _containers.RepeatedCompositeFieldContainer[SubtaskChange]
    def __init__(self, fields: _Optional[_Iterable[str]] = ..., status: _Optional[_Union[JobStatus, _Mapping]] = ..., subtasks: _Optional[_Iterable[_Union[SubtaskChange, _Mapping]]] = ...) -> None: ...

class SubtaskChange(_message.Message):
    __slots__ = ("index", "subtask", "load")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    SUBTASK_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    index: int
    subtask: SubtaskStatusView
    load: _load_pb2.SubtaskLoad
    def __init__(self, index: _Optional[int] = ..., subtask: _Optional[_Union[SubtaskStatusView, _Mapping]] = ..., load: _Optional[_Union[_load_pb2.SubtaskLoad, _Mapping]] = ...) -> None: ...
