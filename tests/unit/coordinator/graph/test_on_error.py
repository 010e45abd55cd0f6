"""on_error in graphs: where it is refused, in which words, and what is counted."""

from __future__ import annotations

from dataclasses import replace

import pytest
from lockgate_coordinator.graph.validate import validate
from lockgate_coordinator.job.counters import summed
from lockgate_proto.messages import (
    ConsoleSink,
    Deduplicate,
    Edge,
    EventTime,
    ForeachBatchSink,
    JobGraph,
    KeyedProcess,
    ObjectState,
    OnError,
    Operator,
    OperatorCounters,
    Partitioning,
    PythonTransform,
    RecordCall,
    RecordForm,
    RecordFunction,
    SqlTransform,
    Vertex,
)

from tests.unit.coordinator.jobs import COUNT, FILES

SQL = SqlTransform("SELECT * FROM input")
TIME = EventTime("at", "", 1000)


def graph(kind: object, on_error: OnError, dead_letters: str = "", read_as: str = "") -> JobGraph:
    """files -> `kind` -> console; read_as: the side output that another console reads."""
    middle = Operator("middle", kind=kind, on_error=on_error, dead_letters=dead_letters)  # type: ignore[arg-type]
    source, show = Operator("source", kind=FILES), Operator("show", kind=ConsoleSink())
    if isinstance(kind, ConsoleSink | ForeachBatchSink):
        vertices = (Vertex("all", parallelism=1, operators=(source, middle)),)
        return JobGraph("x", vertices)
    keys = getattr(kind, "keys", None)
    if kind is FILES:
        vertices = (Vertex("all", parallelism=1, operators=(middle, show)),)
        edges: tuple[Edge, ...] = ()
    elif keys is None:
        vertices = (Vertex("all", parallelism=1, operators=(source, middle, show)),)
        edges = ()
    else:
        vertices = (
            Vertex("read", parallelism=1, operators=(source,)),
            Vertex("all", parallelism=1, operators=(middle, show)),
        )
        edges = (Edge("read", "all", Partitioning.HASH, keys),)
    if read_as:
        vertices += (Vertex("bad", parallelism=1, operators=(Operator("show-bad", kind=ConsoleSink()),)),)
        edges += (Edge("all", "bad", Partitioning.FORWARD, side_output=read_as),)
    return JobGraph("x", vertices, edges)


PROCESS = KeyedProcess(("word",), b"x", "f", "a INT")


@pytest.mark.parametrize("kind", [SQL, PythonTransform(b"x"), TIME, PROCESS])
def test_on_error_is_accepted_where_it_is_supported(kind: object) -> None:
    assert validate(graph(kind, OnError.SKIP)) == ()
    assert validate(graph(kind, OnError.FAIL)) == ()
    assert validate(graph(kind, OnError.DEAD_LETTER, "bad", "bad")) == ()


@pytest.mark.parametrize(
    ("broken", "expected"),
    [
        (
            graph(
                RecordFunction(
                    b"x", "f", RecordCall.MAP, RecordForm.ARROW, "word STRING", ObjectState.OBJECT_STATE_FIXED
                ),
                OnError.SKIP,
            ),
            "'middle' has an object with state, and is vectorized: it cannot leave out single records",
        ),
        (graph(COUNT, OnError.SKIP), "'middle' cannot leave out single records: compute its keys and inputs with a"),
        (graph(Deduplicate(("word",)), OnError.SKIP), "'middle' cannot leave out single records: compute its keys"),
        (graph(ConsoleSink(), OnError.SKIP), "a sink shows the whole output of a checkpoint"),
        (graph(ForeachBatchSink(b"x"), OnError.SKIP), "filter such records out with a transform before it"),
        (graph(FILES, OnError.SKIP), "the source's option mode decides what happens to invalid lines"),
        (graph(SQL, OnError.SKIP, "bad"), "names dead letters 'bad', but its on_error is not DEAD_LETTER"),
        (graph(SQL, OnError.DEAD_LETTER), "calls its dead letters ''"),
        (graph(SQL, OnError.DEAD_LETTER, "late", "late"), "and not 'late'"),
        (graph(SQL, OnError.DEAD_LETTER, "a b"), "calls its dead letters 'a b'"),
        (graph(SQL, OnError.DEAD_LETTER, "bad"), "the dead letters 'bad', which nothing reads"),
        (
            graph(SQL, OnError.DEAD_LETTER, "bad", "worse"),
            "requests the side output 'worse': there is only 'late', and",
        ),
        (graph(SQL, OnError.SKIP, "", "bad"), "requests the side output 'bad'"),
    ],
)
def test_unsupported_or_incomplete_on_error_is_refused(broken: JobGraph, expected: str) -> None:
    assert any(expected in problem for problem in validate(broken)), validate(broken)


def test_a_sink_may_not_have_it_in_a_graph_that_is_right_otherwise() -> None:
    assert validate(graph(ConsoleSink(), OnError.ON_ERROR_UNSPECIFIED)) == ()
    assert len(validate(graph(ConsoleSink(), OnError.SKIP))) == 1


def test_failed_records_are_summed() -> None:
    operator_counters = OperatorCounters("a", 5, 4, records_failed=1)
    assert summed("a", [operator_counters, replace(operator_counters, records_failed=7)]) == OperatorCounters(
        "a", 10, 8, records_failed=8
    )
