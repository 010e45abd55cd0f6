from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class LeaderFailover(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LEADER_FAILOVER_UNSPECIFIED: _ClassVar[LeaderFailover]
    LEADER_FAILOVER_RESTART: _ClassVar[LeaderFailover]
    LEADER_FAILOVER_REATTACH: _ClassVar[LeaderFailover]

class TaskManagerFailover(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TASK_MANAGER_FAILOVER_UNSPECIFIED: _ClassVar[TaskManagerFailover]
    TASK_MANAGER_FAILOVER_WHOLE: _ClassVar[TaskManagerFailover]
    TASK_MANAGER_FAILOVER_PART: _ClassVar[TaskManagerFailover]

class Partitioning(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PARTITIONING_UNSPECIFIED: _ClassVar[Partitioning]
    FORWARD: _ClassVar[Partitioning]
    HASH: _ClassVar[Partitioning]
    REBALANCE: _ClassVar[Partitioning]
    BROADCAST: _ClassVar[Partitioning]
    FEEDBACK: _ClassVar[Partitioning]

class JoinSide(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    JOIN_SIDE_UNSPECIFIED: _ClassVar[JoinSide]
    LEFT: _ClassVar[JoinSide]
    RIGHT: _ClassVar[JoinSide]

class OnError(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ON_ERROR_UNSPECIFIED: _ClassVar[OnError]
    FAIL: _ClassVar[OnError]
    SKIP: _ClassVar[OnError]
    DEAD_LETTER: _ClassVar[OnError]

class FileFormat(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FILE_FORMAT_UNSPECIFIED: _ClassVar[FileFormat]
    TEXT: _ClassVar[FileFormat]
    CSV: _ClassVar[FileFormat]
    JSON_LINES: _ClassVar[FileFormat]
    PARQUET: _ClassVar[FileFormat]

class RecordCall(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RECORD_CALL_UNSPECIFIED: _ClassVar[RecordCall]
    MAP: _ClassVar[RecordCall]
    FLAT_MAP: _ClassVar[RecordCall]
    FILTER: _ClassVar[RecordCall]

class RecordForm(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RECORD_FORM_UNSPECIFIED: _ClassVar[RecordForm]
    RECORDS: _ClassVar[RecordForm]
    ARROW: _ClassVar[RecordForm]
    PANDAS: _ClassVar[RecordForm]

class ObjectState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OBJECT_STATE_UNSPECIFIED: _ClassVar[ObjectState]
    OBJECT_STATE_FIXED: _ClassVar[ObjectState]
    OBJECT_STATE_SPLIT: _ClassVar[ObjectState]
    OBJECT_STATE_UNION: _ClassVar[ObjectState]
    OBJECT_STATE_BROADCAST: _ClassVar[ObjectState]

class AggregateFunction(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    AGGREGATE_FUNCTION_UNSPECIFIED: _ClassVar[AggregateFunction]
    COUNT: _ClassVar[AggregateFunction]
    SUM: _ClassVar[AggregateFunction]
    MIN: _ClassVar[AggregateFunction]
    MAX: _ClassVar[AggregateFunction]
    AVG: _ClassVar[AggregateFunction]

class StateShape(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STATE_SHAPE_UNSPECIFIED: _ClassVar[StateShape]
    VALUE_STATE: _ClassVar[StateShape]
    LIST_STATE: _ClassVar[StateShape]
    MAP_STATE: _ClassVar[StateShape]

class SqlWriteMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SQL_WRITE_MODE_UNSPECIFIED: _ClassVar[SqlWriteMode]
    UPSERT: _ClassVar[SqlWriteMode]
    APPEND: _ClassVar[SqlWriteMode]

class KafkaStart(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    KAFKA_START_UNSPECIFIED: _ClassVar[KafkaStart]
    KAFKA_EARLIEST: _ClassVar[KafkaStart]
    KAFKA_LATEST: _ClassVar[KafkaStart]

class KafkaWriteMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    KAFKA_WRITE_MODE_UNSPECIFIED: _ClassVar[KafkaWriteMode]
    KAFKA_EXACTLY_ONCE: _ClassVar[KafkaWriteMode]
    KAFKA_AT_LEAST_ONCE: _ClassVar[KafkaWriteMode]

class CheckpointMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CHECKPOINT_MODE_UNSPECIFIED: _ClassVar[CheckpointMode]
    EXACTLY_ONCE: _ClassVar[CheckpointMode]
    AT_LEAST_ONCE: _ClassVar[CheckpointMode]
    UNALIGNED: _ClassVar[CheckpointMode]
    STOP_THE_WORLD: _ClassVar[CheckpointMode]
    AT_MOST_ONCE: _ClassVar[CheckpointMode]
LEADER_FAILOVER_UNSPECIFIED: LeaderFailover
LEADER_FAILOVER_RESTART: LeaderFailover
LEADER_FAILOVER_REATTACH: LeaderFailover
TASK_MANAGER_FAILOVER_UNSPECIFIED: TaskManagerFailover
TASK_MANAGER_FAILOVER_WHOLE: TaskManagerFailover
TASK_MANAGER_FAILOVER_PART: TaskManagerFailover
PARTITIONING_UNSPECIFIED: Partitioning
FORWARD: Partitioning
HASH: Partitioning
REBALANCE: Partitioning
BROADCAST: Partitioning
FEEDBACK: Partitioning
JOIN_SIDE_UNSPECIFIED: JoinSide
LEFT: JoinSide
RIGHT: JoinSide
ON_ERROR_UNSPECIFIED: OnError
FAIL: OnError
SKIP: OnError
DEAD_LETTER: OnError
FILE_FORMAT_UNSPECIFIED: FileFormat
TEXT: FileFormat
CSV: FileFormat
JSON_LINES: FileFormat
PARQUET: FileFormat
RECORD_CALL_UNSPECIFIED: RecordCall
MAP: RecordCall
FLAT_MAP: RecordCall
FILTER: RecordCall
RECORD_FORM_UNSPECIFIED: RecordForm
RECORDS: RecordForm
ARROW: RecordForm
PANDAS: RecordForm
OBJECT_STATE_UNSPECIFIED: ObjectState
OBJECT_STATE_FIXED: ObjectState
OBJECT_STATE_SPLIT: ObjectState
OBJECT_STATE_UNION: ObjectState
OBJECT_STATE_BROADCAST: ObjectState
AGGREGATE_FUNCTION_UNSPECIFIED: AggregateFunction
COUNT: AggregateFunction
SUM: AggregateFunction
MIN: AggregateFunction
MAX: AggregateFunction
AVG: AggregateFunction
STATE_SHAPE_UNSPECIFIED: StateShape
VALUE_STATE: StateShape
LIST_STATE: StateShape
MAP_STATE: StateShape
SQL_WRITE_MODE_UNSPECIFIED: SqlWriteMode
UPSERT: SqlWriteMode
APPEND: SqlWriteMode
KAFKA_START_UNSPECIFIED: KafkaStart
KAFKA_EARLIEST: KafkaStart
KAFKA_LATEST: KafkaStart
KAFKA_WRITE_MODE_UNSPECIFIED: KafkaWriteMode
KAFKA_EXACTLY_ONCE: KafkaWriteMode
KAFKA_AT_LEAST_ONCE: KafkaWriteMode
CHECKPOINT_MODE_UNSPECIFIED: CheckpointMode
EXACTLY_ONCE: CheckpointMode
AT_LEAST_ONCE: CheckpointMode
UNALIGNED: CheckpointMode
STOP_THE_WORLD: CheckpointMode
AT_MOST_ONCE: CheckpointMode

class JobGraph(_message.Message):
    __slots__ = ("name", "vertices", "edges", "checkpoints", "restart", "state_backend", "straggler_replacement", "confined", "leader_failover", "standby_replicas", "task_manager_failover")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERTICES_FIELD_NUMBER: _ClassVar[int]
    EDGES_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINTS_FIELD_NUMBER: _ClassVar[int]
    RESTART_FIELD_NUMBER: _ClassVar[int]
    STATE_BACKEND_FIELD_NUMBER: _ClassVar[int]
    STRAGGLER_REPLACEMENT_FIELD_NUMBER: _ClassVar[int]
    CONFINED_FIELD_NUMBER: _ClassVar[int]
    LEADER_FAILOVER_FIELD_NUMBER: _ClassVar[int]
    STANDBY_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    TASK_MANAGER_FAILOVER_FIELD_NUMBER: _ClassVar[int]
    name: str
    vertices: _containers.RepeatedCompositeFieldContainer[Vertex]
    edges: _containers.RepeatedCompositeFieldContainer[Edge]
    checkpoints: CheckpointOptions
    restart: RestartStrategy
    state_backend: StateBackend
    straggler_replacement: StragglerReplacement
    confined: bool
    leader_failover: LeaderFailover
    standby_replicas: int
    task_manager_failover: TaskManagerFailover
    def __init__(self, name: _Optional[str] = ..., vertices: _Optional[_Iterable[_Union[Vertex, _Mapping]]] = ..., edges: _Optional[_Iterable[_Union[Edge, _Mapping]]] = ..., checkpoints: _Optional[_Union[CheckpointOptions, _Mapping]] = ..., restart: _Optional[_Union[RestartStrategy, _Mapping]] = ..., state_backend: _Optional[_Union[StateBackend, _Mapping]] = ..., straggler_replacement: _Optional[_Union[StragglerReplacement, _Mapping]] = ..., confined: _Optional[bool] = ..., leader_failover: _Optional[_Union[LeaderFailover, str]] = ..., standby_replicas: _Optional[int] = ..., task_manager_failover: _Optional[_Union[TaskManagerFailover, str]] = ...) -> None: ...

class Vertex(_message.Message):
    __slots__ = ("id", "name", "parallelism", "max_parallelism", "operators")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARALLELISM_FIELD_NUMBER: _ClassVar[int]
    MAX_PARALLELISM_FIELD_NUMBER: _ClassVar[int]
    OPERATORS_FIELD_NUMBER: _ClassVar[int]
    id: str
    name: str
    parallelism: int
    max_parallelism: int
    operators: _containers.RepeatedCompositeFieldContainer[Operator]
    def __init__(self, id: _Optional[str] = ..., name: _Optional[str] = ..., parallelism: _Optional[int] = ..., max_parallelism: _Optional[int] = ..., operators: _Optional[_Iterable[_Union[Operator, _Mapping]]] = ...) -> None: ...

class Edge(_message.Message):
    __slots__ = ("source", "target", "partitioning", "keys", "side_output", "join_side", "feedback")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    PARTITIONING_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    SIDE_OUTPUT_FIELD_NUMBER: _ClassVar[int]
    JOIN_SIDE_FIELD_NUMBER: _ClassVar[int]
    FEEDBACK_FIELD_NUMBER: _ClassVar[int]
    source: str
    target: str
    partitioning: Partitioning
    keys: _containers.RepeatedScalarFieldContainer[str]
    side_output: str
    join_side: JoinSide
    feedback: Partitioning
    def __init__(self, source: _Optional[str] = ..., target: _Optional[str] = ..., partitioning: _Optional[_Union[Partitioning, str]] = ..., keys: _Optional[_Iterable[str]] = ..., side_output: _Optional[str] = ..., join_side: _Optional[_Union[JoinSide, str]] = ..., feedback: _Optional[_Union[Partitioning, str]] = ...) -> None: ...

class Operator(_message.Message):
    __slots__ = ("id", "name", "file_source", "generator_source", "sql", "python", "event_time", "record_function", "keyed_aggregate", "keyed_process", "deduplicate", "interval_join", "window_process", "count_window", "file_sink", "sql_sink", "console_sink", "foreach_batch_sink", "python_source", "python_sink", "socket_source", "kafka_source", "kafka_sink", "delta_sink", "on_error", "dead_letters")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    FILE_SOURCE_FIELD_NUMBER: _ClassVar[int]
    GENERATOR_SOURCE_FIELD_NUMBER: _ClassVar[int]
    SQL_FIELD_NUMBER: _ClassVar[int]
    PYTHON_FIELD_NUMBER: _ClassVar[int]
    EVENT_TIME_FIELD_NUMBER: _ClassVar[int]
    RECORD_FUNCTION_FIELD_NUMBER: _ClassVar[int]
    KEYED_AGGREGATE_FIELD_NUMBER: _ClassVar[int]
    KEYED_PROCESS_FIELD_NUMBER: _ClassVar[int]
    DEDUPLICATE_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_JOIN_FIELD_NUMBER: _ClassVar[int]
    WINDOW_PROCESS_FIELD_NUMBER: _ClassVar[int]
    COUNT_WINDOW_FIELD_NUMBER: _ClassVar[int]
    FILE_SINK_FIELD_NUMBER: _ClassVar[int]
    SQL_SINK_FIELD_NUMBER: _ClassVar[int]
    CONSOLE_SINK_FIELD_NUMBER: _ClassVar[int]
    FOREACH_BATCH_SINK_FIELD_NUMBER: _ClassVar[int]
    PYTHON_SOURCE_FIELD_NUMBER: _ClassVar[int]
    PYTHON_SINK_FIELD_NUMBER: _ClassVar[int]
    SOCKET_SOURCE_FIELD_NUMBER: _ClassVar[int]
    KAFKA_SOURCE_FIELD_NUMBER: _ClassVar[int]
    KAFKA_SINK_FIELD_NUMBER: _ClassVar[int]
    DELTA_SINK_FIELD_NUMBER: _ClassVar[int]
    ON_ERROR_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTERS_FIELD_NUMBER: _ClassVar[int]
    id: str
    name: str
    file_source: FileSource
    generator_source: GeneratorSource
    sql: SqlTransform
    python: PythonTransform
    event_time: EventTime
    record_function: RecordFunction
    keyed_aggregate: KeyedAggregate
    keyed_process: KeyedProcess
    deduplicate: Deduplicate
    interval_join: IntervalJoin
    window_process: WindowProcess
    count_window: CountWindow
    file_sink: FileSink
    sql_sink: SqlSink
    console_sink: ConsoleSink
    foreach_batch_sink: ForeachBatchSink
    python_source: PythonSource
    python_sink: PythonSink
    socket_source: SocketSource
    kafka_source: KafkaSource
    kafka_sink: KafkaSink
    delta_sink: DeltaSink
    on_error: OnError
    dead_letters: str
    def __init__(self, id: _Optional[str] = ..., name: _Optional[str] = ..., file_source: _Optional[_Union[FileSource, _Mapping]] = ..., generator_source: _Optional[_Union[GeneratorSource, _Mapping]] = ..., sql: _Optional[_Union[SqlTransform, _Mapping]] = ..., python: _Optional[_Union[PythonTransform, _Mapping]] = ..., event_time: _Optional[_Union[EventTime, _Mapping]] = ..., record_function: _Optional[_Union[RecordFunction, _Mapping]] = ..., keyed_aggregate: _Optional[_Union[KeyedAggregate, _Mapping]] = ..., keyed_process: _Optional[_Union[KeyedProcess, _Mapping]] = ..., deduplicate: _Optional[_Union[Deduplicate, _Mapping]] = ..., interval_join: _Optional[_Union[IntervalJoin, _Mapping]] = ..., window_process: _Optional[_Union[WindowProcess, _Mapping]] = ..., count_window: _Optional[_Union[CountWindow, _Mapping]] = ..., file_sink: _Optional[_Union[FileSink, _Mapping]] = ..., sql_sink: _Optional[_Union[SqlSink, _Mapping]] = ..., console_sink: _Optional[_Union[ConsoleSink, _Mapping]] = ..., foreach_batch_sink: _Optional[_Union[ForeachBatchSink, _Mapping]] = ..., python_source: _Optional[_Union[PythonSource, _Mapping]] = ..., python_sink: _Optional[_Union[PythonSink, _Mapping]] = ..., socket_source: _Optional[_Union[SocketSource, _Mapping]] = ..., kafka_source: _Optional[_Union[KafkaSource, _Mapping]] = ..., kafka_sink: _Optional[_Union[KafkaSink, _Mapping]] = ..., delta_sink: _Optional[_Union[DeltaSink, _Mapping]] = ..., on_error: _Optional[_Union[OnError, str]] = ..., dead_letters: _Optional[str] = ...) -> None: ...

class FileSource(_message.Message):
    __slots__ = ("path", "format", "schema", "options", "continuous", "poll_interval_ms", "include")
    class OptionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    PATH_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    CONTINUOUS_FIELD_NUMBER: _ClassVar[int]
    POLL_INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_FIELD_NUMBER: _ClassVar[int]
    path: str
    format: FileFormat
    schema: str
    options: _containers.ScalarMap[str, str]
    continuous: bool
    poll_interval_ms: int
    include: str
    def __init__(self, path: _Optional[str] = ..., format: _Optional[_Union[FileFormat, str]] = ..., schema: _Optional[str] = ..., options: _Optional[_Mapping[str, str]] = ..., continuous: _Optional[bool] = ..., poll_interval_ms: _Optional[int] = ..., include: _Optional[str] = ...) -> None: ...

class GeneratorSource(_message.Message):
    __slots__ = ("partitions", "rows_per_partition", "rows_per_second")
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    ROWS_PER_PARTITION_FIELD_NUMBER: _ClassVar[int]
    ROWS_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    partitions: int
    rows_per_partition: int
    rows_per_second: float
    def __init__(self, partitions: _Optional[int] = ..., rows_per_partition: _Optional[int] = ..., rows_per_second: _Optional[float] = ...) -> None: ...

class SqlTransform(_message.Message):
    __slots__ = ("query",)
    QUERY_FIELD_NUMBER: _ClassVar[int]
    query: str
    def __init__(self, query: _Optional[str] = ...) -> None: ...

class PythonTransform(_message.Message):
    __slots__ = ("function", "description")
    FUNCTION_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    function: bytes
    description: str
    def __init__(self, function: _Optional[bytes] = ..., description: _Optional[str] = ...) -> None: ...

class RecordFunction(_message.Message):
    __slots__ = ("function", "description", "call", "form", "schema", "state")
    FUNCTION_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    CALL_FIELD_NUMBER: _ClassVar[int]
    FORM_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    function: bytes
    description: str
    call: RecordCall
    form: RecordForm
    schema: str
    state: ObjectState
    def __init__(self, function: _Optional[bytes] = ..., description: _Optional[str] = ..., call: _Optional[_Union[RecordCall, str]] = ..., form: _Optional[_Union[RecordForm, str]] = ..., schema: _Optional[str] = ..., state: _Optional[_Union[ObjectState, str]] = ...) -> None: ...

class EventTime(_message.Message):
    __slots__ = ("expression", "column", "out_of_orderness_ms", "idle_after_ms", "max_ahead_ms")
    EXPRESSION_FIELD_NUMBER: _ClassVar[int]
    COLUMN_FIELD_NUMBER: _ClassVar[int]
    OUT_OF_ORDERNESS_MS_FIELD_NUMBER: _ClassVar[int]
    IDLE_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_AHEAD_MS_FIELD_NUMBER: _ClassVar[int]
    expression: str
    column: str
    out_of_orderness_ms: int
    idle_after_ms: int
    max_ahead_ms: int
    def __init__(self, expression: _Optional[str] = ..., column: _Optional[str] = ..., out_of_orderness_ms: _Optional[int] = ..., idle_after_ms: _Optional[int] = ..., max_ahead_ms: _Optional[int] = ...) -> None: ...

class Aggregate(_message.Message):
    __slots__ = ("output", "function", "input")
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    FUNCTION_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    output: str
    function: AggregateFunction
    input: str
    def __init__(self, output: _Optional[str] = ..., function: _Optional[_Union[AggregateFunction, str]] = ..., input: _Optional[str] = ...) -> None: ...

class KeyedAggregate(_message.Message):
    __slots__ = ("keys", "aggregates", "window")
    KEYS_FIELD_NUMBER: _ClassVar[int]
    AGGREGATES_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    keys: _containers.RepeatedScalarFieldContainer[str]
    aggregates: _containers.RepeatedCompositeFieldContainer[Aggregate]
    window: Window
    def __init__(self, keys: _Optional[_Iterable[str]] = ..., aggregates: _Optional[_Iterable[_Union[Aggregate, _Mapping]]] = ..., window: _Optional[_Union[Window, _Mapping]] = ...) -> None: ...

class TumblingWindow(_message.Message):
    __slots__ = ("size_ms", "offset_ms")
    SIZE_MS_FIELD_NUMBER: _ClassVar[int]
    OFFSET_MS_FIELD_NUMBER: _ClassVar[int]
    size_ms: int
    offset_ms: int
    def __init__(self, size_ms: _Optional[int] = ..., offset_ms: _Optional[int] = ...) -> None: ...

class SlidingWindow(_message.Message):
    __slots__ = ("size_ms", "slide_ms", "offset_ms")
    SIZE_MS_FIELD_NUMBER: _ClassVar[int]
    SLIDE_MS_FIELD_NUMBER: _ClassVar[int]
    OFFSET_MS_FIELD_NUMBER: _ClassVar[int]
    size_ms: int
    slide_ms: int
    offset_ms: int
    def __init__(self, size_ms: _Optional[int] = ..., slide_ms: _Optional[int] = ..., offset_ms: _Optional[int] = ...) -> None: ...

class CumulatingWindow(_message.Message):
    __slots__ = ("size_ms", "step_ms", "offset_ms")
    SIZE_MS_FIELD_NUMBER: _ClassVar[int]
    STEP_MS_FIELD_NUMBER: _ClassVar[int]
    OFFSET_MS_FIELD_NUMBER: _ClassVar[int]
    size_ms: int
    step_ms: int
    offset_ms: int
    def __init__(self, size_ms: _Optional[int] = ..., step_ms: _Optional[int] = ..., offset_ms: _Optional[int] = ...) -> None: ...

class SessionWindow(_message.Message):
    __slots__ = ("gap_ms",)
    GAP_MS_FIELD_NUMBER: _ClassVar[int]
    gap_ms: int
    def __init__(self, gap_ms: _Optional[int] = ...) -> None: ...

class TriggeredWindow(_message.Message):
    __slots__ = ("size_ms", "offset_ms", "every_count", "every_ms", "purge")
    SIZE_MS_FIELD_NUMBER: _ClassVar[int]
    OFFSET_MS_FIELD_NUMBER: _ClassVar[int]
    EVERY_COUNT_FIELD_NUMBER: _ClassVar[int]
    EVERY_MS_FIELD_NUMBER: _ClassVar[int]
    PURGE_FIELD_NUMBER: _ClassVar[int]
    size_ms: int
    offset_ms: int
    every_count: int
    every_ms: int
    purge: bool
    def __init__(self, size_ms: _Optional[int] = ..., offset_ms: _Optional[int] = ..., every_count: _Optional[int] = ..., every_ms: _Optional[int] = ..., purge: _Optional[bool] = ...) -> None: ...

class EarlyFiringWindow(_message.Message):
    __slots__ = ("size_ms", "slide_ms", "offset_ms", "is_cumulating", "every_count", "every_ms", "purge")
    SIZE_MS_FIELD_NUMBER: _ClassVar[int]
    SLIDE_MS_FIELD_NUMBER: _ClassVar[int]
    OFFSET_MS_FIELD_NUMBER: _ClassVar[int]
    IS_CUMULATING_FIELD_NUMBER: _ClassVar[int]
    EVERY_COUNT_FIELD_NUMBER: _ClassVar[int]
    EVERY_MS_FIELD_NUMBER: _ClassVar[int]
    PURGE_FIELD_NUMBER: _ClassVar[int]
    size_ms: int
    slide_ms: int
    offset_ms: int
    is_cumulating: bool
    every_count: int
    every_ms: int
    purge: bool
    def __init__(self, size_ms: _Optional[int] = ..., slide_ms: _Optional[int] = ..., offset_ms: _Optional[int] = ..., is_cumulating: _Optional[bool] = ..., every_count: _Optional[int] = ..., every_ms: _Optional[int] = ..., purge: _Optional[bool] = ...) -> None: ...

class Window(_message.Message):
    __slots__ = ("tumbling", "sliding", "session", "cumulating", "triggered", "early_firing", "event_time", "allowed_lateness_ms", "processing_time")
    TUMBLING_FIELD_NUMBER: _ClassVar[int]
    SLIDING_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    CUMULATING_FIELD_NUMBER: _ClassVar[int]
    TRIGGERED_FIELD_NUMBER: _ClassVar[int]
    EARLY_FIRING_FIELD_NUMBER: _ClassVar[int]
    EVENT_TIME_FIELD_NUMBER: _ClassVar[int]
    ALLOWED_LATENESS_MS_FIELD_NUMBER: _ClassVar[int]
    PROCESSING_TIME_FIELD_NUMBER: _ClassVar[int]
    tumbling: TumblingWindow
    sliding: SlidingWindow
    session: SessionWindow
    cumulating: CumulatingWindow
    triggered: TriggeredWindow
    early_firing: EarlyFiringWindow
    event_time: str
    allowed_lateness_ms: int
    processing_time: bool
    def __init__(self, tumbling: _Optional[_Union[TumblingWindow, _Mapping]] = ..., sliding: _Optional[_Union[SlidingWindow, _Mapping]] = ..., session: _Optional[_Union[SessionWindow, _Mapping]] = ..., cumulating: _Optional[_Union[CumulatingWindow, _Mapping]] = ..., triggered: _Optional[_Union[TriggeredWindow, _Mapping]] = ..., early_firing: _Optional[_Union[EarlyFiringWindow, _Mapping]] = ..., event_time: _Optional[str] = ..., allowed_lateness_ms: _Optional[int] = ..., processing_time: _Optional[bool] = ...) -> None: ...

class IntervalJoin(_message.Message):
    __slots__ = ("left_keys", "right_keys", "left_time", "right_time", "lower_ms", "upper_ms", "left_prefix", "right_prefix")
    LEFT_KEYS_FIELD_NUMBER: _ClassVar[int]
    RIGHT_KEYS_FIELD_NUMBER: _ClassVar[int]
    LEFT_TIME_FIELD_NUMBER: _ClassVar[int]
    RIGHT_TIME_FIELD_NUMBER: _ClassVar[int]
    LOWER_MS_FIELD_NUMBER: _ClassVar[int]
    UPPER_MS_FIELD_NUMBER: _ClassVar[int]
    LEFT_PREFIX_FIELD_NUMBER: _ClassVar[int]
    RIGHT_PREFIX_FIELD_NUMBER: _ClassVar[int]
    left_keys: _containers.RepeatedScalarFieldContainer[str]
    right_keys: _containers.RepeatedScalarFieldContainer[str]
    left_time: str
    right_time: str
    lower_ms: int
    upper_ms: int
    left_prefix: str
    right_prefix: str
    def __init__(self, left_keys: _Optional[_Iterable[str]] = ..., right_keys: _Optional[_Iterable[str]] = ..., left_time: _Optional[str] = ..., right_time: _Optional[str] = ..., lower_ms: _Optional[int] = ..., upper_ms: _Optional[int] = ..., left_prefix: _Optional[str] = ..., right_prefix: _Optional[str] = ...) -> None: ...

class DeclaredState(_message.Message):
    __slots__ = ("name", "shape", "type", "key_type", "ttl_ms")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    KEY_TYPE_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    name: str
    shape: StateShape
    type: str
    key_type: str
    ttl_ms: int
    def __init__(self, name: _Optional[str] = ..., shape: _Optional[_Union[StateShape, str]] = ..., type: _Optional[str] = ..., key_type: _Optional[str] = ..., ttl_ms: _Optional[int] = ...) -> None: ...

class KeyedProcess(_message.Message):
    __slots__ = ("keys", "function", "description", "schema", "states", "without_timers")
    KEYS_FIELD_NUMBER: _ClassVar[int]
    FUNCTION_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    STATES_FIELD_NUMBER: _ClassVar[int]
    WITHOUT_TIMERS_FIELD_NUMBER: _ClassVar[int]
    keys: _containers.RepeatedScalarFieldContainer[str]
    function: bytes
    description: str
    schema: str
    states: _containers.RepeatedCompositeFieldContainer[DeclaredState]
    without_timers: bool
    def __init__(self, keys: _Optional[_Iterable[str]] = ..., function: _Optional[bytes] = ..., description: _Optional[str] = ..., schema: _Optional[str] = ..., states: _Optional[_Iterable[_Union[DeclaredState, _Mapping]]] = ..., without_timers: _Optional[bool] = ...) -> None: ...

class WindowProcess(_message.Message):
    __slots__ = ("keys", "window", "function", "description", "schema")
    KEYS_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    FUNCTION_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    keys: _containers.RepeatedScalarFieldContainer[str]
    window: Window
    function: bytes
    description: str
    schema: str
    def __init__(self, keys: _Optional[_Iterable[str]] = ..., window: _Optional[_Union[Window, _Mapping]] = ..., function: _Optional[bytes] = ..., description: _Optional[str] = ..., schema: _Optional[str] = ...) -> None: ...

class CountWindow(_message.Message):
    __slots__ = ("keys", "size", "every", "aggregates", "function", "description", "schema")
    KEYS_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    EVERY_FIELD_NUMBER: _ClassVar[int]
    AGGREGATES_FIELD_NUMBER: _ClassVar[int]
    FUNCTION_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    keys: _containers.RepeatedScalarFieldContainer[str]
    size: int
    every: int
    aggregates: _containers.RepeatedCompositeFieldContainer[Aggregate]
    function: bytes
    description: str
    schema: str
    def __init__(self, keys: _Optional[_Iterable[str]] = ..., size: _Optional[int] = ..., every: _Optional[int] = ..., aggregates: _Optional[_Iterable[_Union[Aggregate, _Mapping]]] = ..., function: _Optional[bytes] = ..., description: _Optional[str] = ..., schema: _Optional[str] = ...) -> None: ...

class Deduplicate(_message.Message):
    __slots__ = ("keys", "ttl_ms")
    KEYS_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    keys: _containers.RepeatedScalarFieldContainer[str]
    ttl_ms: int
    def __init__(self, keys: _Optional[_Iterable[str]] = ..., ttl_ms: _Optional[int] = ...) -> None: ...

class FileSink(_message.Message):
    __slots__ = ("path", "format", "shared")
    PATH_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    SHARED_FIELD_NUMBER: _ClassVar[int]
    path: str
    format: FileFormat
    shared: bool
    def __init__(self, path: _Optional[str] = ..., format: _Optional[_Union[FileFormat, str]] = ..., shared: _Optional[bool] = ...) -> None: ...

class SqlSink(_message.Message):
    __slots__ = ("url", "table", "keys", "mode", "shared")
    URL_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    SHARED_FIELD_NUMBER: _ClassVar[int]
    url: str
    table: str
    keys: _containers.RepeatedScalarFieldContainer[str]
    mode: SqlWriteMode
    shared: bool
    def __init__(self, url: _Optional[str] = ..., table: _Optional[str] = ..., keys: _Optional[_Iterable[str]] = ..., mode: _Optional[_Union[SqlWriteMode, str]] = ..., shared: _Optional[bool] = ...) -> None: ...

class ConsoleSink(_message.Message):
    __slots__ = ("rows",)
    ROWS_FIELD_NUMBER: _ClassVar[int]
    rows: int
    def __init__(self, rows: _Optional[int] = ...) -> None: ...

class ForeachBatchSink(_message.Message):
    __slots__ = ("function", "description")
    FUNCTION_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    function: bytes
    description: str
    def __init__(self, function: _Optional[bytes] = ..., description: _Optional[str] = ...) -> None: ...

class SocketSource(_message.Message):
    __slots__ = ("host", "port")
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    host: str
    port: int
    def __init__(self, host: _Optional[str] = ..., port: _Optional[int] = ...) -> None: ...

class PythonSource(_message.Message):
    __slots__ = ("source", "description", "schema", "continuous", "poll_interval_ms")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    CONTINUOUS_FIELD_NUMBER: _ClassVar[int]
    POLL_INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    source: bytes
    description: str
    schema: str
    continuous: bool
    poll_interval_ms: int
    def __init__(self, source: _Optional[bytes] = ..., description: _Optional[str] = ..., schema: _Optional[str] = ..., continuous: _Optional[bool] = ..., poll_interval_ms: _Optional[int] = ...) -> None: ...

class PythonSink(_message.Message):
    __slots__ = ("sink", "description")
    SINK_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    sink: bytes
    description: str
    def __init__(self, sink: _Optional[bytes] = ..., description: _Optional[str] = ...) -> None: ...

class KafkaSource(_message.Message):
    __slots__ = ("servers", "topics", "starting", "bounded", "poll_interval_ms", "options")
    class OptionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    SERVERS_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    STARTING_FIELD_NUMBER: _ClassVar[int]
    BOUNDED_FIELD_NUMBER: _ClassVar[int]
    POLL_INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    servers: str
    topics: _containers.RepeatedScalarFieldContainer[str]
    starting: KafkaStart
    bounded: bool
    poll_interval_ms: int
    options: _containers.ScalarMap[str, str]
    def __init__(self, servers: _Optional[str] = ..., topics: _Optional[_Iterable[str]] = ..., starting: _Optional[_Union[KafkaStart, str]] = ..., bounded: _Optional[bool] = ..., poll_interval_ms: _Optional[int] = ..., options: _Optional[_Mapping[str, str]] = ...) -> None: ...

class KafkaSink(_message.Message):
    __slots__ = ("servers", "topic", "key", "value", "mode", "commits_topic", "options")
    class OptionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    SERVERS_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    COMMITS_TOPIC_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    servers: str
    topic: str
    key: str
    value: str
    mode: KafkaWriteMode
    commits_topic: str
    options: _containers.ScalarMap[str, str]
    def __init__(self, servers: _Optional[str] = ..., topic: _Optional[str] = ..., key: _Optional[str] = ..., value: _Optional[str] = ..., mode: _Optional[_Union[KafkaWriteMode, str]] = ..., commits_topic: _Optional[str] = ..., options: _Optional[_Mapping[str, str]] = ...) -> None: ...

class DeltaSink(_message.Message):
    __slots__ = ("uri", "options", "shared")
    class OptionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    URI_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    SHARED_FIELD_NUMBER: _ClassVar[int]
    uri: str
    options: _containers.ScalarMap[str, str]
    shared: bool
    def __init__(self, uri: _Optional[str] = ..., options: _Optional[_Mapping[str, str]] = ..., shared: _Optional[bool] = ...) -> None: ...

class CheckpointOptions(_message.Message):
    __slots__ = ("interval_ms", "timeout_ms", "min_pause_ms", "tolerable_failures", "retained", "retain_after_end", "mode", "aligned_timeout_ms", "max_concurrent")
    INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    MIN_PAUSE_MS_FIELD_NUMBER: _ClassVar[int]
    TOLERABLE_FAILURES_FIELD_NUMBER: _ClassVar[int]
    RETAINED_FIELD_NUMBER: _ClassVar[int]
    RETAIN_AFTER_END_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    ALIGNED_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_CONCURRENT_FIELD_NUMBER: _ClassVar[int]
    interval_ms: int
    timeout_ms: int
    min_pause_ms: int
    tolerable_failures: int
    retained: int
    retain_after_end: bool
    mode: CheckpointMode
    aligned_timeout_ms: int
    max_concurrent: int
    def __init__(self, interval_ms: _Optional[int] = ..., timeout_ms: _Optional[int] = ..., min_pause_ms: _Optional[int] = ..., tolerable_failures: _Optional[int] = ..., retained: _Optional[int] = ..., retain_after_end: _Optional[bool] = ..., mode: _Optional[_Union[CheckpointMode, str]] = ..., aligned_timeout_ms: _Optional[int] = ..., max_concurrent: _Optional[int] = ...) -> None: ...

class FixedDelayRestart(_message.Message):
    __slots__ = ("attempts", "delay_ms")
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    attempts: int
    delay_ms: int
    def __init__(self, attempts: _Optional[int] = ..., delay_ms: _Optional[int] = ...) -> None: ...

class ExponentialRestart(_message.Message):
    __slots__ = ("initial_ms", "max_ms", "multiplier", "jitter", "reset_after_ms")
    INITIAL_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_MS_FIELD_NUMBER: _ClassVar[int]
    MULTIPLIER_FIELD_NUMBER: _ClassVar[int]
    JITTER_FIELD_NUMBER: _ClassVar[int]
    RESET_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    initial_ms: int
    max_ms: int
    multiplier: float
    jitter: float
    reset_after_ms: int
    def __init__(self, initial_ms: _Optional[int] = ..., max_ms: _Optional[int] = ..., multiplier: _Optional[float] = ..., jitter: _Optional[float] = ..., reset_after_ms: _Optional[int] = ...) -> None: ...

class FailureRateRestart(_message.Message):
    __slots__ = ("failures", "interval_ms", "delay_ms")
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    failures: int
    interval_ms: int
    delay_ms: int
    def __init__(self, failures: _Optional[int] = ..., interval_ms: _Optional[int] = ..., delay_ms: _Optional[int] = ...) -> None: ...

class NoRestart(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RestartStrategy(_message.Message):
    __slots__ = ("exponential", "fixed_delay", "failure_rate", "none")
    EXPONENTIAL_FIELD_NUMBER: _ClassVar[int]
    FIXED_DELAY_FIELD_NUMBER: _ClassVar[int]
    FAILURE_RATE_FIELD_NUMBER: _ClassVar[int]
    NONE_FIELD_NUMBER: _ClassVar[int]
    exponential: ExponentialRestart
    fixed_delay: FixedDelayRestart
    failure_rate: FailureRateRestart
    none: NoRestart
    def __init__(self, exponential: _Optional[_Union[ExponentialRestart, _Mapping]] = ..., fixed_delay: _Optional[_Union[FixedDelayRestart, _Mapping]] = ..., failure_rate: _Optional[_Union[FailureRateRestart, _Mapping]] = ..., none: _Optional[_Union[NoRestart, _Mapping]] = ...) -> None: ...

class MemoryBackend(_message.Message):
    __slots__ = ("max_state_bytes",)
    MAX_STATE_BYTES_FIELD_NUMBER: _ClassVar[int]
    max_state_bytes: int
    def __init__(self, max_state_bytes: _Optional[int] = ...) -> None: ...

class FilesystemBackend(_message.Message):
    __slots__ = ("uri",)
    URI_FIELD_NUMBER: _ClassVar[int]
    uri: str
    def __init__(self, uri: _Optional[str] = ...) -> None: ...

class RocksdbBackend(_message.Message):
    __slots__ = ("uri", "memory_bytes")
    URI_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    uri: str
    memory_bytes: int
    def __init__(self, uri: _Optional[str] = ..., memory_bytes: _Optional[int] = ...) -> None: ...

class StateBackend(_message.Message):
    __slots__ = ("filesystem", "memory", "rocksdb", "full_every", "binary_diff")
    FILESYSTEM_FIELD_NUMBER: _ClassVar[int]
    MEMORY_FIELD_NUMBER: _ClassVar[int]
    ROCKSDB_FIELD_NUMBER: _ClassVar[int]
    FULL_EVERY_FIELD_NUMBER: _ClassVar[int]
    BINARY_DIFF_FIELD_NUMBER: _ClassVar[int]
    filesystem: FilesystemBackend
    memory: MemoryBackend
    rocksdb: RocksdbBackend
    full_every: int
    binary_diff: bool
    def __init__(self, filesystem: _Optional[_Union[FilesystemBackend, _Mapping]] = ..., memory: _Optional[_Union[MemoryBackend, _Mapping]] = ..., rocksdb: _Optional[_Union[RocksdbBackend, _Mapping]] = ..., full_every: _Optional[int] = ..., binary_diff: _Optional[bool] = ...) -> None: ...

class StragglerReplacement(_message.Message):
    __slots__ = ("factor", "window_ms", "pause_ms")
    FACTOR_FIELD_NUMBER: _ClassVar[int]
    WINDOW_MS_FIELD_NUMBER: _ClassVar[int]
    PAUSE_MS_FIELD_NUMBER: _ClassVar[int]
    factor: float
    window_ms: int
    pause_ms: int
    def __init__(self, factor: _Optional[float] = ..., window_ms: _Optional[int] = ..., pause_ms: _Optional[int] = ...) -> None: ...
