"""What a preview makes of a job graph."""

from __future__ import annotations

import pytest
from lockgate_proto.messages import FileSource, GeneratorSource, JobGraph, PythonSink

from lockgate import Job, count
from lockgate.preview.sample import NoPreview, sampled, sinks


def collector(operator_id: str) -> bytes:
    return operator_id.encode()


def graph() -> JobGraph:
    job = Job("j", parallelism=4, state="rocksdb")
    rows = job.generate(rate=10, partitions=3).uid("rows")
    rows.write_parquet("/out").uid("ledger")
    job.read_text("/in", continuous=True).uid("lines").print().uid("printed")
    rows.key_by("partition").aggregate(n=count()).write_sql("sqlite:////t.db", "t").uid("table")
    return job.graph()


def test_every_vertex_has_one_subtask_and_every_sink_collects() -> None:
    made = sampled(graph(), 10, collector)
    assert {vertex.parallelism for vertex in made.vertices} == {1}
    kinds = {operator.id: operator.kind for vertex in made.vertices for operator in vertex.operators}
    assert [key for key, kind in kinds.items() if isinstance(kind, PythonSink) and kind.sink == key.encode()] == list(
        sinks(graph())
    )
    assert set(sinks(graph())) == {"ledger", "printed", "table"}
    assert made.state_backend is None


def test_sources_end() -> None:
    kinds = [operator.kind for vertex in sampled(graph(), 10, collector).vertices for operator in vertex.operators]
    assert [kind for kind in kinds if isinstance(kind, GeneratorSource)] == [GeneratorSource(3, 4, 0.0)]
    assert [kind.continuous for kind in kinds if isinstance(kind, FileSource)] == [False]
    short = Job("j")
    short.generate(2, partitions=1).print()
    assert sampled(short.graph(), 10, collector).vertices[0].operators[0].kind == GeneratorSource(1, 2)


def test_a_loop_is_refused() -> None:
    job = Job("j")
    loop = job.generate(10).loop()
    loop.close_with(loop.filter("sequence > 5"))
    loop.filter("sequence <= 5").print()
    with pytest.raises(NoPreview, match="cannot run a loop"):
        sampled(job.graph(), 10, collector)
