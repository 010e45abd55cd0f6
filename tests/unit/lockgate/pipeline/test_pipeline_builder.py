"""The builder: what graph a pipeline becomes, and the errors its author gets."""

# ruff: noqa: ARG005  (each mistake is a lambda of one job)

from __future__ import annotations

import inspect
import re
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from lockgate_proto import messages as m
from lockgate_proto.codec import decode, encode

from lockgate import Job, PipelineError, Restart, avg, count, max_, min_, sum_
from lockgate.pipeline import checks
from tests.connectors import JsonFolder, Squares


def word_count(job: Job | None = None) -> Job:
    job = job or Job("wordcount", parallelism=2)
    words = job.read_text("/books", include="*.py").sql("SELECT explode(split(value, ' ')) AS word FROM input")
    words.key_by("word").aggregate(n=count()).write_sql("sqlite:////tmp/x.db", "counts", key="word")
    return job


def test_the_word_count_is_two_vertices_joined_by_a_hash_edge() -> None:
    graph = word_count().graph()
    assert [(vertex.id, vertex.parallelism, [op.id for op in vertex.operators]) for vertex in graph.vertices] == [
        ("read_text-1", 2, ["read_text-1", "sql-1"]),
        ("aggregate-1", 2, ["aggregate-1", "write_sql-1"]),
    ]
    assert graph.edges == (m.Edge("read_text-1", "aggregate-1", m.Partitioning.HASH, ("word",)),)
    source, sql = graph.vertices[0].operators
    assert source.kind == m.FileSource("/books", m.FileFormat.TEXT, include="*.py")
    assert isinstance(sql.kind, m.SqlTransform)
    aggregate, sink = graph.vertices[1].operators
    assert aggregate.kind == m.KeyedAggregate(("word",), (m.Aggregate("n", m.AggregateFunction.COUNT, ""),))
    assert sink.kind == m.SqlSink("sqlite:////tmp/x.db", "counts", ("word",), m.SqlWriteMode.UPSERT)


def test_the_same_program_gives_the_same_bytes() -> None:
    assert encode(word_count().graph()) == encode(word_count().graph())
    assert decode(m.JobGraph, encode(word_count().graph())) == word_count().graph()


def test_ids_do_not_depend_on_what_is_added_elsewhere() -> None:
    job = word_count()
    before = {op.id for vertex in job.graph().vertices for op in vertex.operators}
    job.read_csv("/c", schema="a INT").filter("a > 0").print()
    assert before < {op.id for vertex in job.graph().vertices for op in vertex.operators}


@pytest.mark.parametrize(
    ("read", "file_format"), [(Job.read_csv, m.FileFormat.CSV), (Job.read_json, m.FileFormat.JSON_LINES)]
)
def test_options_of_rows_go_to_spark_and_those_of_the_folder_do_not(read: Any, file_format: m.FileFormat) -> None:
    job = Job("j")
    read(
        job, "/a", schema="a INT", include="*.x", continuous=True, poll_interval_ms=50, header=True, method="m"
    ).print()
    options = {"header": "true", "method": "m"}
    source = m.FileSource("/a", file_format, "a INT", options, continuous=True, poll_interval_ms=50, include="*.x")
    assert job.graph().vertices[0].operators[0].kind == source


def test_uid_fixes_the_id_and_never_collides_with_a_made_one() -> None:
    job = Job("j")
    job.read_text("/a").uid("sql-1").sql("SELECT * FROM input").print()
    ids = [op.id for vertex in job.graph().vertices for op in vertex.operators]
    assert ids == ["sql-1", "sql-2", "print-1"]


def test_all_aggregates() -> None:
    job = Job("j")
    keyed = job.read_csv("/a", schema="k STRING, v INT").key_by("k")
    keyed.aggregate(a=count("v"), b=sum_("v * 2"), c=min_("v"), d=max_("v"), e=avg("v")).print()
    kind = job.graph().vertices[1].operators[0].kind
    assert isinstance(kind, m.KeyedAggregate)
    assert [(aggregate.function.name, aggregate.input) for aggregate in kind.aggregates] == [
        ("COUNT", "v"), ("SUM", "v * 2"), ("MIN", "v"), ("MAX", "v"), ("AVG", "v"),
    ]  # fmt: skip


