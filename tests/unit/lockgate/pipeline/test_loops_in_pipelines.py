"""Loops in the builder: the graph that they become, and the errors their author gets."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from lockgate_coordinator.graph.validate import validate
from lockgate_proto.messages import Edge, KeyedProcess, Partitioning

from lockgate import Job, PipelineError, ProcessFunction, count

FORWARD, HASH, REBALANCE, FEEDBACK = (
    Partitioning.FORWARD,
    Partitioning.HASH,
    Partitioning.REBALANCE,
    Partitioning.FEEDBACK,
)


def _calls(job: Job) -> Any:
    return job.generate(10).select("sequence AS n", "0 AS tries")


def test_a_loop_is_a_separate_vertex_with_a_back_edge() -> None:
    job = Job("retry", parallelism=2)
    loop = _calls(job).loop()
    tried = loop.select("n", "tries + 1 AS tries")
    loop.close_with(tried.filter("tries < n"))
    tried.filter("tries >= n").print()
    graph = job.graph()
    assert [vertex.id for vertex in graph.vertices] == ["generate-1", "loop-1", "filter-1", "filter-2"]
    assert set(graph.edges) == {
        Edge("generate-1", "loop-1", FORWARD),
        Edge("filter-1", "loop-1", FEEDBACK, feedback=FORWARD),
        Edge("loop-1", "filter-1", FORWARD),
        Edge("loop-1", "filter-2", FORWARD),
    }
    assert validate(graph) == ()


def test_several_streams_return_each_with_its_own_partitioning() -> None:
    job = Job("ways", parallelism=2)
    loop = _calls(job).rebalance().loop()
    body = loop.select("n", "tries + 1 AS tries")
    keyed = body.filter("tries < 3").key_by("n")
    narrow = body.filter("tries > 5").parallelism(1)
    loop.close_with(keyed, body.filter("n = 1").rebalance(), narrow)
    body.key_by("n").aggregate(laps=count()).print()
    back = [edge for edge in job.graph().edges if edge.partitioning is FEEDBACK]
    assert [(edge.feedback, edge.keys) for edge in back] == [(HASH, ("n",)), (REBALANCE, ()), (REBALANCE, ())]
    assert validate(job.graph()) == ()


def test_a_loop_whose_only_operator_leads_back_to_itself() -> None:
    job = Job("self", parallelism=2)
    loop = _calls(job).loop()
    body = loop.sql("SELECT n, tries + 1 AS tries FROM input WHERE tries < 3")
    loop.close_with(body)
    body.print()
    edges = job.graph().edges
    assert Edge("loop-1", "loop-1", FEEDBACK, feedback=FORWARD) in edges
    assert validate(job.graph()) == ()


def test_loops_within_loops() -> None:
    job = Job("nested", parallelism=2)
    outer = _calls(job).loop()
    inner = outer.filter("n > 1").loop()
    body = inner.select("n", "tries + 1 AS tries")
    inner.close_with(body.filter("tries % 3 > 0"))
    lap = body.filter("tries % 3 = 0")
    outer.close_with(lap.filter("tries < n"))
    lap.filter("tries >= n").print()
    assert validate(job.graph()) == ()


def _twice(job: Job) -> None:
    loop = _calls(job).loop()
    body = loop.filter("n > 1")
    loop.close_with(body)
    loop.close_with(body)


def _open(job: Job) -> None:
    _calls(job).loop().print()
    job.graph()


MISTAKES: dict[str, tuple[Callable[[Job], object], str]] = {
    "nothing goes back": (lambda job: _calls(job).loop().close_with(), "needs the stream to feed back"),
    "no stream": (lambda job: _calls(job).loop().close_with("x"), "takes streams, not str"),
    "not behind it": (
        lambda job: _calls(job).loop().close_with(_calls(job)),
        "select() at .* is not part of this loop",
    ),
    "closed twice": (_twice, "this loop is closed already"),
    "left open": (_open, "the loop that begins here is open; close_with() says which stream goes back to it"),
    "broadcast": (
        lambda job: (lambda loop: loop.close_with(loop.filter("n > 1").broadcast()))(_calls(job).loop()),
        "takes neither broadcast() nor side outputs",
    ),
    "the same twice": (
        lambda job: (lambda loop, body: loop.close_with(body, body))(*_with_body(_calls(job).loop())),
        "names a stream twice",
    ),
}


def _with_body(loop: Any) -> tuple[Any, Any]:
    return loop, loop.filter("n > 1")


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_reported_with_the_authors_line(name: str) -> None:
    mistake, sentence = MISTAKES[name]
    with pytest.raises(PipelineError, match=re.escape(sentence).replace(r"\.\*", ".*")) as raised:
        mistake(Job("wrong"))
    assert "test_loops_in_pipelines.py" in str(raised.value)


class Once(ProcessFunction):
    def process(self, context: Any, row: dict[str, Any]) -> Any:  # noqa: ARG002
        yield row


class Later(Once):
    def on_timer(self, context: Any, timer: Any) -> Any:  # noqa: ARG002
        return ()


@pytest.mark.spark  # functions are pickled with PySpark
@pytest.mark.parametrize(("function", "is_fine"), [(Once(), True), (Later(), False)])
def test_a_process_function_may_be_inside_if_it_cannot_set_timers(function: ProcessFunction, is_fine: bool) -> None:
    job = Job("j", parallelism=2)
    schema = "n BIGINT, tries INT"
    loop = _calls(job).key_by("n").process(function, schema=schema).loop()
    tried = (
        loop.select("n", "tries + 1 AS tries").key_by("n").deduplicate().key_by("n").process(function, schema=schema)
    )
    loop.close_with(tried.filter("tries < n"))
    tried.print()
    graph = job.graph()
    kinds = {operator.id: operator.kind for vertex in graph.vertices for operator in vertex.operators}
    bound = {name: kind.without_timers for name, kind in kinds.items() if isinstance(kind, KeyedProcess)}
    assert bound == {"process-1": False, "process-2": is_fine}, "outside a loop the graph is as it was"
    problems = validate(graph)
    assert not problems if is_fine else ["its function may set timers" in problem for problem in problems] == [True]
