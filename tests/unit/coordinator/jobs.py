"""Job graphs and messages that the coordinator's tests are made of."""

from __future__ import annotations

from dataclasses import replace

from lockgate_proto.codec import encode
from lockgate_proto.messages import (
    AcknowledgeCheckpoint,
    Aggregate,
    AggregateFunction,
    AttemptId,
    CheckpointOptions,
    ConsoleSink,
    Edge,
    FileFormat,
    FileSink,
    FileSource,
    GeneratorSource,
    JobGraph,
    JobRecord,
    KeyedAggregate,
    Operator,
    OperatorCounters,
    OperatorState,
    Partitioning,
    RestartStrategy,
    SourceState,
    SplitState,
    SqlSink,
    StateHandle,
    StateKind,
    SubtaskId,
    SubtaskState,
    Vertex,
)

JOB, RUN, TOKEN = "words", "run-1", 7
DIRECTORY = "/storage/default/words/run-1"
RECORD = JobRecord(job_key=JOB, run_id=RUN, graph_checksum="crc32:0", submitted_unix_ms=5, token=TOKEN)
SUBTASKS = (("read", 0), ("read", 1), ("count", 0), ("count", 1))

FILES = FileSource(path="/in", format=FileFormat.TEXT)
COUNT = KeyedAggregate(keys=("word",), aggregates=(Aggregate(output="n", function=AggregateFunction.COUNT),))


def word_count(
    source: FileSource | GeneratorSource = FILES,
    *,
    parallelism: int = 2,
    checkpoints: CheckpointOptions | None = None,
    restart: RestartStrategy | None = None,
) -> JobGraph:
    """read(source, sql) --HASH(word)--> count(aggregate, sink), as an author would submit it."""
    read = Vertex(id="read", parallelism=parallelism, operators=(Operator(id="source", kind=source),))
    count = Vertex(
        id="count",
        parallelism=parallelism,
        operators=(
            Operator(id="counts", kind=COUNT),
            Operator(id="sink", kind=SqlSink(url="sqlite:////x.db", table="words", keys=("word",))),
        ),
    )
    edge = Edge(source="read", target="count", partitioning=Partitioning.HASH, keys=("word",))
    return JobGraph(name="word count", vertices=(read, count), edges=(edge,), checkpoints=checkpoints, restart=restart)


def forward(source: FileSource | GeneratorSource = FILES, *, restart: RestartStrategy | None = None) -> JobGraph:
    """read(source) --FORWARD--> count(file sink): the subtasks of `word_count`, of which no two slots are connected."""
    read = Vertex(id="read", parallelism=2, operators=(Operator(id="source", kind=source),))
    sink = Operator(id="sink", kind=FileSink(path="/out", format=FileFormat.PARQUET))
    count = Vertex(id="count", parallelism=2, operators=(sink,))
    edges = (Edge(source="read", target="count", partitioning=Partitioning.FORWARD),)
    return JobGraph(name="forward", vertices=(read, count), edges=edges, restart=restart)


def tiny(source: FileSource | GeneratorSource = FILES) -> JobGraph:
    """One vertex, one subtask: source and console."""
    operators = (Operator(id="source", kind=source), Operator(id="print", kind=ConsoleSink()))
    return JobGraph(name="tiny", vertices=(Vertex(id="all", parallelism=1, operators=operators),))


def attempt(number: int = 1) -> AttemptId:
    """An attempt of the job under test."""
    return AttemptId(job_key=JOB, run_id=RUN, attempt=number)


def subtask(vertex: str, index: int, number: int = 1) -> SubtaskId:
    """A subtask of an attempt of the job under test."""
    return SubtaskId(attempt=attempt(number), vertex_id=vertex, subtask=index)


def source_state(vertex: str, index: int, splits: tuple[SplitState, ...], *, complete: bool = True) -> SubtaskState:
    """What a source subtask puts into a snapshot."""
    handle = StateHandle(inline=encode(SourceState(splits=splits, complete=complete)))
    operator = OperatorState(operator_id="source", kind=StateKind.SOURCE_STATE, handle=handle)
    return SubtaskState(vertex_id=vertex, subtask=index, operators=(operator,))


def ack(
    checkpoint_id: int, vertex: str, index: int, number: int = 1, state: SubtaskState | None = None, sync_us: int = 10
) -> AcknowledgeCheckpoint:
    """An acknowledgement; one of its counters tells attempt and checkpoint, so that a mixed-up snapshot shows."""
    mark = OperatorCounters(operator_id=f"mark-{vertex}", records_in=number, records_out=checkpoint_id)
    state = state or SubtaskState(vertex_id=vertex, subtask=index)
    state = replace(state, counters=(*state.counters, mark))
    return AcknowledgeCheckpoint(
        subtask=subtask(vertex, index, number), checkpoint_id=checkpoint_id, state=state, sync_us=sync_us
    )