def test_a_union_is_several_edges_into_one_vertex() -> None:
    job = Job("j", parallelism=2)
    left, right = job.read_text("/a"), job.read_text("/b").parallelism(1)
    left.union(right).key_by("value").aggregate(n=count()).print()
    left_edge, right_edge = job.graph().edges
    assert (left_edge.source, right_edge.source) == ("read_text-1", "read_text-2")
    assert {left_edge.target, right_edge.target} == {"aggregate-1"}
    assert {left_edge.partitioning, right_edge.partitioning} == {m.Partitioning.HASH}


def test_a_fork_and_a_change_of_parallelism_end_a_chain() -> None:
    job = Job("j", parallelism=2)
    lines = job.read_text("/a")
    lines.filter("value <> ''").print()
    lines.select("length(value) AS n").parallelism(4).print()
    graph = job.graph()
    assert [(vertex.id, vertex.parallelism) for vertex in graph.vertices] == [
        ("read_text-1", 2),
        ("filter-1", 2),
        ("select-1", 4),
    ]
    assert [edge.partitioning for edge in graph.edges] == [m.Partitioning.FORWARD, m.Partitioning.REBALANCE]


def test_rebalance_and_broadcast_are_kept() -> None:
    job = Job("j", parallelism=2)
    lines = job.read_text("/a")
    lines.rebalance().print()
    lines.broadcast().print()
    assert [edge.partitioning for edge in job.graph().edges] == [m.Partitioning.REBALANCE, m.Partitioning.BROADCAST]


def test_parallelism_is_inherited_along_a_chain_but_not_behind_a_key() -> None:
    job = Job("j", parallelism=3)
    job.read_text("/a").parallelism(1).filter("value <> ''").key_by("value").aggregate(n=count()).print()
    assert [vertex.parallelism for vertex in job.graph().vertices] == [1, 3]


def test_names_show_in_the_graph() -> None:
    job = Job("j")
    job.read_text("/a").name("books").print().name("look")
    assert job.graph().vertices[0].name == "books -> look"


