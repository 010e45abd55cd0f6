"""What a leader tells the author of a job that promises less than its sinks do."""

from __future__ import annotations

from dataclasses import replace

import pytest
from lockgate_coordinator.graph.normalize import normalize
from lockgate_coordinator.graph.warnings import warnings
from lockgate_proto.messages import (
    Aggregate,
    AggregateFunction,
    CheckpointMode,
    CheckpointOptions,
    DeltaSink,
    Edge,
    ForeachBatchSink,
    GeneratorSource,
    JobGraph,
    KafkaSink,
    KafkaWriteMode,
    KeyedAggregate,
    KeyedProcess,
    MemoryBackend,
    Operator,
    Partitioning,
    RocksdbBackend,
    SocketSource,
    SqlSink,
    SqlTransform,
    StateBackend,
    TriggeredWindow,
    TumblingWindow,
    Vertex,
    Window,
)

from tests.unit.coordinator.jobs import tiny, word_count

LOOSE = CheckpointOptions(mode=CheckpointMode.AT_LEAST_ONCE)


def test_an_exact_sink_behind_at_least_once_barriers_is_named() -> None:
    (text,) = warnings(word_count(checkpoints=LOOSE))
    times = "after a failure, a rescale or a start from a savepoint"
    assert text.startswith(f"Checkpoints are at least once: {times} 'sink' may permanently show duplicate records")


def test_copies_of_state_without_files_are_pointless() -> None:
    graph = replace(word_count(), standby_replicas=1)
    assert warnings(graph) == ()
    (text,) = warnings(replace(graph, state_backend=StateBackend(MemoryBackend())))
    assert text.startswith("standby_replicas has no effect with state='memory'")


def test_the_default_mode_promises_everything() -> None:
    assert warnings(word_count()) == ()
    assert normalize(word_count()).checkpoints is not None
    assert normalize(word_count()).checkpoints.mode is CheckpointMode.EXACTLY_ONCE  # type: ignore[union-attr]


def test_a_sink_that_promises_nothing_needs_no_warning() -> None:
    graph = word_count(checkpoints=LOOSE)
    count = replace(graph.vertices[1], operators=graph.vertices[1].operators[:1] + tiny().vertices[0].operators[1:])
    assert warnings(replace(graph, vertices=(graph.vertices[0], count))) == ()


def test_a_sink_of_kafka_or_delta_is_exact_unless_its_author_wants_less() -> None:
    graph = word_count(checkpoints=LOOSE)
    aggregate, sink = graph.vertices[1].operators
    found = []
    exact, loose = KafkaWriteMode.KAFKA_WRITE_MODE_UNSPECIFIED, KafkaWriteMode.KAFKA_AT_LEAST_ONCE
    for kind in (*(KafkaSink("h:9", "t", value="v", mode=mode) for mode in (exact, loose)), DeltaSink("/t")):
        count = replace(graph.vertices[1], operators=(aggregate, replace(sink, kind=kind)))
        found.append(len(warnings(replace(graph, vertices=(graph.vertices[0], count)))))
    assert found == [1, 0, 1]


def test_with_one_channel_there_is_nothing_to_hold_back() -> None:
    assert warnings(word_count(parallelism=1, checkpoints=LOOSE)) == ()


def test_two_vertices_of_one_subtask_each_are_two_channels() -> None:
    graph = word_count(parallelism=1, checkpoints=LOOSE)
    read = replace(graph.vertices[0], id="more", operators=())
    both = (*graph.edges, replace(graph.edges[0], source="more"))
    assert len(warnings(JobGraph("union", (*graph.vertices, read), both, LOOSE))) == 1


def test_a_job_that_reads_a_socket_is_warned_that_lines_may_be_lost() -> None:
    graph = tiny()
    (vertex,) = graph.vertices
    read = replace(vertex.operators[0], id="lines", kind=SocketSource("h", 9))
    (text,) = warnings(replace(graph, vertices=(replace(vertex, operators=(read, *vertex.operators[1:])),)))
    assert text.startswith("'lines' reads from a socket, which cannot be read again: after a failure the lines since")
    assert "at a stop or rescale those since its snapshot" in text
    assert "at most once" in text


