"""`on_error` in the builder: what graph it becomes, and the errors its author gets."""

# ruff: noqa: ARG005  (each mistake is a lambda of one stream)

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from lockgate_proto import messages as m

from lockgate import Job, PipelineError, ProcessFunction, count, dead_letter
from lockgate.commands.views import job_text
from lockgate.json_shapes import job_json
from lockgate.pipeline.stream import Stream


class Passes(ProcessFunction):
    def process(self, context: Any, row: dict[str, Any]) -> Any:  # noqa: ARG002
        return row


OPERATORS: dict[str, Callable[[Stream, Any], Stream]] = {
    "sql": lambda stream, choice: stream.sql("SELECT * FROM input", on_error=choice),
    "select": lambda stream, choice: stream.select("value", on_error=choice),
    "filter": lambda stream, choice: stream.filter("value > 1", on_error=choice),
    "transform": lambda stream, choice: stream.transform(lambda df: df, on_error=choice),
    "map": lambda stream, choice: stream.map(lambda record: record, "value INT", on_error=choice),
    "flat_map": lambda stream, choice: stream.flat_map(lambda record: [record], "value INT", on_error=choice),
    "event_time": lambda stream, choice: stream.event_time("value", out_of_order=0, on_error=choice),
    "process": lambda stream, choice: stream.key_by("value").process(Passes(), schema="a INT", on_error=choice),
}


@pytest.mark.spark
@pytest.mark.parametrize("method", OPERATORS)
def test_every_operator_that_calls_something_for_records_takes_it(method: str) -> None:
    for choice, expected in (
        ("fail", (m.OnError.ON_ERROR_UNSPECIFIED, "")),
        ("skip", (m.OnError.SKIP, "")),
        (dead_letter("bad"), (m.OnError.DEAD_LETTER, "bad")),
    ):
        job = Job("x")
        OPERATORS[method](job.read_text("/in"), choice).print()
        if choice == dead_letter("bad"):
            job.dead_letters("bad").print()
        found = [
            operator
            for vertex in job.graph().vertices
            for operator in vertex.operators
            if operator.id.startswith(method)
        ]
        assert [(operator.on_error, operator.dead_letters) for operator in found] == [expected]


def test_operators_of_several_vertices_share_one_stream_of_dead_letters() -> None:
    job = Job("x", parallelism=2)
    first = job.read_text("/in").select("a", on_error=dead_letter("bad")).filter("a > 1", on_error=dead_letter("bad"))
    first.rebalance().select("b", on_error=dead_letter("bad")).select("c", on_error="skip").print()
    job.dead_letters("bad").write_json("/bad")
    graph = job.graph()
    assert [[op.id for op in vertex.operators] for vertex in graph.vertices] == [
        ["read_text-1", "select-1", "filter-1"],
        ["select-2", "select-3", "print-1"],
        ["write_json-1"],
    ]
    assert graph.edges[1:] == (
        m.Edge("read_text-1", "write_json-1", m.Partitioning.FORWARD, side_output="bad"),
        m.Edge("select-2", "write_json-1", m.Partitioning.FORWARD, side_output="bad"),
    )


def unread(job: Job) -> None:
    job.read_text("/in").select("a", on_error=dead_letter("bad")).print()
    job.graph()


def named_too_late(job: Job) -> None:
    stream = job.read_text("/in").select("a", on_error=dead_letter("bad"))
    job.dead_letters("bad").print()
    stream.select("b", on_error=dead_letter("bad")).print()
    job.graph()


MISTAKES: list[tuple[Callable[[Job], Any], str]] = [
    (lambda job: job.read_text("/in").select("a", on_error="ignore"), 'select(): on_error must be "fail", "skip" or'),  # type: ignore[arg-type]
    (lambda job: job.read_text("/in").select("a", on_error=True), "not True"),  # type: ignore[arg-type]
    (lambda job: dead_letter("no spaces"), "dead_letter() takes a name"),
    (lambda job: dead_letter("late"), "except 'late'"),
    (lambda job: job.dead_letters("bad"), "no operator before this line has on_error=dead_letter('bad')"),
    (lambda job: job.dead_letters(""), "no operator before this line"),
    (unread, "records that fail in select() here go to the dead letters 'bad', which are not used"),
    (named_too_late, "call job.dead_letters('bad') behind the last operator that names them"),
    (
        lambda job: job.read_text("/in").key_by("a").aggregate(n=count(), on_error="skip"),  # type: ignore[arg-type]
        "aggregate() cannot skip single records; compute its inputs with select(..., on_error=...)",
    ),
]


@pytest.mark.parametrize(("mistake", "message"), MISTAKES)
def test_mistakes(mistake: Callable[[Job], Any], message: str) -> None:
    with pytest.raises(PipelineError, match=re.escape(message)):
        mistake(Job("x"))


def test_failed_records_are_shown() -> None:
    operators = (m.OperatorStatus("a", "cast", "v", 1_300, 90, records_failed=1_210), m.OperatorStatus("b", "sink"))
    status = m.JobStatus(job_key="x", operators=operators)
    text = job_text(status)
    assert "1,210 records failed in cast and were skipped, or went to its dead letters" in text
    assert "failed in sink" not in text
    assert [operator["records_failed"] for operator in job_json(status)["operators"]] == [1_210, 0]  # type: ignore[union-attr,index,call-overload]