def test_relative_paths_become_absolute_and_uris_stay(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    job = Job("j")
    job.read_text("in").write_parquet("s3://bucket/out")
    job.read_text("x/../in://y").write_sql("sqlite:///c.db", "t", key="value")
    first, second = job.graph().vertices
    assert isinstance(first.operators[0].kind, m.FileSource)
    assert first.operators[0].kind.path == str(tmp_path / "in")
    assert first.operators[1].kind == m.FileSink("s3://bucket/out", m.FileFormat.PARQUET)
    assert second.operators[0].kind == replace(first.operators[0].kind, path=f"{tmp_path}/in:/y")
    assert isinstance(second.operators[1].kind, m.SqlSink)
    assert second.operators[1].kind.url == f"sqlite:///{tmp_path / 'c.db'}"


def test_options_of_the_job_reach_the_graph() -> None:
    job = Job(
        "j", checkpoint_interval_ms=200, retained_checkpoints=3, retain_after_end=True, state="memory",
        full_snapshot_every=7, restart=Restart.fixed_delay(50, attempts=2), max_parallelism=16,
    )  # fmt: skip
    job.generate(10, rate=5, partitions=4).print()
    graph = job.graph()
    assert graph.checkpoints == m.CheckpointOptions(200, 60_000, 0, 0, 3, True)
    assert graph.state_backend == m.StateBackend(m.MemoryBackend(), 7)
    assert graph.restart == m.RestartStrategy(m.FixedDelayRestart(2, 50))
    assert graph.vertices[0].max_parallelism == 16
    assert graph.vertices[0].operators[0].kind == m.GeneratorSource(4, 10, 5.0)


@pytest.mark.parametrize(
    ("state", "backend"),
    [
        ("filesystem", m.StateBackend(m.FilesystemBackend())),
        ("rocksdb", m.StateBackend(m.RocksdbBackend())),
        ("/state", m.StateBackend(m.FilesystemBackend("/state"))),
        (m.StateBackend(m.RocksdbBackend("s3://b/s", 1 << 28)), m.StateBackend(m.RocksdbBackend("s3://b/s", 1 << 28))),
    ],
)
def test_a_state_backend_reaches_the_graph(state: Any, backend: m.StateBackend) -> None:
    job = Job("j", state=state)
    job.generate(10).print()
    assert job.graph().state_backend == backend


def test_differences_reach_the_graph_and_invalid_ones_are_reported() -> None:
    job = Job("j", state="memory", full_snapshot_every=10, binary_diff=True)
    job.generate(10).print()
    assert job.graph().state_backend == m.StateBackend(m.MemoryBackend(), 10, binary_diff=True)
    message = m.StateBackend(m.FilesystemBackend("/state"), 5)
    job = Job("j", state=message, binary_diff=True)
    job.generate(10).print()
    assert job.graph().state_backend == replace(message, binary_diff=True)
    with pytest.raises(PipelineError, match="binary_diff=True needs full_snapshot_every, such as 10"):
        Job("j", binary_diff=True)
    with pytest.raises(PipelineError, match='binary_diff=True belongs to state="filesystem" and "memory"'):
        Job("j", state="rocksdb", binary_diff=True)


def test_the_checkpoint_mode_reaches_the_graph_and_the_default_is_left_out() -> None:
    def options(job: Job) -> m.CheckpointOptions | None:
        job.generate(10).print()
        return job.graph().checkpoints

    assert options(Job("j", checkpoint_mode="exactly_once")) == options(Job("j"))
    loose = options(Job("j", checkpoint_mode="at_least_once"))
    assert loose is not None
    assert loose.mode is m.CheckpointMode.AT_LEAST_ONCE
    stopped = options(Job("j", checkpoint_mode="stop_the_world"))
    assert stopped is not None
    assert stopped.mode is m.CheckpointMode.STOP_THE_WORLD
    several = options(Job("j", max_concurrent_checkpoints=3))
    assert several is not None
    assert several.max_concurrent == 3
    turning = options(Job("j", checkpoint_mode="unaligned", aligned_timeout_ms=300))
    assert turning is not None
    assert (turning.mode, turning.aligned_timeout_ms) == (m.CheckpointMode.UNALIGNED, 300)


@pytest.mark.parametrize(
    ("made", "strategy"),
    [
        (Restart.exponential(), m.ExponentialRestart()),
        (Restart.exponential(initial_ms=70), m.ExponentialRestart(70)),
        (Restart.exponential(multiplier=3, jitter=0), m.ExponentialRestart(multiplier=3.0, jitter=0.0)),
        (Restart.fixed_delay(), m.FixedDelayRestart()),
        (Restart.failure_rate(delay_ms=5), m.FailureRateRestart(delay_ms=5)),
        (Restart.never(), m.NoRestart()),
    ],
)
def test_omitted_arguments_of_a_restart_strategy_are_left_to_the_cluster(
    made: m.RestartStrategy, strategy: Any
) -> None:
    assert made == m.RestartStrategy(strategy)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Restart.exponential(initial_ms=0), "Restart.exponential: initial_ms must be a whole number from 1"),
        (lambda: Restart.exponential(multiplier=0.5), "Restart.exponential: multiplier must be a number from 1 to"),
        (lambda: Restart.exponential(jitter=1.5), "Restart.exponential: jitter must be a number from 0 to 1, not 1.5"),
        (lambda: Restart.fixed_delay(delay_ms=0), "Restart.fixed_delay: delay_ms must be a whole number from 1"),
        (lambda: Restart.fixed_delay(attempts=-1), "Restart.fixed_delay: attempts must be a whole number from 0"),
        (lambda: Restart.failure_rate(failures=0), "Restart.failure_rate: failures must be a whole number from 1"),
    ],
)
def test_a_restart_strategy_that_cannot_work_is_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(PipelineError, match=re.escape(message)):
        make()


def test_the_key_is_made_once_from_the_name() -> None:
    job = Job("Word count & more")
    assert job.key == job.key
    assert job.key.startswith("Word-count-more-")
    assert Job("j", key="nightly").key == "nightly"
    assert Job("a").key != Job("a").key


def test_the_keys_of_the_aggregate_are_the_default_of_write_sql() -> None:
    job = Job("j")
    job.read_text("/a").key_by("value").aggregate(n=count()).write_sql("sqlite:////c.db", "t")
    kind = job.graph().vertices[1].operators[1].kind
    assert isinstance(kind, m.SqlSink)
    assert kind.keys == ("value",)


