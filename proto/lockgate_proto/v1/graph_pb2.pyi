from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Partitioning(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PARTITIONING_UNSPECIFIED: _ClassVar[Partitioning]
    FORWARD: _ClassVar[Partitioning]
    HASH: _ClassVar[Partitioning]
    REBALANCE: _ClassVar[Partitioning]
    BROADCAST: _ClassVar[Partitioning]

class FileFormat(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FILE_FORMAT_UNSPECIFIED: _ClassVar[FileFormat]
    TEXT: _ClassVar[FileFormat]
    CSV: _ClassVar[FileFormat]
    JSON_LINES: _ClassVar[FileFormat]
    PARQUET: _ClassVar[FileFormat]

class AggregateFunction(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    AGGREGATE_FUNCTION_UNSPECIFIED: _ClassVar[AggregateFunction]
    COUNT: _ClassVar[AggregateFunction]
    SUM: _ClassVar[AggregateFunction]
    MIN: _ClassVar[AggregateFunction]
    MAX: _ClassVar[AggregateFunction]
    AVG: _ClassVar[AggregateFunction]
PARTITIONING_UNSPECIFIED: Partitioning
FORWARD: Partitioning
HASH: Partitioning
REBALANCE: Partitioning
BROADCAST: Partitioning
FILE_FORMAT_UNSPECIFIED: FileFormat
TEXT: FileFormat
CSV: FileFormat
JSON_LINES: FileFormat
PARQUET: FileFormat
AGGREGATE_FUNCTION_UNSPECIFIED: AggregateFunction
COUNT: AggregateFunction
SUM: AggregateFunction
MIN: AggregateFunction
MAX: AggregateFunction
AVG: AggregateFunction

class JobGraph(_message.Message):
    __slots__ = ("name", "vertices", "edges", "checkpoints", "restart", "state_backend")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERTICES_FIELD_NUMBER: _ClassVar[int]
    EDGES_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINTS_FIELD_NUMBER: _ClassVar[int]
    RESTART_FIELD_NUMBER: _ClassVar[int]
    STATE_BACKEND_FIELD_NUMBER: _ClassVar[int]
    name: str
    vertices: _containers.RepeatedCompositeFieldContainer[Vertex]
    edges: _containers.RepeatedCompositeFieldContainer[Edge]
    checkpoints: CheckpointOptions
    restart: RestartStrategy
    state_backend: StateBackend
    def __init__(self, name: _Optional[str] = ..., vertices: _Optional[_Iterable[_Union[Vertex, _Mapping]]] = ..., edges: _Optional[_Iterable[_Union[Edge, _Mapping]]] = ..., checkpoints: _Optional[_Union[CheckpointOptions, _Mapping]] = ..., restart: _Optional[_Union[RestartStrategy, _Mapping]] = ..., state_backend: _Optional[_Union[StateBackend, _Mapping]] = ...) -> None: ...

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
    __slots__ = ("source", "target", "partitioning", "keys")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    PARTITIONING_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    source: str
    target: str
    partitioning: Partitioning
    keys: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, source: _Optional[str] = ..., target: _Optional[str] = ..., partitioning: _Optional[_Union[Partitioning, str]] = ..., keys: _Optional[_Iterable[str]] = ...) -> None: ...

class Operator(_message.Message):
    __slots__ = ("id", "name", "file_source", "generator_source", "sql", "python", "keyed_aggregate", "file_sink", "sql_sink", "console_sink", "foreach_batch_sink")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    FILE_SOURCE_FIELD_NUMBER: _ClassVar[int]
    GENERATOR_SOURCE_FIELD_NUMBER: _ClassVar[int]
    SQL_FIELD_NUMBER: _ClassVar[int]
    PYTHON_FIELD_NUMBER: _ClassVar[int]
    KEYED_AGGREGATE_FIELD_NUMBER: _ClassVar[int]
    FILE_SINK_FIELD_NUMBER: _ClassVar[int]
    SQL_SINK_FIELD_NUMBER: _ClassVar[int]
    CONSOLE_SINK_FIELD_NUMBER: _ClassVar[int]
    FOREACH_BATCH_SINK_FIELD_NUMBER: _ClassVar[int]
    id: str
    name: str
    file_source: FileSource
    generator_source: GeneratorSource
    sql: SqlTransform
    python: PythonTransform
    keyed_aggregate: KeyedAggregate
    file_sink: FileSink
    sql_sink: SqlSink
    console_sink: ConsoleSink
    foreach_batch_sink: ForeachBatchSink
    def __init__(self, id: _Optional[str] = ..., name: _Optional[str] = ..., file_source: _Optional[_Union[FileSource, _Mapping]] = ..., generator_source: _Optional[_Union[GeneratorSource, _Mapping]] = ..., sql: _Optional[_Union[SqlTransform, _Mapping]] = ..., python: _Optional[_Union[PythonTransform, _Mapping]] = ..., keyed_aggregate: _Optional[_Union[KeyedAggregate, _Mapping]] = ..., file_sink: _Optional[_Union[FileSink, _Mapping]] = ..., sql_sink: _Optional[_Union[SqlSink, _Mapping]] = ..., console_sink: _Optional[_Union[ConsoleSink, _Mapping]] = ..., foreach_batch_sink: _Optional[_Union[ForeachBatchSink, _Mapping]] = ...) -> None: ...

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
    __slots__ = ("keys", "aggregates")
    KEYS_FIELD_NUMBER: _ClassVar[int]
    AGGREGATES_FIELD_NUMBER: _ClassVar[int]
    keys: _containers.RepeatedScalarFieldContainer[str]
    aggregates: _containers.RepeatedCompositeFieldContainer[Aggregate]
    def __init__(self, keys: _Optional[_Iterable[str]] = ..., aggregates: _Optional[_Iterable[_Union[Aggregate, _Mapping]]] = ...) -> None: ...

class FileSink(_message.Message):
    __slots__ = ("path", "format")
    PATH_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    path: str
    format: FileFormat
    def __init__(self, path: _Optional[str] = ..., format: _Optional[_Union[FileFormat, str]] = ...) -> None: ...

class SqlSink(_message.Message):
    __slots__ = ("url", "table", "keys")
    URL_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    url: str
    table: str
    keys: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, url: _Optional[str] = ..., table: _Optional[str] = ..., keys: _Optional[_Iterable[str]] = ...) -> None: ...

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

class CheckpointOptions(_message.Message):
    __slots__ = ("interval_ms", "timeout_ms", "min_pause_ms", "tolerable_failures", "retained", "retain_after_end")
    INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    MIN_PAUSE_MS_FIELD_NUMBER: _ClassVar[int]
    TOLERABLE_FAILURES_FIELD_NUMBER: _ClassVar[int]
    RETAINED_FIELD_NUMBER: _ClassVar[int]
    RETAIN_AFTER_END_FIELD_NUMBER: _ClassVar[int]
    interval_ms: int
    timeout_ms: int
    min_pause_ms: int
    tolerable_failures: int
    retained: int
    retain_after_end: bool
    def __init__(self, interval_ms: _Optional[int] = ..., timeout_ms: _Optional[int] = ..., min_pause_ms: _Optional[int] = ..., tolerable_failures: _Optional[int] = ..., retained: _Optional[int] = ..., retain_after_end: _Optional[bool] = ...) -> None: ...

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

class StateBackend(_message.Message):
    __slots__ = ("filesystem", "memory")
    FILESYSTEM_FIELD_NUMBER: _ClassVar[int]
    MEMORY_FIELD_NUMBER: _ClassVar[int]
    filesystem: FilesystemBackend
    memory: MemoryBackend
    def __init__(self, filesystem: _Optional[_Union[FilesystemBackend, _Mapping]] = ..., memory: _Optional[_Union[MemoryBackend, _Mapping]] = ...) -> None: ...