def test_a_function_that_several_subtasks_call_with_one_id_is_named() -> None:
    graph = tiny()
    (vertex,) = graph.vertices
    calls = replace(vertex.operators[-1], id="calls", kind=ForeachBatchSink(b"function"))

    def of(width: int) -> JobGraph:
        wide = replace(vertex, parallelism=width, operators=(*vertex.operators[:-1], calls))
        return replace(graph, vertices=(wide,))

    assert warnings(of(1)) == ()
    (text,) = warnings(of(3))
    assert text.startswith("'calls' calls its function in each of 3 subtasks: the same checkpoint id comes 3 times")


def test_a_job_with_timers_behind_a_loop_is_warned_that_event_time_does_not_pass_it() -> None:
    kinds = {"source": GeneratorSource(), "head": SqlTransform("SELECT * FROM input"), "watch": KeyedProcess(("k",))}
    kinds["tail"] = kinds["head"]
    kinds["after"] = kinds["watch"]
    vertices = tuple(Vertex(name, name, 1, 0, (Operator(f"{name}-1", name, kind),)) for name, kind in kinds.items())
    edges = (
        Edge("source", "watch", Partitioning.HASH, ("k",)),
        Edge("watch", "head", Partitioning.REBALANCE),
        Edge("head", "tail", Partitioning.FORWARD),
        Edge("tail", "after", Partitioning.HASH, ("k",)),
    )
    assert warnings(JobGraph("straight", vertices, edges)) == ()
    (text,) = warnings(JobGraph("loop", vertices, (*edges, Edge("tail", "head", Partitioning.FEEDBACK))))
    assert text.startswith("Event time timers of 'after-1' never fire before the end of its input")
    assert "behind the loop of head, tail" in text


def test_differences_of_a_job_without_process_functions_are_none() -> None:
    asked = StateBackend(full_every=10, binary_diff=True)
    (text,) = warnings(replace(word_count(), state_backend=asked))
    assert text.startswith("The state backend's binary_diff has no effect")
    graph = word_count()
    process = replace(graph.vertices[1].operators[0], kind=KeyedProcess(("word",), b"function", schema="word STRING"))
    vertices = (graph.vertices[0], replace(graph.vertices[1], operators=(process, *graph.vertices[1].operators[1:])))
    assert warnings(replace(graph, vertices=vertices, state_backend=asked)) == ()


def test_with_rocksdb_no_state_stays_in_memory_to_warn_of() -> None:
    graph = replace(word_count(), state_backend=StateBackend(RocksdbBackend()))
    assert warnings(graph) == ()
    *others, vertex = graph.vertices
    (keyed,) = [operator for operator in vertex.operators if isinstance(operator.kind, KeyedAggregate)]
    assert isinstance(keyed.kind, KeyedAggregate)
    windowed = replace(keyed, kind=replace(keyed.kind, window=Window(TumblingWindow(1000), "at")))
    operators = tuple(windowed if operator is keyed else operator for operator in vertex.operators)
    assert warnings(replace(graph, vertices=(*others, replace(vertex, operators=operators)))) == ()


def two_aggregates(first: KeyedAggregate, second: KeyedAggregate, *between: SqlTransform) -> JobGraph:
    read = Vertex("read", "read", 1, 0, (Operator("read-1", "read", GeneratorSource()),))
    steps = tuple(Operator(f"step-{number}", "step", kind) for number, kind in enumerate(between))
    totals = Vertex("first", "first", 1, 0, (Operator("first-1", "first", first),))
    middle = Vertex(
        "middle", "middle", 1, 0, (*steps, Operator("middle-1", "middle", SqlTransform("SELECT * FROM input")))
    )
    last = Vertex("last", "last", 1, 0, (Operator("last-1", "last", second),))
    edges = (
        Edge("read", "first", Partitioning.HASH, first.keys),
        Edge("first", "middle", Partitioning.REBALANCE),
        Edge("middle", "last", Partitioning.HASH, second.keys),
    )
    return JobGraph("two", (read, totals, middle, last), edges)