def test_append_has_no_keys_even_behind_an_aggregate() -> None:
    job = Job("j")
    stream = job.read_text("/a").key_by("value").aggregate(n=count())
    stream.write_sql("postgresql://u:p@h/d", "s.t", mode="append")
    assert job.graph().vertices[1].operators[1].kind == m.SqlSink(
        "postgresql://u:p@h/d", "s.t", (), m.SqlWriteMode.APPEND
    )


@pytest.mark.spark
def test_connectors_of_the_authors_own() -> None:
    from pyspark import cloudpickle

    class Growing(Squares):
        new_splits_every_ms = 250

    job = Job("j")
    job.read_from(Growing(1)).write_to(JsonFolder(Path("/out")))
    source, sink = (operator.kind for operator in job.graph().vertices[0].operators)
    assert isinstance(source, m.PythonSource)
    assert isinstance(sink, m.PythonSink)
    assert (source.schema, source.continuous, source.poll_interval_ms) == (Squares.schema, True, 250)
    assert cloudpickle.loads(source.source).splits() == {"a": 1}
    assert cloudpickle.loads(sink.sink).folder == Path("/out")
    other = Job("j")
    other.read_from(Squares(1)).write_to(JsonFolder(Path("/out")))
    bounded = other.graph().vertices[0].operators[0].kind
    assert isinstance(bounded, m.PythonSource)
    assert not bounded.continuous


def test_a_socket_is_read_by_one_subtask_and_operators_behind_a_key_by_have_the_jobs_parallelism() -> None:
    job = Job("j", parallelism=3)
    job.read_socket("host", 9999).key_by("value").aggregate(n=count()).print()
    read, counted = job.graph().vertices
    assert read.operators[0].kind == m.SocketSource("host", 9999)
    assert (read.parallelism, counted.parallelism) == (1, 3)


def test_kafka_sources_and_sinks_show_cluster_defaults() -> None:
    job = Job("j")
    job.read_kafka("a:9, b:9", "t", options={"check.crcs": True, "fetch.min.bytes": 1}).write_kafka("a:9", "out")
    read, write = (operator.kind for operator in job.graph().vertices[0].operators)
    options = {"check.crcs": "true", "fetch.min.bytes": "1"}
    assert read == m.KafkaSource("a:9,b:9", ("t",), m.KafkaStart.KAFKA_EARLIEST, False, 30_000, options)
    mode = m.KafkaWriteMode.KAFKA_EXACTLY_ONCE
    assert write == m.KafkaSink("a:9", "out", "", "value", mode, "lockgate-commits", {})
    job = Job("j")
    stream = job.read_kafka("a:9", ["t", "u"], starting="latest", bounded=True)
    stream.write_kafka("a:9", "out", key="k", value="v", mode="at_least_once")
    read, write = (operator.kind for operator in job.graph().vertices[0].operators)
    assert read == m.KafkaSource("a:9", ("t", "u"), m.KafkaStart.KAFKA_LATEST, True, 0, {})
    assert (write.key, write.value, write.mode) == ("k", "v", m.KafkaWriteMode.KAFKA_AT_LEAST_ONCE)


def test_a_delta_table_is_a_folder_or_a_uri_with_options_of_its_store() -> None:
    job = Job("j")
    stream = job.read_text("/a")
    stream.write_delta(Path("tables/orders"))
    stream.write_delta("s3://bucket/orders", options={"AWS_REGION": "eu", "allow_http": True})
    kinds = [operator.kind for vertex in job.graph().vertices for operator in vertex.operators]
    here, there = (kind for kind in kinds if isinstance(kind, m.DeltaSink))
    assert here == m.DeltaSink(str(Path("tables/orders").absolute()))
    assert there == m.DeltaSink("s3://bucket/orders", {"AWS_REGION": "eu", "allow_http": "true"})


class Unnamed(Squares):
    """Without a schema."""

    schema = ""


Mistake = Callable[[Job], Any]

