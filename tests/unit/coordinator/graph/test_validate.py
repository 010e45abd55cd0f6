"""Graph validation: every rule has a graph that breaks it, and the sentence says how."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from lockgate_coordinator.graph.normalize import DEFAULT_EXPONENTIAL, normalize
from lockgate_coordinator.graph.shape import poll_interval_ms, slots_needed
from lockgate_coordinator.graph.validate import validate
from lockgate_proto.messages import (
    Aggregate,
    AggregateFunction,
    CheckpointMode,
    CheckpointOptions,
    ConsoleSink,
    CumulatingWindow,
    DeclaredState,
    Deduplicate,
    DeltaSink,
    Edge,
    EventTime,
    ExponentialRestart,
    FailureRateRestart,
    FileFormat,
    FileSink,
    FileSource,
    FilesystemBackend,
    FixedDelayRestart,
    ForeachBatchSink,
    GeneratorSource,
    JobGraph,
    KafkaSink,
    KafkaSource,
    KafkaStart,
    KafkaWriteMode,
    KeyedAggregate,
    KeyedProcess,
    MemoryBackend,
    Operator,
    Partitioning,
    PythonSink,
    PythonSource,
    PythonTransform,
    RecordCall,
    RecordFunction,
    RestartStrategy,
    RocksdbBackend,
    SessionWindow,
    SlidingWindow,
    SocketSource,
    SqlSink,
    SqlTransform,
    SqlWriteMode,
    StateBackend,
    StateShape,
    TumblingWindow,
    Vertex,
    Window,
    WindowProcess,
)

from tests.unit.coordinator.jobs import COUNT, FILES, tiny, word_count

SINK = Operator(id="print", kind=ConsoleSink())
SOURCE = Operator(id="source", kind=FILES)
SQL = Operator(id="sql", kind=SqlTransform(query="SELECT * FROM input"))


def one(*operators: Operator, parallelism: int = 1, max_parallelism: int = 0) -> JobGraph:
    """A graph of one vertex."""
    vertex = Vertex(id="all", parallelism=parallelism, max_parallelism=max_parallelism, operators=operators)
    return JobGraph(vertices=(vertex,))


def with_kind(kind: Any) -> JobGraph:
    """A graph with one operator of this kind where it may stand."""
    if isinstance(kind, FileSource | GeneratorSource | PythonSource | SocketSource | KafkaSource):
        return one(Operator(id="x", kind=kind), SINK)
    if isinstance(kind, SqlTransform | PythonTransform | RecordFunction):
        return one(SOURCE, Operator(id="x", kind=kind), SINK)
    return one(SOURCE, Operator(id="x", kind=kind))


def test_one_connection_feeds_one_subtask() -> None:
    graph = with_kind(SocketSource("h", 9))
    assert validate(graph) == ()
    wide = replace(graph, vertices=(replace(graph.vertices[0], parallelism=2),))
    assert only_problem(wide) == (
        f"Source 'x' reads from one connection, so vertex '{graph.vertices[0].id}' cannot have parallelism 2: "
        "give it 1 and distribute its records with a REBALANCE or HASH edge."
    )


def aggregated(aggregate: KeyedAggregate, keys: tuple[str, ...] | None = None, **edge: Any) -> JobGraph:
    """The word count with another aggregate and edge."""
    graph = word_count()
    read, count = graph.vertices
    count = replace(count, operators=(Operator(id="counts", kind=aggregate), SINK))
    changed = replace(graph.edges[0], keys=aggregate.keys if keys is None else keys, **edge)
    return replace(graph, vertices=(read, count), edges=(changed,))


def two(edge: Edge, left: int = 1, right: int = 1) -> JobGraph:
    """source -> sink over the given edge."""
    vertices = (
        Vertex(id="left", parallelism=left, operators=(SOURCE,)),
        Vertex(id="right", parallelism=right, operators=(SINK,)),
    )
    return JobGraph(vertices=vertices, edges=(edge,))


def only_problem(graph: JobGraph) -> str:
    problems = validate(graph)
    assert len(problems) == 1, problems
    return problems[0]


@pytest.mark.parametrize(
    "graph",
    [
        word_count(),
        tiny(),
        word_count(GeneratorSource()),
        one(SOURCE, SQL, SINK),
        two(Edge("left", "right", Partitioning.FORWARD)),
        two(Edge("left", "right", Partitioning.REBALANCE), 1, 3),
        two(Edge("left", "right", Partitioning.BROADCAST), 2, 3),
        normalize(word_count()),
    ],
)
def test_a_good_graph_has_no_problem(graph: JobGraph) -> None:
    assert validate(graph) == ()


def test_an_empty_graph() -> None:
    assert "empty" in only_problem(JobGraph())


def test_all_problems_are_reported_at_once() -> None:
    graph = one(Operator(id="source", kind=FileSource()), Operator(id="x"), parallelism=0)
    problems = "\n".join(validate(graph))
    for expected in ("no path", "without a format", "no kind", "parallelism 0", "no sink"):
        assert expected in problems


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        (one(SOURCE, replace(SINK, id="source")), "2 operators have the id 'source'"),
        (one(SOURCE, SINK, parallelism=-1), "parallelism -1: at least 1"),
        (one(SOURCE, SINK, parallelism=129), "parallelism 129, more than its max_parallelism 128"),
        (one(SOURCE, SINK, parallelism=3, max_parallelism=2), "more than its max_parallelism 2"),
        (one(SOURCE, SINK, max_parallelism=99_999), "max_parallelism 99999"),
        (one(SOURCE, replace(SINK, id="a/b")), "'a/b' is not an id"),
        (one(SOURCE, replace(SINK, id="")), "'' is not an id"),
        (one(SOURCE, replace(SOURCE, id="late"), SINK), "Source 'late' is not the first operator"),
        (one(SOURCE, SINK, SQL), "Sink 'print' is not the last operator"),
        (one(SOURCE, replace(SQL, kind=COUNT), SINK), "Aggregate 'sql' must be the first operator"),
        (one(SOURCE, Operator(id="x"), SINK), "Operator 'x' has no kind"),
        (two(Edge("left", "right")), "no partitioning"),
        (two(Edge("left", "right", Partitioning.HASH)), "HASH but names no keys"),
        (two(Edge("left", "right", Partitioning.HASH, ("a", ""))), "HASH but names no keys"),
        (two(Edge("left", "right", Partitioning.HASH, ("a", "A"))), "names the key 'a' twice"),
        (two(Edge("left", "right", Partitioning.REBALANCE, ("a",))), "only HASH edges use keys"),
        (two(Edge("left", "right", Partitioning.FORWARD), 1, 2), "the parallelism differs (1 and 2)"),
    ],
)
def test_structure(graph: JobGraph, expected: str) -> None:
    assert any(expected in problem for problem in validate(graph)), validate(graph)


def test_duplicate_vertex_ids() -> None:
    graph = tiny()
    again = replace(graph.vertices[0], operators=(replace(SOURCE, id="s2"), replace(SINK, id="p2")))
    assert only_problem(replace(graph, vertices=(*graph.vertices, again))) == (
        "2 vertices have the id 'all': every id may be used once."
    )


@pytest.mark.parametrize("edge", [Edge("nowhere", "right"), Edge("left", "nowhere")])
def test_an_edge_to_a_vertex_that_does_not_exist(edge: Edge) -> None:
    problems = validate(two(replace(edge, partitioning=Partitioning.REBALANCE)))
    assert any("a vertex 'nowhere' that does not exist" in problem for problem in problems)


def test_two_edges_between_the_same_vertices() -> None:
    graph = two(Edge("left", "right", Partitioning.REBALANCE))
    assert "2 edges go from 'left' to 'right'" in only_problem(replace(graph, edges=graph.edges * 2))


def test_a_cycle_is_named_without_its_neighbours() -> None:
    graph = word_count()
    loop = Vertex(id="loop", parallelism=2, operators=(SQL,))
    back = Vertex(id="back", parallelism=2, operators=(replace(SQL, id="sql2"),))
    edges = (
        Edge("read", "loop", Partitioning.REBALANCE),
        Edge("loop", "back", Partitioning.REBALANCE),
        Edge("back", "loop", Partitioning.REBALANCE),
        Edge("loop", "count", Partitioning.HASH, ("word",)),
    )
    assert only_problem(replace(graph, vertices=(*graph.vertices, loop, back), edges=edges)) == (
        "The vertices back, loop form a cycle: the edge that closes a loop has to be FEEDBACK."
    )


def test_a_vertex_that_feeds_itself() -> None:
    graph = word_count()
    loop = Vertex(id="loop", parallelism=1, operators=(SQL,))
    edge = Edge("loop", "loop", Partitioning.REBALANCE)
    problems = validate(replace(graph, vertices=(*graph.vertices, loop), edges=(*graph.edges, edge)))
    assert problems == ("The vertices loop form a cycle: the edge that closes a loop has to be FEEDBACK.",)


def test_a_source_with_inputs() -> None:
    graph = two(Edge("left", "right", Partitioning.REBALANCE))
    right = replace(graph.vertices[1], operators=(replace(SOURCE, id="s2"), SINK))
    assert "records of other vertices flow into it" in only_problem(replace(graph, vertices=(graph.vertices[0], right)))


def test_a_vertex_without_source_and_without_input() -> None:
    assert "neither a source nor an input" in only_problem(one(SQL, SINK))


def test_an_edge_out_of_a_sink() -> None:
    graph = two(Edge("left", "right", Partitioning.REBALANCE))
    left = replace(graph.vertices[0], operators=(SOURCE, replace(SINK, id="p2")))
    assert "nothing leaves a sink" in only_problem(replace(graph, vertices=(left, graph.vertices[1])))


def test_no_sink_at_all() -> None:
    problems = validate(one(SOURCE))
    assert any("no sink" in problem for problem in problems)


def test_unused_output() -> None:
    graph = tiny()
    lonely = Vertex(id="lonely", parallelism=1, operators=(replace(SOURCE, id="s2"),))
    assert "are not used" in only_problem(replace(graph, vertices=(*graph.vertices, lonely)))


def test_a_vertex_without_operators() -> None:
    graph = tiny()
    assert "has no operators" in only_problem(
        replace(graph, vertices=(*graph.vertices, Vertex(id="hollow", parallelism=1)))
    )


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        (aggregated(COUNT, partitioning=Partitioning.REBALANCE), "is REBALANCE on (word)"),
        (aggregated(COUNT, keys=("other",)), "is HASH on (other)"),
        (aggregated(replace(COUNT, keys=("a", "b")), keys=("b", "a")), "in this order"),
    ],
)
def test_an_aggregate_needs_hash_input_on_its_keys(graph: JobGraph, expected: str) -> None:
    assert any(expected in problem for problem in validate(graph)), validate(graph)


COUNT_N = Aggregate("n", AggregateFunction.COUNT)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (FileSource(format=FileFormat.TEXT), "no path"),
        (FileSource(path="/in"), "without a format"),
        (FileSource(path="/in", format=FileFormat.CSV), "CSV and needs a schema"),
        (FileSource(path="/in", format=FileFormat.JSON_LINES, schema=" "), "JSON_LINES and needs a schema"),
        (replace(FILES, poll_interval_ms=-1), "poll interval of -1 ms"),
        (GeneratorSource(partitions=-1), "-1 partitions"),
        (GeneratorSource(rows_per_partition=-5), "-5 rows per partition"),
        (GeneratorSource(rows_per_second=-0.5), "-0.5 rows per second"),
        (GeneratorSource(rows_per_second=float("nan")), "nan rows per second"),
        (SqlTransform(query="  "), "empty SQL query"),
        (PythonTransform(), "has no function"),
        (RecordFunction(call=RecordCall.FILTER), "has no function"),
        (RecordFunction(b"x", schema="n INT"), "choose MAP, FLAT_MAP or FILTER"),
        (RecordFunction(b"x", call=RecordCall.MAP), "needs the schema of what its function returns"),
        (RecordFunction(b"x", call=RecordCall.FILTER, schema="n INT"), "filters records and has a schema"),
        (ForeachBatchSink(), "has no function"),
        (FileSink(format=FileFormat.CSV), "no path"),
        (FileSink(path="/out"), "without a format"),
        (FileSink(path="/out", format=FileFormat.TEXT), "cannot write TEXT"),
        (SqlSink(table="t", keys=("k",)), "no url"),
        (SqlSink(url="sqlite://", keys=("k",)), "names no table"),
        (SqlSink(url="sqlite://", table="t"), "needs key columns"),
        (SqlSink(url="sqlite://", table="t", keys=("",)), "needs key columns"),
        (SqlSink(url="sqlite://", table="t", keys=("k", "K")), "names the key column 'k' 2 times"),
        (SqlSink(url="mysql://h/d", table="t", keys=("k",)), "not supported: its url has to begin with sqlite or post"),
        (SqlSink(url="sqlite:///d", table="t", keys=("k",), mode=SqlWriteMode.APPEND), "no use for key columns (k)"),
        (PythonSource(schema="n INT"), "reads from a source of your own but has no source"),
        (PythonSource(source=b"x"), "needs its schema"),
        (PythonSource(source=b"x", schema="n INT", poll_interval_ms=-1), "poll interval of -1 ms"),
        (SocketSource(port=9), "reads from a socket but names no host"),
        (SocketSource(host="h", port=70_000), "at port 70000: it must be between 1 and 65535"),
        (PythonSink(), "writes to a sink of your own but has no sink"),
        (KafkaSource(topics=("t",)), "reads from Kafka but names no servers"),
        (KafkaSource("kafka://u:secret@h", ("t",)), "reads from Kafka at servers that are not host:port, separated by"),
        (KafkaSource("h:9"), "reads from Kafka but names no topic"),
        (KafkaSource("h:9,g:9", ("a b",)), "reads from the topic 'a b', but a topic's name has 1 to 249 of"),
        (KafkaSource("h:9", ("t", "t")), "names the topic 't' 2 times"),
        (KafkaSource("h:9", ("t",), poll_interval_ms=-1), "poll interval of -1 ms"),
        (
            KafkaSource("h:9", ("t",), options={"auto.offset.reset": "latest"}),
            "'auto.offset.reset', which cannot be cho",
        ),
        (KafkaSource("h:9", ("t",), options={"kafka.client.id": "a"}), "write it without 'kafka.'"),
        (KafkaSink("h", "t", value="v"), "writes to Kafka at servers that are not host:port"),
        (KafkaSink("h:9", value="v"), "writes to Kafka but names no topic"),
        (KafkaSink("h:9", "t", value="v", commits_topic="a/b"), "writes to the topic 'a/b', but a topic's name has"),
        (KafkaSink("h:9", "t", value="v", commits_topic="t"), "they need a separate topic"),
        (KafkaSink("h:9", "lockgate-commits", value="v"), "they need a separate topic"),
        (KafkaSink("h:9", "t"), "names no column for the records' values"),
        (KafkaSink("h:9", "t", value="v", options={"transactional.id": "x"}), "it is made from the job's run"),
        (DeltaSink(), "writes to a Delta table but has no uri"),
        (ConsoleSink(rows=-1), "prints -1 rows"),
    ],
)
def test_operator_settings(kind: Any, expected: str) -> None:
    problem = only_problem(with_kind(kind))
    assert problem.startswith("Operator 'x' ")
    assert expected in problem


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (KeyedAggregate(keys=("k",)), "aggregates nothing"),
        (KeyedAggregate(keys=("k",), aggregates=(replace(COUNT_N, output=""),)), "without an output name (number 1)"),
        (KeyedAggregate(keys=("k",), aggregates=(Aggregate("n"),)), "without a function ('n')"),
        (
            KeyedAggregate(keys=("k",), aggregates=(Aggregate("n", AggregateFunction.SUM, " "),)),
            "has a SUM of nothing ('n')",
        ),
        *(
            (KeyedAggregate(keys=("k",), aggregates=(replace(COUNT_N, input=text),)), "DISTINCT inside an aggregate")
            for text in ("DISTINCT k", " distinct(k)", "Distinct\tk % 5", "DISTINCT `k`", "DISTINCT a, b")
        ),
        (KeyedAggregate(keys=("__hash",), aggregates=(COUNT_N,)), "'__hash', which is reserved"),
        (KeyedAggregate(keys=("k",), aggregates=(replace(COUNT_N, output="__P0"),)), "'__P0', which is reserved"),
        (KeyedAggregate(keys=("k",), aggregates=(replace(COUNT_N, output="__lockgate_n"),)), "which is reserved"),
        (KeyedAggregate(keys=("k",), aggregates=(replace(COUNT_N, output="K"),)), "2 result columns named 'k'"),
        (KeyedAggregate(keys=("k",), aggregates=(COUNT_N, COUNT_N)), "2 result columns named 'n'"),
    ],
)
def test_aggregate_settings(kind: KeyedAggregate, expected: str) -> None:
    assert expected in only_problem(aggregated(kind))


@pytest.mark.parametrize("text", ["distinct", "distinct + 1", "distinct IS NULL", "distinct_k", "distinct div 2"])
def test_a_column_may_be_called_distinct(text: str) -> None:
    assert validate(aggregated(KeyedAggregate(keys=("k",), aggregates=(replace(COUNT_N, input=text),)))) == ()


def keyed(kind: KeyedProcess | Deduplicate, *keys: str, **edge: Any) -> JobGraph:
    """The word count with another operator with keyed state."""
    graph = aggregated(COUNT, keys=keys or kind.keys, **edge)
    count = replace(graph.vertices[1], operators=(Operator(id="keyed", kind=kind), SINK))
    return replace(graph, vertices=(graph.vertices[0], count))


LAST = DeclaredState("last", StateShape.VALUE_STATE, "DOUBLE")
PROCESS = KeyedProcess(("word",), b"x", "f", "word STRING", (LAST,))


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (replace(PROCESS, function=b""), "has no function"),
        (replace(PROCESS, schema=" "), "needs the schema of its function's output"),
        (replace(PROCESS, states=(LAST, LAST)), "declares 2 states named 'last'"),
        (replace(PROCESS, states=(replace(LAST, name="a b"),)), "state 'a b' with a name that is not an identifier"),
        (replace(PROCESS, states=(replace(LAST, shape=StateShape(0)),)), "state 'last' without a shape"),
        (replace(PROCESS, states=(replace(LAST, type=""),)), "state 'last' without a type"),
        (replace(PROCESS, states=(replace(LAST, key_type="INT"),)), "but it is not a MAP_STATE"),
        (replace(PROCESS, states=(replace(LAST, shape=StateShape.MAP_STATE),)), "without a type for its keys"),
        (replace(PROCESS, states=(replace(LAST, ttl_ms=-1),)), "with ttl_ms -1"),
        (Deduplicate(("word",), -1), "has ttl_ms -1"),
    ],
)
def test_process_and_deduplicate_settings(kind: Any, expected: str) -> None:
    problem = only_problem(keyed(kind))
    assert problem.startswith("Operator 'keyed' ")
    assert expected in problem


@pytest.mark.parametrize("kind", [PROCESS, Deduplicate(("word",))])
def test_state_for_each_key_needs_the_records_of_a_key_in_one_place(kind: Any) -> None:
    assert validate(keyed(kind)) == ()
    name = "Process function 'keyed'" if kind is PROCESS else "Deduplication 'keyed'"
    assert only_problem(keyed(kind, "other")).startswith(f"{name} needs HASH input on its keys (word)")
    inside = one(SOURCE, Operator(id="keyed", kind=kind), SINK)
    assert only_problem(inside) == f"{name} must be the first operator of its vertex, after a HASH edge."
    problems = validate(keyed(replace(kind, keys=()), "word"))
    assert any("names no keys" in problem for problem in problems)


def test_an_aggregate_without_keys() -> None:
    problems = validate(aggregated(KeyedAggregate(aggregates=(COUNT_N,)), keys=("k",)))
    assert any("names no keys" in problem for problem in problems)


@pytest.mark.parametrize("name", ["interval_ms", "timeout_ms", "min_pause_ms", "tolerable_failures", "retained"])
def test_negative_checkpoint_options(name: str) -> None:
    problem = only_problem(word_count(checkpoints=CheckpointOptions(**{name: -1})))
    assert f"{name} is -1" in problem


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        (replace(DEFAULT_EXPONENTIAL, multiplier=0.5), "multiplier is 0.5"),
        (replace(DEFAULT_EXPONENTIAL, multiplier=float("inf")), "multiplier is inf"),
        (replace(DEFAULT_EXPONENTIAL, jitter=1.5), "jitter is 1.5"),
        (replace(DEFAULT_EXPONENTIAL, jitter=float("nan")), "jitter is nan"),
        (replace(DEFAULT_EXPONENTIAL, initial_ms=-1), "initial_ms is -1"),
        (replace(DEFAULT_EXPONENTIAL, initial_ms=20_000), "max_ms 10000 is below its initial_ms 20000"),
        (FixedDelayRestart(delay_ms=-1), "delay_ms is -1"),
        (FixedDelayRestart(attempts=-1), "attempts is -1"),
        (FailureRateRestart(interval_ms=-1), "interval_ms is -1"),
    ],
)
def test_bad_restart_strategies(strategy: Any, expected: str) -> None:
    assert expected in only_problem(word_count(restart=RestartStrategy(strategy=strategy)))


def test_a_negative_state_limit() -> None:
    graph = replace(word_count(), state_backend=StateBackend(backend=MemoryBackend(max_state_bytes=-1)))
    assert "max_state_bytes is -1" in only_problem(graph)


def test_memory_state_has_to_fit_into_messages() -> None:
    for size, problems in ((32 * 2**20, 0), (32 * 2**20 + 1, 1)):
        graph = replace(word_count(), state_backend=StateBackend(backend=MemoryBackend(max_state_bytes=size)))
        assert len(validate(graph)) == problems
    assert "Use the filesystem backend" in only_problem(graph)


def test_in_unaligned_mode_state_and_records_in_flight_have_to_fit_into_one_message_together() -> None:
    unaligned = CheckpointOptions(mode=CheckpointMode.UNALIGNED)
    for size, problems in ((16 * 2**20, 0), (16 * 2**20 + 1, 1)):
        backend = StateBackend(backend=MemoryBackend(max_state_bytes=size))
        graph = replace(word_count(checkpoints=unaligned), state_backend=backend)
        assert len(validate(graph)) == problems
    assert "between 0 (for 16 MiB) and 16777216" in only_problem(graph)


def test_stop_the_world_has_one_checkpoint_at_a_time() -> None:
    for at_a_time, problems in ((0, 0), (1, 0), (2, 1)):
        options = CheckpointOptions(mode=CheckpointMode.STOP_THE_WORLD, max_concurrent=at_a_time)
        assert len(validate(word_count(checkpoints=options))) == problems
    assert "max_concurrent is 2 in the mode STOP_THE_WORLD" in only_problem(word_count(checkpoints=options))


def test_a_storage_of_the_jobs_own_means_the_same_forevery_process() -> None:
    for uri in ("", "/state", "file:///state", "s3://bucket/state"):
        assert not validate(replace(word_count(), state_backend=StateBackend(backend=FilesystemBackend(uri=uri))))
    relative = replace(word_count(), state_backend=StateBackend(backend=FilesystemBackend(uri="state/here")))
    assert "'state/here'" in only_problem(relative)


def test_options_of_the_rocksdb_backend() -> None:
    def made(uri: str = "", memory_bytes: int = 0, full_every: int = 0) -> JobGraph:
        return replace(word_count(), state_backend=StateBackend(RocksdbBackend(uri, memory_bytes), full_every))

    for good in (made(), made("s3://bucket/state"), made(memory_bytes=16 << 20), made(full_every=1)):
        assert not validate(good)
    assert "The rocksdb backend's uri is 'here'" in only_problem(made("here"))
    for size in (-1, 1, (16 << 20) - 1):
        assert f"memory_bytes is {size}" in only_problem(made(memory_bytes=size))
    assert "full_every is 2" in only_problem(made(full_every=2))


def test_how_often_a_snapshot_is_full() -> None:
    for full_every, problems in ((0, 0), (1, 0), (1_000, 0), (-1, 1), (1_001, 1)):
        graph = replace(word_count(), state_backend=StateBackend(full_every=full_every))
        assert len(validate(graph)) == problems, full_every


def test_differences_stand_between_full_snapshots_of_keys_and_values() -> None:
    def made(**fields: Any) -> JobGraph:
        return replace(word_count(), state_backend=StateBackend(**fields, binary_diff=True))

    assert not validate(made(full_every=10))
    assert not validate(made(full_every=10, backend=MemoryBackend()))
    assert "so set full_every, to 10 for example" in only_problem(made())
    assert "snapshots of rocksdb are made of its tables" in only_problem(made(backend=RocksdbBackend()))


# defaults


def test_defaults_are_written_out() -> None:
    graph = normalize(word_count())
    assert graph.checkpoints == CheckpointOptions(
        interval_ms=1_000, timeout_ms=60_000, retained=1, mode=CheckpointMode.EXACTLY_ONCE, max_concurrent=1
    )
    assert graph.restart == RestartStrategy(
        strategy=ExponentialRestart(initial_ms=50, max_ms=10_000, multiplier=2.0, jitter=0.2, reset_after_ms=30_000)
    )
    assert {vertex.max_parallelism for vertex in graph.vertices} == {128}
    assert graph.state_backend is not None
    assert graph.state_backend.backend is not None


@pytest.mark.parametrize(
    ("given", "full"),
    [
        (ExponentialRestart(), DEFAULT_EXPONENTIAL),
        (ExponentialRestart(initial_ms=70), replace(DEFAULT_EXPONENTIAL, initial_ms=70)),
        (ExponentialRestart(jitter=0), replace(DEFAULT_EXPONENTIAL, jitter=0)),
        (ExponentialRestart(initial_ms=20_000), replace(DEFAULT_EXPONENTIAL, initial_ms=20_000, max_ms=20_000)),
        (FixedDelayRestart(), FixedDelayRestart(0, 1_000)),
        (FailureRateRestart(), FailureRateRestart(3, 60_000, 1_000)),
        (FailureRateRestart(failures=5), FailureRateRestart(5, 60_000, 1_000)),
    ],
)
def test_missing_fields_of_a_restart_strategy_are_filled_in(given: Any, full: Any) -> None:
    graph = normalize(word_count(restart=RestartStrategy(strategy=given)))
    assert graph.restart == RestartStrategy(strategy=full)
    assert not validate(graph)


def test_normalizing_twice_changes_nothing() -> None:
    once = normalize(word_count(replace(FILES, continuous=True), restart=RestartStrategy(strategy=FixedDelayRestart())))
    assert normalize(once) == once


def test_set_values_stay() -> None:
    strategy = ExponentialRestart(initial_ms=10, max_ms=20, multiplier=3, jitter=0, reset_after_ms=5)
    graph = normalize(
        word_count(checkpoints=CheckpointOptions(interval_ms=7), restart=RestartStrategy(strategy=strategy))
    )
    assert graph.checkpoints is not None
    assert graph.checkpoints.interval_ms == 7
    assert graph.restart == RestartStrategy(strategy=strategy)


def test_kafka_sources_and_sinks_get_their_defaults() -> None:
    graph = normalize(with_kind(KafkaSource("h:9", ("t",))))
    source = graph.vertices[0].operators[0]
    assert source.kind == KafkaSource("h:9", ("t",), KafkaStart.KAFKA_EARLIEST, False, 30_000)
    assert poll_interval_ms(source) == 30_000
    bounded = normalize(with_kind(KafkaSource("h:9", ("t",), bounded=True))).vertices[0].operators[0]
    assert poll_interval_ms(bounded) is None
    sink = normalize(with_kind(KafkaSink("h:9", "t", value="v"))).vertices[0].operators[-1].kind
    mode = KafkaWriteMode.KAFKA_EXACTLY_ONCE
    assert sink == KafkaSink("h:9", "t", "", "v", mode, "lockgate-commits")
    assert normalize(graph) == graph


def test_sources_and_sinks_get_their_defaults() -> None:
    polled = normalize(tiny(replace(FILES, continuous=True))).vertices[0].operators
    assert isinstance(polled[0].kind, FileSource)
    assert polled[0].kind.poll_interval_ms == 1_000
    assert polled[1].kind == ConsoleSink(rows=20)
    generated = normalize(word_count(GeneratorSource(), parallelism=3)).vertices[0].operators[0].kind
    assert isinstance(generated, GeneratorSource)
    assert generated.partitions == 3


def test_shape_questions() -> None:
    assert slots_needed(two(Edge("left", "right", Partitioning.REBALANCE), 2, 5)) == 5


TIME = EventTime(expression="at", out_of_orderness_ms=1000)
TUMBLING = TumblingWindow(5000)


def windowed(window: Window | None, time: EventTime | None = TIME, **more: Any) -> JobGraph:
    """The word count over windows."""
    graph = aggregated(replace(COUNT, window=window, **more))
    read, count = graph.vertices
    declared = () if time is None else (Operator(id="time", kind=time),)
    return replace(graph, vertices=(replace(read, operators=(*read.operators, *declared)), count))


def with_side_output(graph: JobGraph, name: str, source: str = "count") -> JobGraph:
    """The same with one more vertex that reads a side output."""
    late = Vertex(id="late", parallelism=2, operators=(Operator(id="show-late", kind=ConsoleSink()),))
    edge = Edge(source, "late", Partitioning.REBALANCE, side_output=name)
    return replace(graph, vertices=(*graph.vertices, late), edges=(*graph.edges, edge))


def of_windows(window: Window | None, **more: Any) -> JobGraph:
    """The same with a function for each window."""
    kind = WindowProcess(("word",), window, b"function", "largest", "word STRING, n BIGINT")
    graph = windowed(None)
    read, count = graph.vertices
    process = replace(count.operators[0], kind=replace(kind, **more))
    return replace(graph, vertices=(read, replace(count, operators=(process, *count.operators[1:]))))


def test_good_functions_of_windows_have_no_problem() -> None:
    for kind in (TUMBLING, SlidingWindow(5000, 1000), CumulatingWindow(5000, 1000)):
        graph = of_windows(Window(kind, "at"))
        assert validate(graph) == ()
        assert validate(with_side_output(graph, "late")) == ()
        assert validate(of_windows(Window(kind, processing_time=True))) == ()


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        (of_windows(None), "calls a function for windows but has none"),
        (of_windows(Window(None, "at")), "has a window without a kind"),
        (of_windows(Window(TumblingWindow(0), "at")), "has a window with a size of 0 ms"),
        (of_windows(Window(SessionWindow(5), "at")), "a record may join two of them"),
        (of_windows(Window(TUMBLING, "")), "has a window but no event time"),
        (of_windows(Window(TUMBLING, "at", processing_time=True)), "with the event time 'at': choose one of them"),
        (of_windows(Window(TUMBLING, "", 5, processing_time=True)), "has allowed_lateness_ms 5: it must be 0"),
        (
            with_side_output(of_windows(Window(TUMBLING, processing_time=True)), "late"),
            "no record is late for the windows of processing time before it",
        ),
        (of_windows(Window(TUMBLING, "at", 5)), "has allowed_lateness_ms 5: it must be 0"),
        (of_windows(Window(TUMBLING, "at"), function=b""), "has no function"),
        (of_windows(Window(TUMBLING, "at"), schema=" "), "needs the schema of its function's output"),
        (of_windows(Window(TUMBLING, "at"), keys=()), "processes windows by key but names no keys"),
        (
            of_windows(Window(TUMBLING, "at"), keys=("other",)),
            "Function of windows 'counts' needs HASH input on its keys",
        ),
    ],
)
def test_bad_functions_of_windows(graph: JobGraph, expected: str) -> None:
    assert any(expected in problem for problem in validate(graph)), validate(graph)


def test_good_windows_have_no_problem() -> None:
    cumulating = CumulatingWindow(5000, 1000, 4000)
    minutes = CumulatingWindow(86_400_000, 60_000)
    sliding = SlidingWindow(5000, 1000), SlidingWindow(5000, 5000, 100), SlidingWindow(10_000, 1)
    for kind in (TUMBLING, SessionWindow(1), *sliding, cumulating, minutes):
        graph = windowed(Window(kind, "at", 1000))
        assert validate(graph) == ()
        assert validate(with_side_output(graph, "late")) == ()


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        (windowed(Window(None, "at")), "has a window without a kind"),
        (windowed(Window(SessionWindow(0), "at")), "session windows with a gap of 0 ms"),
        (windowed(Window(TumblingWindow(0), "at")), "has a window with a size of 0 ms"),
        (windowed(Window(SlidingWindow(5000, 0), "at")), "has a window with a slide of 0 ms"),
        (windowed(Window(SlidingWindow(1000, 5000), "at")), "make the slide at most the size"),
        (windowed(Window(SlidingWindow(10_000_001, 1000), "at")), "more than 10000 pieces"),
        (windowed(Window(TumblingWindow(10, 10), "at")), "an offset of 10 ms"),
        (windowed(Window(CumulatingWindow(5000, 0), "at")), "cumulating windows with a step of 0 ms"),
        (windowed(Window(CumulatingWindow(5000, 3000), "at")), "the size must be a multiple of the step"),
        (windowed(Window(CumulatingWindow(10_001, 1), "at")), "which are 10001 of them: make the step longer"),
        (windowed(Window(CumulatingWindow(1_501, 1), "at")), "so that there are at most 1500"),
        (windowed(Window(CumulatingWindow(10, 5, 10), "at")), "cumulating windows with an offset of 10 ms"),
        (windowed(Window(TUMBLING, "")), "has a window but no event time"),
        (windowed(Window(TUMBLING, "at", -1)), "has allowed_lateness_ms -1"),
        (windowed(Window(TUMBLING, "at", processing_time=True)), "with the event time 'at': choose one of them"),
        (windowed(Window(TUMBLING, "", 5, processing_time=True)), "allowed_lateness_ms 5: no record is late there"),
        (windowed(Window(None, processing_time=True)), "has a window without a kind"),
        (
            with_side_output(windowed(Window(TUMBLING, processing_time=True)), "late"),
            "no record is late for the windows of processing time before it",
        ),
        (windowed(Window(TUMBLING, "at"), keys=("Window_Start",)), "has a key or result named 'Window_Start'"),
        (
            windowed(Window(TUMBLING, "at"), time=None),
            "before it declares no event time",
        ),
        (windowed(None, time=EventTime("")), "declares event time without an expression"),
        (windowed(None, time=EventTime("at", "", -1)), "has out_of_orderness_ms -1"),
        (windowed(None, time=EventTime("at", "", 0, -1)), "has idle_after_ms -1"),
        (windowed(None, time=EventTime("at", max_ahead_ms=-2)), "has max_ahead_ms -2"),
        (windowed(None, time=EventTime("at", max_ahead_ms=10**12 + 1)), "max_ahead_ms 1000000000001: the limit"),
        (
            one(replace(SOURCE, kind=replace(FILES, continuous=True)), Operator(id="time", kind=TIME), SINK),
            "without idle_after_ms: a file that no longer grows would hold event time back",
        ),
        (
            one(SOURCE, Operator(id="time", kind=TIME), Operator(id="again", kind=TIME), SINK),
            "Vertex 'all' declares event time 2 times",
        ),
        (with_side_output(windowed(Window(TUMBLING, "at")), "early"), "requests the side output 'early'"),
        (with_side_output(windowed(None), "late"), "'count' does not begin with windows"),
    ],
)
def test_event_time(graph: JobGraph, expected: str) -> None:
    assert any(expected in problem for problem in validate(graph)), validate(graph)


@pytest.mark.parametrize("time", [None, TIME])
def test_windows_of_processing_time_need_no_event_time(time: EventTime | None) -> None:
    for kind in (TUMBLING, SessionWindow(1), SlidingWindow(5000, 1000)):
        assert validate(windowed(Window(kind, processing_time=True), time)) == ()


def test_event_time_does_not_pass_windows_of_processing_time() -> None:
    graph = windowed(Window(TUMBLING, processing_time=True))
    again = Operator(id="again", kind=replace(COUNT, window=Window(TUMBLING, "window_end")))
    behind = Vertex(id="behind", parallelism=2, operators=(again, SINK))
    edge = Edge("count", "behind", Partitioning.HASH, keys=COUNT.keys)
    count = replace(graph.vertices[1], operators=graph.vertices[1].operators[:1])
    chained = replace(graph, vertices=(graph.vertices[0], count, behind), edges=(*graph.edges, edge))
    assert "goes by event time, but is behind 'counts'" in only_problem(chained)
    again = replace(again, kind=replace(COUNT, window=Window(TUMBLING, processing_time=True)))
    behind = replace(behind, operators=(again, SINK))
    assert validate(replace(chained, vertices=(graph.vertices[0], count, behind))) == ()


def test_event_time_is_declared_where_the_source_is() -> None:
    graph = two(Edge("left", "right", Partitioning.REBALANCE))
    right = replace(graph.vertices[1], operators=(Operator(id="time", kind=TIME), SINK))
    assert "does not begin with a source" in only_problem(replace(graph, vertices=(graph.vertices[0], right)))


def test_event_time_of_one_of_several_branches_says_that_it_is_one() -> None:
    timed = Vertex(
        id="timed", operators=(Operator(id="time", kind=TIME), replace(SINK, id="timed-sink")), parallelism=1
    )
    plain = two(Edge("left", "right", Partitioning.FORWARD))
    branch = Edge("left", "timed", Partitioning.FORWARD)
    graph = replace(plain, vertices=(*plain.vertices, timed), edges=(*plain.edges, branch))
    problem = only_problem(graph)
    assert "one of 2 branches behind vertex 'left'; declare event time once, right behind the source" in problem
    assert "partitioned" not in problem


def test_event_time_behind_a_union_says_so() -> None:
    plain = two(Edge("left", "right", Partitioning.FORWARD))
    other = replace(plain.vertices[0], id="other", operators=(replace(SOURCE, id="other-source"),))
    right = replace(plain.vertices[1], operators=(Operator(id="time", kind=TIME), SINK))
    edges = (*plain.edges, Edge("other", "right", Partitioning.FORWARD))
    problem = only_problem(replace(plain, vertices=(plain.vertices[0], other, right), edges=edges))
    assert "it has several input streams; declare event time in each of them" in problem


def test_late_records_alone_are_not_a_result() -> None:
    graph = with_side_output(windowed(Window(TUMBLING, "at")), "late")
    count = replace(graph.vertices[1], operators=graph.vertices[1].operators[:1])
    graph = replace(graph, vertices=(graph.vertices[0], count, graph.vertices[2]))
    assert "The records of vertex 'count' are not used" in only_problem(graph)
