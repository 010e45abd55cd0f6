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

class SubtaskPhase(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SUBTASK_PHASE_UNSPECIFIED: _ClassVar[SubtaskPhase]
    SUBTASK_RUNNING: _ClassVar[SubtaskPhase]
    SUBTASK_EXHAUSTED: _ClassVar[SubtaskPhase]
    SUBTASK_FAILED: _ClassVar[SubtaskPhase]
    SUBTASK_CANCELED: _ClassVar[SubtaskPhase]

class DeclineCause(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DECLINE_CAUSE_UNSPECIFIED: _ClassVar[DeclineCause]
    STORAGE_FAILED: _ClassVar[DeclineCause]
    REPLAYING: _ClassVar[DeclineCause]

class QueryOutcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    QUERY_OUTCOME_UNSPECIFIED: _ClassVar[QueryOutcome]
    ANSWERED: _ClassVar[QueryOutcome]
    NOT_ANSWERABLE: _ClassVar[QueryOutcome]
    CHECKPOINT_GONE: _ClassVar[QueryOutcome]
    UNREADABLE_STATE: _ClassVar[QueryOutcome]
    TRY_AGAIN: _ClassVar[QueryOutcome]
SUBTASK_PHASE_UNSPECIFIED: SubtaskPhase
SUBTASK_RUNNING: SubtaskPhase
SUBTASK_EXHAUSTED: SubtaskPhase
SUBTASK_FAILED: SubtaskPhase
SUBTASK_CANCELED: SubtaskPhase
DECLINE_CAUSE_UNSPECIFIED: DeclineCause
STORAGE_FAILED: DeclineCause
REPLAYING: DeclineCause
QUERY_OUTCOME_UNSPECIFIED: QueryOutcome
ANSWERED: QueryOutcome
NOT_ANSWERABLE: QueryOutcome
CHECKPOINT_GONE: QueryOutcome
UNREADABLE_STATE: QueryOutcome
TRY_AGAIN: QueryOutcome

class FollowRequest(_message.Message):
    __slots__ = ("coordinator_id", "token")
    COORDINATOR_ID_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    coordinator_id: str
    token: int
    def __init__(self, coordinator_id: _Optional[str] = ..., token: _Optional[int] = ...) -> None: ...

class LeaderBeat(_message.Message):
    __slots__ = ("token", "leading", "coordinator_id")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    LEADING_FIELD_NUMBER: _ClassVar[int]
    COORDINATOR_ID_FIELD_NUMBER: _ClassVar[int]
    token: int
    leading: bool
    coordinator_id: str
    def __init__(self, token: _Optional[int] = ..., leading: _Optional[bool] = ..., coordinator_id: _Optional[str] = ...) -> None: ...

class AttemptId(_message.Message):
    __slots__ = ("job_key", "run_id", "attempt")
    JOB_KEY_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    job_key: str
    run_id: str
    attempt: int
    def __init__(self, job_key: _Optional[str] = ..., run_id: _Optional[str] = ..., attempt: _Optional[int] = ...) -> None: ...

class SubtaskId(_message.Message):
    __slots__ = ("attempt", "vertex_id", "subtask")
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    VERTEX_ID_FIELD_NUMBER: _ClassVar[int]
    SUBTASK_FIELD_NUMBER: _ClassVar[int]
    attempt: AttemptId
    vertex_id: str
    subtask: int
    def __init__(self, attempt: _Optional[_Union[AttemptId, _Mapping]] = ..., vertex_id: _Optional[str] = ..., subtask: _Optional[int] = ...) -> None: ...

class TaskManagerMessage(_message.Message):
    __slots__ = ("token", "task_manager_id", "register", "heartbeat", "report", "acknowledge", "decline", "committed", "splits", "first_record", "gone", "goodbye", "story", "state_answer", "copies_kept", "reports", "sequence", "acknowledged")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    TASK_MANAGER_ID_FIELD_NUMBER: _ClassVar[int]
    REGISTER_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGE_FIELD_NUMBER: _ClassVar[int]
    DECLINE_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    SPLITS_FIELD_NUMBER: _ClassVar[int]
    FIRST_RECORD_FIELD_NUMBER: _ClassVar[int]
    GONE_FIELD_NUMBER: _ClassVar[int]
    GOODBYE_FIELD_NUMBER: _ClassVar[int]
    STORY_FIELD_NUMBER: _ClassVar[int]
    STATE_ANSWER_FIELD_NUMBER: _ClassVar[int]
    COPIES_KEPT_FIELD_NUMBER: _ClassVar[int]
    REPORTS_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_FIELD_NUMBER: _ClassVar[int]
    token: int
    task_manager_id: str
    register: Register
    heartbeat: Heartbeat
    report: SubtaskReport
    acknowledge: AcknowledgeCheckpoint
    decline: DeclineCheckpoint
    committed: CheckpointCommitted
    splits: SplitsDiscovered
    first_record: FirstRecord
    gone: AttemptGone
    goodbye: Goodbye
    story: StoryAnswer
    state_answer: StateAnswer
    copies_kept: CopiesKept
    reports: ReportBatch
    sequence: int
    acknowledged: int
    def __init__(self, token: _Optional[int] = ..., task_manager_id: _Optional[str] = ..., register: _Optional[_Union[Register, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., report: _Optional[_Union[SubtaskReport, _Mapping]] = ..., acknowledge: _Optional[_Union[AcknowledgeCheckpoint, _Mapping]] = ..., decline: _Optional[_Union[DeclineCheckpoint, _Mapping]] = ..., committed: _Optional[_Union[CheckpointCommitted, _Mapping]] = ..., splits: _Optional[_Union[SplitsDiscovered, _Mapping]] = ..., first_record: _Optional[_Union[FirstRecord, _Mapping]] = ..., gone: _Optional[_Union[AttemptGone, _Mapping]] = ..., goodbye: _Optional[_Union[Goodbye, _Mapping]] = ..., story: _Optional[_Union[StoryAnswer, _Mapping]] = ..., state_answer: _Optional[_Union[StateAnswer, _Mapping]] = ..., copies_kept: _Optional[_Union[CopiesKept, _Mapping]] = ..., reports: _Optional[_Union[ReportBatch, _Mapping]] = ..., sequence: _Optional[int] = ..., acknowledged: _Optional[int] = ...) -> None: ...

class CoordinatorMessage(_message.Message):
    __slots__ = ("token", "registered", "heartbeat", "deploy", "cancel", "trigger", "complete", "aborted", "discover", "assign", "prepare", "drain", "story_request", "state_query", "keep_copies", "assign_together", "await_part", "rejoin_part", "sequence", "acknowledged")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    REGISTERED_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    DEPLOY_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    TRIGGER_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    ABORTED_FIELD_NUMBER: _ClassVar[int]
    DISCOVER_FIELD_NUMBER: _ClassVar[int]
    ASSIGN_FIELD_NUMBER: _ClassVar[int]
    PREPARE_FIELD_NUMBER: _ClassVar[int]
    DRAIN_FIELD_NUMBER: _ClassVar[int]
    STORY_REQUEST_FIELD_NUMBER: _ClassVar[int]
    STATE_QUERY_FIELD_NUMBER: _ClassVar[int]
    KEEP_COPIES_FIELD_NUMBER: _ClassVar[int]
    ASSIGN_TOGETHER_FIELD_NUMBER: _ClassVar[int]
    AWAIT_PART_FIELD_NUMBER: _ClassVar[int]
    REJOIN_PART_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_FIELD_NUMBER: _ClassVar[int]
    token: int
    registered: Registered
    heartbeat: Heartbeat
    deploy: Deploy
    cancel: CancelAttempt
    trigger: TriggerCheckpoint
    complete: NotifyCheckpointComplete
    aborted: NotifyCheckpointAborted
    discover: DiscoverSplits
    assign: AssignSplits
    prepare: PrepareJob
    drain: DrainSources
    story_request: StoryRequest
    state_query: StateQuery
    keep_copies: KeepCopies
    assign_together: AssignSplitsTogether
    await_part: AwaitPart
    rejoin_part: RejoinPart
    sequence: int
    acknowledged: int
    def __init__(self, token: _Optional[int] = ..., registered: _Optional[_Union[Registered, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., deploy: _Optional[_Union[Deploy, _Mapping]] = ..., cancel: _Optional[_Union[CancelAttempt, _Mapping]] = ..., trigger: _Optional[_Union[TriggerCheckpoint, _Mapping]] = ..., complete: _Optional[_Union[NotifyCheckpointComplete, _Mapping]] = ..., aborted: _Optional[_Union[NotifyCheckpointAborted, _Mapping]] = ..., discover: _Optional[_Union[DiscoverSplits, _Mapping]] = ..., assign: _Optional[_Union[AssignSplits, _Mapping]] = ..., prepare: _Optional[_Union[PrepareJob, _Mapping]] = ..., drain: _Optional[_Union[DrainSources, _Mapping]] = ..., story_request: _Optional[_Union[StoryRequest, _Mapping]] = ..., state_query: _Optional[_Union[StateQuery, _Mapping]] = ..., keep_copies: _Optional[_Union[KeepCopies, _Mapping]] = ..., assign_together: _Optional[_Union[AssignSplitsTogether, _Mapping]] = ..., await_part: _Optional[_Union[AwaitPart, _Mapping]] = ..., rejoin_part: _Optional[_Union[RejoinPart, _Mapping]] = ..., sequence: _Optional[int] = ..., acknowledged: _Optional[int] = ...) -> None: ...

class Release(_message.Message):
    __slots__ = ("version", "revision", "oldest")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    OLDEST_FIELD_NUMBER: _ClassVar[int]
    version: str
    revision: int
    oldest: int
    def __init__(self, version: _Optional[str] = ..., revision: _Optional[int] = ..., oldest: _Optional[int] = ...) -> None: ...

class Register(_message.Message):
    __slots__ = ("exchange_address", "slots", "pid", "running", "incarnation", "progress", "release", "takes_batches")
    EXCHANGE_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    TAKES_BATCHES_FIELD_NUMBER: _ClassVar[int]
    exchange_address: str
    slots: int
    pid: int
    running: _containers.RepeatedCompositeFieldContainer[AttemptId]
    incarnation: str
    progress: _containers.RepeatedCompositeFieldContainer[AttemptProgress]
    release: Release
    takes_batches: bool
    def __init__(self, exchange_address: _Optional[str] = ..., slots: _Optional[int] = ..., pid: _Optional[int] = ..., running: _Optional[_Iterable[_Union[AttemptId, _Mapping]]] = ..., incarnation: _Optional[str] = ..., progress: _Optional[_Iterable[_Union[AttemptProgress, _Mapping]]] = ..., release: _Optional[_Union[Release, _Mapping]] = ..., takes_batches: _Optional[bool] = ...) -> None: ...

class AttemptProgress(_message.Message):
    __slots__ = ("attempt", "subtasks")
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    SUBTASKS_FIELD_NUMBER: _ClassVar[int]
    attempt: AttemptId
    subtasks: _containers.RepeatedCompositeFieldContainer[SubtaskProgress]
    def __init__(self, attempt: _Optional[_Union[AttemptId, _Mapping]] = ..., subtasks: _Optional[_Iterable[_Union[SubtaskProgress, _Mapping]]] = ...) -> None: ...

class SubtaskProgress(_message.Message):
    __slots__ = ("vertex_id", "subtask", "phase", "committed_id", "has_assigned", "assigned", "complete", "counters", "has_output")
    VERTEX_ID_FIELD_NUMBER: _ClassVar[int]
    SUBTASK_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_ID_FIELD_NUMBER: _ClassVar[int]
    HAS_ASSIGNED_FIELD_NUMBER: _ClassVar[int]
    ASSIGNED_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    COUNTERS_FIELD_NUMBER: _ClassVar[int]
    HAS_OUTPUT_FIELD_NUMBER: _ClassVar[int]
    vertex_id: str
    subtask: int
    phase: SubtaskPhase
    committed_id: int
    has_assigned: bool
    assigned: _containers.RepeatedCompositeFieldContainer[_checkpoint_pb2.SplitState]
    complete: bool
    counters: _containers.RepeatedCompositeFieldContainer[_checkpoint_pb2.OperatorCounters]
    has_output: bool
    def __init__(self, vertex_id: _Optional[str] = ..., subtask: _Optional[int] = ..., phase: _Optional[_Union[SubtaskPhase, str]] = ..., committed_id: _Optional[int] = ..., has_assigned: _Optional[bool] = ..., assigned: _Optional[_Iterable[_Union[_checkpoint_pb2.SplitState, _Mapping]]] = ..., complete: _Optional[bool] = ..., counters: _Optional[_Iterable[_Union[_checkpoint_pb2.OperatorCounters, _Mapping]]] = ..., has_output: _Optional[bool] = ...) -> None: ...

class Goodbye(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Registered(_message.Message):
    __slots__ = ("heartbeat_interval_ms", "takes_batches")
    HEARTBEAT_INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    TAKES_BATCHES_FIELD_NUMBER: _ClassVar[int]
    heartbeat_interval_ms: int
    takes_batches: bool
    def __init__(self, heartbeat_interval_ms: _Optional[int] = ..., takes_batches: _Optional[bool] = ...) -> None: ...

class ReportBatch(_message.Message):
    __slots__ = ("reports",)
    REPORTS_FIELD_NUMBER: _ClassVar[int]
    reports: _containers.RepeatedCompositeFieldContainer[BatchedReport]
    def __init__(self, reports: _Optional[_Iterable[_Union[BatchedReport, _Mapping]]] = ...) -> None: ...

class BatchedReport(_message.Message):
    __slots__ = ("report", "acknowledge", "decline", "committed", "first_record")
    REPORT_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGE_FIELD_NUMBER: _ClassVar[int]
    DECLINE_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    FIRST_RECORD_FIELD_NUMBER: _ClassVar[int]
    report: SubtaskReport
    acknowledge: AcknowledgeCheckpoint
    decline: DeclineCheckpoint
    committed: CheckpointCommitted
    first_record: FirstRecord
    def __init__(self, report: _Optional[_Union[SubtaskReport, _Mapping]] = ..., acknowledge: _Optional[_Union[AcknowledgeCheckpoint, _Mapping]] = ..., decline: _Optional[_Union[DeclineCheckpoint, _Mapping]] = ..., committed: _Optional[_Union[CheckpointCommitted, _Mapping]] = ..., first_record: _Optional[_Union[FirstRecord, _Mapping]] = ...) -> None: ...

class SubtaskCounters(_message.Message):
    __slots__ = ("subtask", "counters", "effort", "at_work", "at_work_ms", "load", "gap", "irreproducible")
    SUBTASK_FIELD_NUMBER: _ClassVar[int]
    COUNTERS_FIELD_NUMBER: _ClassVar[int]
    EFFORT_FIELD_NUMBER: _ClassVar[int]
    AT_WORK_FIELD_NUMBER: _ClassVar[int]
    AT_WORK_MS_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    GAP_FIELD_NUMBER: _ClassVar[int]
    IRREPRODUCIBLE_FIELD_NUMBER: _ClassVar[int]
    subtask: SubtaskId
    counters: _containers.RepeatedCompositeFieldContainer[_checkpoint_pb2.OperatorCounters]
    effort: SubtaskEffort
    at_work: str
    at_work_ms: int
    load: _load_pb2.SubtaskLoad
    gap: ReplayGap
    irreproducible: str
    def __init__(self, subtask: _Optional[_Union[SubtaskId, _Mapping]] = ..., counters: _Optional[_Iterable[_Union[_checkpoint_pb2.OperatorCounters, _Mapping]]] = ..., effort: _Optional[_Union[SubtaskEffort, _Mapping]] = ..., at_work: _Optional[str] = ..., at_work_ms: _Optional[int] = ..., load: _Optional[_Union[_load_pb2.SubtaskLoad, _Mapping]] = ..., gap: _Optional[_Union[ReplayGap, _Mapping]] = ..., irreproducible: _Optional[str] = ...) -> None: ...

class ReplayGap(_message.Message):
    __slots__ = ("slots", "since", "max_bytes")
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    slots: _containers.RepeatedScalarFieldContainer[int]
    since: int
    max_bytes: int
    def __init__(self, slots: _Optional[_Iterable[int]] = ..., since: _Optional[int] = ..., max_bytes: _Optional[int] = ...) -> None: ...

class SubtaskEffort(_message.Message):
    __slots__ = ("busy_us", "batches", "records", "size_bytes", "quickest_us")
    BUSY_US_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    QUICKEST_US_FIELD_NUMBER: _ClassVar[int]
    busy_us: int
    batches: int
    records: int
    size_bytes: int
    quickest_us: int
    def __init__(self, busy_us: _Optional[int] = ..., batches: _Optional[int] = ..., records: _Optional[int] = ..., size_bytes: _Optional[int] = ..., quickest_us: _Optional[int] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ("sequence", "counters", "interval_ms")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    COUNTERS_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    counters: _containers.RepeatedCompositeFieldContainer[SubtaskCounters]
    interval_ms: int
    def __init__(self, sequence: _Optional[int] = ..., counters: _Optional[_Iterable[_Union[SubtaskCounters, _Mapping]]] = ..., interval_ms: _Optional[int] = ...) -> None: ...

class SubtaskReport(_message.Message):
    __slots__ = ("subtask", "phase", "cause", "error", "place", "cause_id", "counters")
    SUBTASK_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    CAUSE_ID_FIELD_NUMBER: _ClassVar[int]
    COUNTERS_FIELD_NUMBER: _ClassVar[int]
    subtask: SubtaskId
    phase: SubtaskPhase
    cause: _failure_pb2.FailureCause
    error: str
    place: _failure_pb2.FailurePlace
    cause_id: str
    counters: _containers.RepeatedCompositeFieldContainer[_checkpoint_pb2.OperatorCounters]
    def __init__(self, subtask: _Optional[_Union[SubtaskId, _Mapping]] = ..., phase: _Optional[_Union[SubtaskPhase, str]] = ..., cause: _Optional[_Union[_failure_pb2.FailureCause, str]] = ..., error: _Optional[str] = ..., place: _Optional[_Union[_failure_pb2.FailurePlace, _Mapping]] = ..., cause_id: _Optional[str] = ..., counters: _Optional[_Iterable[_Union[_checkpoint_pb2.OperatorCounters, _Mapping]]] = ...) -> None: ...

class FirstRecord(_message.Message):
    __slots__ = ("subtask", "unix_us", "cause_id")
    SUBTASK_FIELD_NUMBER: _ClassVar[int]
    UNIX_US_FIELD_NUMBER: _ClassVar[int]
    CAUSE_ID_FIELD_NUMBER: _ClassVar[int]
    subtask: SubtaskId
    unix_us: int
    cause_id: str
    def __init__(self, subtask: _Optional[_Union[SubtaskId, _Mapping]] = ..., unix_us: _Optional[int] = ..., cause_id: _Optional[str] = ...) -> None: ...

class SplitsDiscovered(_message.Message):
    __slots__ = ("attempt", "vertex_id", "splits", "complete", "error", "cause", "round", "cause_id")
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    VERTEX_ID_FIELD_NUMBER: _ClassVar[int]
    SPLITS_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    CAUSE_ID_FIELD_NUMBER: _ClassVar[int]
    attempt: AttemptId
    vertex_id: str
    splits: _containers.RepeatedCompositeFieldContainer[_checkpoint_pb2.SplitState]
    complete: bool
    error: str
    cause: _failure_pb2.FailureCause
    round: int
    cause_id: str
    def __init__(self, attempt: _Optional[_Union[AttemptId, _Mapping]] = ..., vertex_id: _Optional[str] = ..., splits: _Optional[_Iterable[_Union[_checkpoint_pb2.SplitState, _Mapping]]] = ..., complete: _Optional[bool] = ..., error: _Optional[str] = ..., cause: _Optional[_Union[_failure_pb2.FailureCause, str]] = ..., round: _Optional[int] = ..., cause_id: _Optional[str] = ...) -> None: ...

class AttemptGone(_message.Message):
    __slots__ = ("attempt", "cause_id")
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    CAUSE_ID_FIELD_NUMBER: _ClassVar[int]
    attempt: AttemptId
    cause_id: str
    def __init__(self, attempt: _Optional[_Union[AttemptId, _Mapping]] = ..., cause_id: _Optional[str] = ...) -> None: ...

class AcknowledgeCheckpoint(_message.Message):
    __slots__ = ("subtask", "checkpoint_id", "state", "sync_us", "async_ms", "alignment_ms", "cause_id")
    SUBTASK_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    SYNC_US_FIELD_NUMBER: _ClassVar[int]
    ASYNC_MS_FIELD_NUMBER: _ClassVar[int]
    ALIGNMENT_MS_FIELD_NUMBER: _ClassVar[int]
    CAUSE_ID_FIELD_NUMBER: _ClassVar[int]
    subtask: SubtaskId
    checkpoint_id: int
    state: _checkpoint_pb2.SubtaskState
    sync_us: int
    async_ms: int
    alignment_ms: int
    cause_id: str
    def __init__(self, subtask: _Optional[_Union[SubtaskId, _Mapping]] = ..., checkpoint_id: _Optional[int] = ..., state: _Optional[_Union[_checkpoint_pb2.SubtaskState, _Mapping]] = ..., sync_us: _Optional[int] = ..., async_ms: _Optional[int] = ..., alignment_ms: _Optional[int] = ..., cause_id: _Optional[str] = ...) -> None: ...

class DeclineCheckpoint(_message.Message):
    __slots__ = ("subtask", "checkpoint_id", "reason", "cause", "cause_id")
    SUBTASK_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    CAUSE_ID_FIELD_NUMBER: _ClassVar[int]
    subtask: SubtaskId
    checkpoint_id: int
    reason: str
    cause: DeclineCause
    cause_id: str
    def __init__(self, subtask: _Optional[_Union[SubtaskId, _Mapping]] = ..., checkpoint_id: _Optional[int] = ..., reason: _Optional[str] = ..., cause: _Optional[_Union[DeclineCause, str]] = ..., cause_id: _Optional[str] = ...) -> None: ...

class CheckpointCommitted(_message.Message):
    __slots__ = ("subtask", "checkpoint_id", "has_output", "cause_id")
    SUBTASK_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_ID_FIELD_NUMBER: _ClassVar[int]
    HAS_OUTPUT_FIELD_NUMBER: _ClassVar[int]
    CAUSE_ID_FIELD_NUMBER: _ClassVar[int]
    subtask: SubtaskId
    checkpoint_id: int
    has_output: bool
    cause_id: str
    def __init__(self, subtask: _Optional[_Union[SubtaskId, _Mapping]] = ..., checkpoint_id: _Optional[int] = ..., has_output: _Optional[bool] = ..., cause_id: _Optional[str] = ...) -> None: ...

class Participant(_message.Message):
    __slots__ = ("task_manager_id", "exchange_address", "incarnation")
    TASK_MANAGER_ID_FIELD_NUMBER: _ClassVar[int]
    EXCHANGE_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    task_manager_id: str
    exchange_address: str
    incarnation: str
    def __init__(self, task_manager_id: _Optional[str] = ..., exchange_address: _Optional[str] = ..., incarnation: _Optional[str] = ...) -> None: ...

class Layout(_message.Message):
    __slots__ = ("graph", "participants", "slots", "began")
    GRAPH_FIELD_NUMBER: _ClassVar[int]
    PARTICIPANTS_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    BEGAN_FIELD_NUMBER: _ClassVar[int]
    graph: _graph_pb2.JobGraph
    participants: _containers.RepeatedCompositeFieldContainer[Participant]
    slots: _containers.RepeatedScalarFieldContainer[int]
    began: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, graph: _Optional[_Union[_graph_pb2.JobGraph, _Mapping]] = ..., participants: _Optional[_Iterable[_Union[Participant, _Mapping]]] = ..., slots: _Optional[_Iterable[int]] = ..., began: _Optional[_Iterable[int]] = ...) -> None: ...

class Deploy(_message.Message):
    __slots__ = ("attempt", "restore", "restored_checkpoint_id", "checkpoint_directory", "layout", "cause_id", "beside")
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    RESTORE_FIELD_NUMBER: _ClassVar[int]
    RESTORED_CHECKPOINT_ID_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_FIELD_NUMBER: _ClassVar[int]
    CAUSE_ID_FIELD_NUMBER: _ClassVar[int]
    BESIDE_FIELD_NUMBER: _ClassVar[int]
    attempt: AttemptId
    restore: _containers.RepeatedCompositeFieldContainer[_checkpoint_pb2.SubtaskState]
    restored_checkpoint_id: int
    checkpoint_directory: str
    layout: bytes
    cause_id: str
    beside: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, attempt: _Optional[_Union[AttemptId, _Mapping]] = ..., restore: _Optional[_Iterable[_Union[_checkpoint_pb2.SubtaskState, _Mapping]]] = ..., restored_checkpoint_id: _Optional[int] = ..., checkpoint_directory: _Optional[str] = ..., layout: _Optional[bytes] = ..., cause_id: _Optional[str] = ..., beside: _Optional[_Iterable[int]] = ...) -> None: ...

class PrepareJob(_message.Message):
    __slots__ = ("attempt", "graph", "slots")
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    GRAPH_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    attempt: AttemptId
    graph: _graph_pb2.JobGraph
    slots: int
    def __init__(self, attempt: _Optional[_Union[AttemptId, _Mapping]] = ..., graph: _Optional[_Union[_graph_pb2.JobGraph, _Mapping]] = ..., slots: _Optional[int] = ...) -> None: ...

class KeepCopies(_message.Message):
    __slots__ = ("attempt", "checkpoint_id", "files")
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_ID_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    attempt: AttemptId
    checkpoint_id: int
    files: _containers.RepeatedCompositeFieldContainer[_checkpoint_pb2.StateHandle]
    def __init__(self, attempt: _Optional[_Union[AttemptId, _Mapping]] = ..., checkpoint_id: _Optional[int] = ..., files: _Optional[_Iterable[_Union[_checkpoint_pb2.StateHandle, _Mapping]]] = ...) -> None: ...

class CopiesKept(_message.Message):
    __slots__ = ("attempt", "checkpoint_id", "files", "problem")
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_ID_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    attempt: AttemptId
    checkpoint_id: int
    files: int
    problem: str
    def __init__(self, attempt: _Optional[_Union[AttemptId, _Mapping]] = ..., checkpoint_id: _Optional[int] = ..., files: _Optional[int] = ..., problem: _Optional[str] = ...) -> None: ...

class CancelAttempt(_message.Message):
    __slots__ = ("attempt", "reason", "cause_id", "slots")
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    CAUSE_ID_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    attempt: AttemptId
    reason: str
    cause_id: str
    slots: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, attempt: _Optional[_Union[AttemptId, _Mapping]] = ..., reason: _Optional[str] = ..., cause_id: _Optional[str] = ..., slots: _Optional[_Iterable[int]] = ...) -> None: ...

class AwaitPart(_message.Message):
    __slots__ = ("attempt", "slots", "cause_id")
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    CAUSE_ID_FIELD_NUMBER: _ClassVar[int]
    attempt: AttemptId
    slots: _containers.RepeatedScalarFieldContainer[int]
    cause_id: str
    def __init__(self, attempt: _Optional[_Union[AttemptId, _Mapping]] = ..., slots: _Optional[_Iterable[int]] = ..., cause_id: _Optional[str] = ...) -> None: ...

class RejoinPart(_message.Message):
    __slots__ = ("attempt", "part", "restored_checkpoint_id", "places", "cause_id")
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    RESTORED_CHECKPOINT_ID_FIELD_NUMBER: _ClassVar[int]
    PLACES_FIELD_NUMBER: _ClassVar[int]
    CAUSE_ID_FIELD_NUMBER: _ClassVar[int]
    attempt: AttemptId
    part: int
    restored_checkpoint_id: int
    places: _containers.RepeatedCompositeFieldContainer[PartPlace]
    cause_id: str
    def __init__(self, attempt: _Optional[_Union[AttemptId, _Mapping]] = ..., part: _Optional[int] = ..., restored_checkpoint_id: _Optional[int] = ..., places: _Optional[_Iterable[_Union[PartPlace, _Mapping]]] = ..., cause_id: _Optional[str] = ...) -> None: ...

class PartPlace(_message.Message):
    __slots__ = ("slot", "participant")
    SLOT_FIELD_NUMBER: _ClassVar[int]
    PARTICIPANT_FIELD_NUMBER: _ClassVar[int]
    slot: int
    participant: Participant
    def __init__(self, slot: _Optional[int] = ..., participant: _Optional[_Union[Participant, _Mapping]] = ...) -> None: ...

class DrainSources(_message.Message):
    __slots__ = ("attempt", "cause_id")
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    CAUSE_ID_FIELD_NUMBER: _ClassVar[int]
    attempt: AttemptId
    cause_id: str
    def __init__(self, attempt: _Optional[_Union[AttemptId, _Mapping]] = ..., cause_id: _Optional[str] = ...) -> None: ...

class TriggerCheckpoint(_message.Message):
    __slots__ = ("attempt", "checkpoint_id", "kind", "terminal", "triggered_unix_ms", "completed_id", "unaligned", "cause_id")
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    TERMINAL_FIELD_NUMBER: _ClassVar[int]
    TRIGGERED_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    COMPLETED_ID_FIELD_NUMBER: _ClassVar[int]
    UNALIGNED_FIELD_NUMBER: _ClassVar[int]
    CAUSE_ID_FIELD_NUMBER: _ClassVar[int]
    attempt: AttemptId
    checkpoint_id: int
    kind: _checkpoint_pb2.CheckpointKind
    terminal: bool
    triggered_unix_ms: int
    completed_id: int
    unaligned: bool
    cause_id: str
    def __init__(self, attempt: _Optional[_Union[AttemptId, _Mapping]] = ..., checkpoint_id: _Optional[int] = ..., kind: _Optional[_Union[_checkpoint_pb2.CheckpointKind, str]] = ..., terminal: _Optional[bool] = ..., triggered_unix_ms: _Optional[int] = ..., completed_id: _Optional[int] = ..., unaligned: _Optional[bool] = ..., cause_id: _Optional[str] = ...) -> None: ...

class NotifyCheckpointComplete(_message.Message):
    __slots__ = ("attempt", "checkpoint_id", "cause_id")
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_ID_FIELD_NUMBER: _ClassVar[int]
    CAUSE_ID_FIELD_NUMBER: _ClassVar[int]
    attempt: AttemptId
    checkpoint_id: int
    cause_id: str
    def __init__(self, attempt: _Optional[_Union[AttemptId, _Mapping]] = ..., checkpoint_id: _Optional[int] = ..., cause_id: _Optional[str] = ...) -> None: ...

class NotifyCheckpointAborted(_message.Message):
    __slots__ = ("attempt", "checkpoint_id", "reason", "and_earlier", "cause_id")
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    AND_EARLIER_FIELD_NUMBER: _ClassVar[int]
    CAUSE_ID_FIELD_NUMBER: _ClassVar[int]
    attempt: AttemptId
    checkpoint_id: int
    reason: str
    and_earlier: bool
    cause_id: str
    def __init__(self, attempt: _Optional[_Union[AttemptId, _Mapping]] = ..., checkpoint_id: _Optional[int] = ..., reason: _Optional[str] = ..., and_earlier: _Optional[bool] = ..., cause_id: _Optional[str] = ...) -> None: ...

class StoryRequest(_message.Message):
    __slots__ = ("request", "job_key", "run_id", "lines")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    JOB_KEY_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    LINES_FIELD_NUMBER: _ClassVar[int]
    request: int
    job_key: str
    run_id: str
    lines: int
    def __init__(self, request: _Optional[int] = ..., job_key: _Optional[str] = ..., run_id: _Optional[str] = ..., lines: _Optional[int] = ...) -> None: ...

class StoryAnswer(_message.Message):
    __slots__ = ("request", "lines", "cut")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    LINES_FIELD_NUMBER: _ClassVar[int]
    CUT_FIELD_NUMBER: _ClassVar[int]
    request: int
    lines: _containers.RepeatedCompositeFieldContainer[_story_pb2.StoryLine]
    cut: bool
    def __init__(self, request: _Optional[int] = ..., lines: _Optional[_Iterable[_Union[_story_pb2.StoryLine, _Mapping]]] = ..., cut: _Optional[bool] = ...) -> None: ...

class StateQuery(_message.Message):
    __slots__ = ("request", "pointer", "checksum", "operators", "open_only")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    POINTER_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    OPERATORS_FIELD_NUMBER: _ClassVar[int]
    OPEN_ONLY_FIELD_NUMBER: _ClassVar[int]
    request: int
    pointer: str
    checksum: str
    operators: _containers.RepeatedCompositeFieldContainer[_query_pb2.OperatorKeys]
    open_only: bool
    def __init__(self, request: _Optional[int] = ..., pointer: _Optional[str] = ..., checksum: _Optional[str] = ..., operators: _Optional[_Iterable[_Union[_query_pb2.OperatorKeys, _Mapping]]] = ..., open_only: _Optional[bool] = ...) -> None: ...

class StateAnswer(_message.Message):
    __slots__ = ("request", "outcome", "values", "problem")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    request: int
    outcome: QueryOutcome
    values: _containers.RepeatedCompositeFieldContainer[_query_pb2.KeyedValue]
    problem: str
    def __init__(self, request: _Optional[int] = ..., outcome: _Optional[_Union[QueryOutcome, str]] = ..., values: _Optional[_Iterable[_Union[_query_pb2.KeyedValue, _Mapping]]] = ..., problem: _Optional[str] = ...) -> None: ...

class DiscoverSplits(_message.Message):
    __slots__ = ("attempt", "vertex_id", "known", "round", "files", "cause_id")
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    VERTEX_ID_FIELD_NUMBER: _ClassVar[int]
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    CAUSE_ID_FIELD_NUMBER: _ClassVar[int]
    attempt: AttemptId
    vertex_id: str
    known: _containers.RepeatedScalarFieldContainer[str]
    round: int
    files: _containers.RepeatedCompositeFieldContainer[_checkpoint_pb2.StateHandle]
    cause_id: str
    def __init__(self, attempt: _Optional[_Union[AttemptId, _Mapping]] = ..., vertex_id: _Optional[str] = ..., known: _Optional[_Iterable[str]] = ..., round: _Optional[int] = ..., files: _Optional[_Iterable[_Union[_checkpoint_pb2.StateHandle, _Mapping]]] = ..., cause_id: _Optional[str] = ...) -> None: ...

class AssignSplits(_message.Message):
    __slots__ = ("subtask", "splits", "complete", "cause_id")
    SUBTASK_FIELD_NUMBER: _ClassVar[int]
    SPLITS_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    CAUSE_ID_FIELD_NUMBER: _ClassVar[int]
    subtask: SubtaskId
    splits: _containers.RepeatedCompositeFieldContainer[_checkpoint_pb2.SplitState]
    complete: bool
    cause_id: str
    def __init__(self, subtask: _Optional[_Union[SubtaskId, _Mapping]] = ..., splits: _Optional[_Iterable[_Union[_checkpoint_pb2.SplitState, _Mapping]]] = ..., complete: _Optional[bool] = ..., cause_id: _Optional[str] = ...) -> None: ...

class AssignSplitsTogether(_message.Message):
    __slots__ = ("orders", "cause_id")
    ORDERS_FIELD_NUMBER: _ClassVar[int]
    CAUSE_ID_FIELD_NUMBER: _ClassVar[int]
    orders: _containers.RepeatedCompositeFieldContainer[AssignSplits]
    cause_id: str
    def __init__(self, orders: _Optional[_Iterable[_Union[AssignSplits, _Mapping]]] = ..., cause_id: _Optional[str] = ...) -> None: ...