MISTAKES: list[tuple[Mistake, str]] = [
    (lambda job: job.read_text("/a").aggregate(n=count()), 'needs a key: key_by("word")'),
    (lambda job: job.read_text("/a").key_by(), "at least one column name"),
    (lambda job: job.read_text("/a").key_by("a", "a"), "'a' twice"),
    (lambda job: job.read_text("/a").key_by("a").aggregate(), "at least one aggregate"),
    (lambda job: job.read_text("/a").key_by("a").aggregate(n=1), "takes count(), sum_()"),  # type: ignore[arg-type]
    (lambda job: job.read_text("/a").key_by("a").aggregate(a=count()), "name of a key column"),
    (lambda job: job.read_text("/a").sql("SELECT 1"), "relation `input`"),
    (lambda job: job.read_text("/a").sql(""), "needs a query"),
    (lambda job: job.read_text("/a").select(), "at least one expression"),
    (lambda job: job.read_text(""), "needs a path"),
    (lambda job: job.read_csv("/a"), "needs schema="),
    (lambda job: job.read_json("/a", schema=""), "needs schema="),
    (lambda job: job.generate(0), "rows must be a whole number from 1"),
    (lambda job: job.generate(rate=-1), "rate must be a number above 0"),
    (lambda job: job.read_text("/a").write_sql("sqlite:////c.db", "t"), "needs key="),
    (lambda job: job.read_text("/a").write_sql("counts.db", "t", key="a"), "an SQLAlchemy URL"),
    (lambda job: job.read_text("/a").write_sql("sqlite://", "t", key="a"), "in memory"),
    (lambda job: job.read_text("/a").write_sql("sqlite:///:memory:", "t", key="a"), "in memory"),
    (lambda job: job.read_text("/a").write_sql("postgresql://u:p@ss@h/d", "t", key="a"), "more than one @: write %40"),
    (lambda job: job.read_text("/a").write_sql("mysql://h/d", "t", key="a"), "sqlite:/// and postgresql://, not mysql"),
    (lambda job: job.read_text("/a").write_sql("sqlite:///c", "t", mode="add"), 'one of "upsert", "append"'),  # type: ignore[arg-type]
    (lambda job: job.read_text("/a").write_sql("sqlite:///c", "t", "a", mode="append"), "omit key="),
    (lambda job: job.read_socket("", 9), "needs a host"),
    (lambda job: job.read_socket("h", 0), "port must be a whole number from 1 to 65535"),
    (lambda job: job.read_kafka("", "t"), "needs servers"),
    (lambda job: job.read_kafka("h:9", []), "needs a topic"),
    (lambda job: job.read_kafka("h:9", "t", starting="5"), 'one of "earliest", "latest"'),  # type: ignore[arg-type]
    (lambda job: job.read_kafka("h:9", "t", options=["a"]), "names and values of librdkafka"),  # type: ignore[arg-type]
    (lambda job: job.read_text("/a").write_kafka("h:9", "t", mode="all"), 'one of "exactly_once", "at_least_once"'),  # type: ignore[arg-type]
    (lambda job: job.read_text("/a").write_kafka("h:9", ""), "needs a topic"),
    (lambda job: job.read_text("/a").write_delta(""), "needs a path"),
    (lambda job: job.read_text("/a").write_delta("/t", options="a"), "takes options={"),  # type: ignore[arg-type]
    (lambda job: job.read_from(Squares), "an object, not the class: read_from(Squares(...))"),  # type: ignore[arg-type]
    (lambda job: job.read_from("x"), "derives from CustomSource, not 'x'"),  # type: ignore[arg-type]
    (lambda job: job.read_from(Unnamed(1)), "needs schema="),
    (lambda job: job.read_text("/a").write_to(Squares(1)), "derives from CustomSink"),  # type: ignore[arg-type]
    (lambda job: job.read_text("/a").write_to(JsonFolder(threading.Lock())), "make them in its open()"),  # type: ignore[arg-type]
    (lambda job: job.read_text("/a").uid("no spaces"), "uid() takes"),
    (lambda job: job.read_text("/a").uid("x").print().uid("x"), "taken by read_text()"),
    (lambda job: job.read_text("/a").parallelism(0), "from 1 to 128"),
    (lambda job: job.read_text("/a").parallelism(129), "from 1 to 128"),
    (lambda job: job.read_text("/a").key_by("a").parallelism(2), "call it right after one"),
    (lambda job: job.read_text("/a").key_by("a").rebalance(), "right after another repartitioning"),
    (lambda job: job.read_text("/a").union(), "at least one other stream"),
    (lambda job: job.read_text("/a").union(Job("k").read_text("/b")), "of the same Job"),
    (lambda job: (s := job.read_text("/a")).union(s), "union() of a stream with itself"),
    (lambda job: job.read_text("/a").transform("f"), "takes a function of (df), not str"),  # type: ignore[arg-type]
    (lambda job: job.read_text("/a").transform(lambda: None), "calls its function with (df)"),  # type: ignore[arg-type,misc]
    (lambda job: job.read_text("/a").foreach_batch(lambda df: None), "(df, checkpoint_id)"),  # type: ignore[arg-type,misc]
    (lambda job: Job(""), "a name"),
    (lambda job: Job("j", key="no/slash"), "a job key is"),
    (lambda job: Job("j", parallelism=200), "from 1 to 128"),
    (lambda job: Job("j", state="ram"), "state must be"),
    (lambda job: Job("j", restart="never"), "restart takes"),  # type: ignore[arg-type]
    (lambda job: Job("j", aligned_timeout_ms=5), 'belongs to checkpoint_mode="unaligned"'),
    (lambda job: Job("j", checkpoint_mode="loose"), 'one of "exactly_once", "at_least_once"'),  # type: ignore[arg-type]
    (lambda job: Job("j", checkpoint_interval_ms=1.5), "whole number"),  # type: ignore[arg-type]
    (lambda job: job.graph(), "the pipeline is empty"),
    (lambda job: (job.read_text("/a").filter("1=1"), job.graph()), "the output of filter() here is not used"),
    (lambda job: count(1), "takes a column name"),  # type: ignore[arg-type]
]  # fmt: skip