COUNT = Aggregate("n", AggregateFunction.COUNT)
SUM, MAX = (Aggregate("t", AggregateFunction[name], "n") for name in ("SUM", "MAX"))


def test_a_job_that_adds_up_a_changelog_is_warned_of() -> None:
    (text,) = warnings(two_aggregates(KeyedAggregate(("k", "l"), (COUNT,)), KeyedAggregate(("k",), (SUM,))))
    assert text.startswith(
        "'last-1' aggregates the output of 'first-1', which emits the new value of a key at each change"
    )
    late = Window(TumblingWindow(1000), "at", 5000)
    assert len(warnings(two_aggregates(KeyedAggregate(("k",), (COUNT,), late), KeyedAggregate(("k",), (COUNT,))))) == 1
    final = Window(TumblingWindow(1000), "at")
    assert warnings(two_aggregates(KeyedAggregate(("k",), (COUNT,), final), KeyedAggregate(("k",), (SUM,)))) == ()
    assert warnings(two_aggregates(KeyedAggregate(("k",), (COUNT,)), KeyedAggregate(("k",), (MAX,)))) == ()


@pytest.mark.parametrize(("purge", "count"), [(False, 1), (True, 0)])
def test_early_results_are_not_to_be_added_up_unless_they_are_pieces(purge: bool, count: int) -> None:
    early = Window(TriggeredWindow(1000, every_count=5, purge=purge), "at")
    found = warnings(two_aggregates(KeyedAggregate(("k",), (COUNT,), early), KeyedAggregate(("k",), (SUM,))))
    assert len(found) == count
    assert all("with a trigger only if it purges" in text for text in found)


@pytest.mark.parametrize(
    ("query", "what"),
    [
        ("SELECT k, count(*) FROM input GROUP BY k", "GROUP BY"),
        ("select distinct k from input", "DISTINCT"),
        ("SELECT row_number() OVER (PARTITION BY k ORDER BY v) AS n FROM input", "a window function"),
        ("SELECT * FROM input LIMIT 10", "LIMIT"),
        ("SELECT sum(v) AS s FROM input", "an aggregate"),
        ("SELECT *, 'GROUP BY' AS g, `count(`, aggregate(l, 0, (a, e) -> a + e) FROM input -- LIMIT 10", ""),
        ("SELECT upper(k) /* SELECT DISTINCT */, array_max(l), size(l) FROM input WHERE v > 1", ""),
        ("SELECT count, sum FROM input", ""),
    ],
)
def test_sql_that_answers_for_a_batch_is_named(query: str, what: str) -> None:
    graph = tiny()
    (vertex,) = graph.vertices
    asks = Operator("asks", "sql", SqlTransform(query))
    found = warnings(replace(graph, vertices=(replace(vertex, operators=(vertex.operators[0], asks)),)))
    assert found == () if not what else found[0].startswith(f"'asks' has {what} in its SQL, which sees one micro-batch")


@pytest.mark.parametrize(
    "kind",
    [
        SqlSink(url="postgresql://shop:geheim@db/shop", table="t"),
        SqlSink(url="postgresql://db/shop?password=geheim", table="t"),
        DeltaSink(uri="s3://b/t", options={"AWS_SECRET_ACCESS_KEY": "geheim"}),
    ],
)
def test_a_password_that_is_stored_with_the_graph_is_named(kind: SqlSink | DeltaSink) -> None:
    (text,) = warnings(tiny(kind))
    assert text.startswith("'source' holds a password or key, which is stored with the job graph: write ${NAME} for it")


@pytest.mark.parametrize(
    "kind",
    [
        SqlSink(url="postgresql://shop:${SHOP_PASSWORD}@db/shop", table="t"),
        DeltaSink(uri="s3://b/t", options={"AWS_SECRET_ACCESS_KEY": "${KEY}"}),
    ],
)
def test_a_password_in_the_environment_needs_no_warning(kind: SqlSink | DeltaSink) -> None:
    assert warnings(tiny(kind)) == ()