@pytest.mark.spark
@pytest.mark.parametrize(("mistake", "words"), MISTAKES, ids=[words for _, words in MISTAKES])
def test_a_mistake_is_reported_at_once_with_its_line(mistake: Mistake, words: str) -> None:
    with pytest.raises(PipelineError) as caught:
        mistake(Job("j"))
    assert words in str(caught.value)
    line = inspect.getsourcelines(mistake)[1]
    assert str(caught.value).startswith(f"{__file__}:{line}: ")


def test_a_job_that_has_changed_since_it_was_submitted_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[m.JobGraph] = []
    monkeypatch.setattr("lockgate.pipeline.submission.submit", lambda _job, graph, *_rest: sent.append(graph))
    job = word_count()
    job.submit()
    job.submit()
    assert sent[0] == sent[1]
    job.read_text("/other").print()
    with pytest.raises(PipelineError, match="submitted already and has changed since"):
        job.submit()


@pytest.mark.spark
def test_foreach_batch_runs_in_one_subtask_by_default() -> None:
    job = Job("calls", parallelism=3)
    counts = job.generate(3).key_by("partition").aggregate(n=count())
    counts.foreach_batch(lambda df, checkpoint_id: None).uid("all")
    counts.foreach_batch(lambda df, checkpoint_id: None).uid("some").parallelism(2)
    graph = job.graph()
    width = {vertex.id: vertex.parallelism for vertex in graph.vertices}
    assert (width["all"], width["some"]) == (1, 2)
    into = {edge.target: edge.partitioning for edge in graph.edges}
    assert into["all"] is m.Partitioning.REBALANCE


@pytest.mark.spark
def test_a_schema_of_pyspark_types_is_converted_with_any_names() -> None:
    from pyspark.sql.types import ArrayType, DecimalType, IntegerType, MapType, StringType, StructField, StructType

    inner = StructType([StructField("order id", IntegerType()), StructField("a`b", ArrayType(StringType()))])
    columns = [
        StructField("c`d", MapType(StringType(), inner)),
        StructField("e", DecimalType(10, 2), nullable=False),
    ]
    schema = checks.schema("read_json", StructType(columns))
    assert schema == "`c``d` MAP<string, STRUCT<`order id`: int, `a``b`: ARRAY<string>>>, `e` decimal(10,2)"
