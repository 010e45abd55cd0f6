"""What a job has read and written in all, while it runs and in its result."""

from __future__ import annotations

import pytest
from lockgate_coordinator.job import events
from lockgate_coordinator.job.counters import JobCounters
from lockgate_coordinator.runtime.views import given_up, status_of
from lockgate_proto import messages as m

from tests.unit.coordinator.driver import Driver
from tests.unit.coordinator.jobs import subtask


def _vertex(name: str, *operators: str) -> m.Vertex:
    return m.Vertex(id=name, operators=tuple(m.Operator(id=operator) for operator in operators))


LOOP = m.JobGraph(
    vertices=(
        _vertex("a", "read", "map"),
        _vertex("b", "read other"),
        _vertex("c", "merge", "write"),
        _vertex("d", "late"),
    ),
    edges=(
        m.Edge("a", "c", m.Partitioning.HASH),
        m.Edge("b", "c", m.Partitioning.REBALANCE),
        m.Edge("c", "a", m.Partitioning.FEEDBACK),
        m.Edge("c", "d", m.Partitioning.FORWARD, side_output="late"),
    ),
)
TOTALS = (
    m.OperatorCounters("read", 0, 5),
    m.OperatorCounters("map", 5, 4),
    m.OperatorCounters("read other", 0, 7),
    m.OperatorCounters("merge", 11, 11),
    m.OperatorCounters("write", 11, 0),
    m.OperatorCounters("late", 2, 0),
)


def test_what_sources_put_out_and_the_last_operators_get_is_counted() -> None:
    assert JobCounters(LOOP).read_and_written(TOTALS) == (12, 2)
    one = m.JobGraph(vertices=(_vertex("a", "read", "map"),))
    assert JobCounters(one).read_and_written(TOTALS[:2]) == (5, 5)
    assert JobCounters(m.JobGraph()).read_and_written(()) == (0, 0)


def test_the_result_keeps_the_totals_for_later_leaders() -> None:
    driver = Driver().run()
    for vertex, counted in (
        ("read", m.OperatorCounters("source", 0, 70)),
        ("count", m.OperatorCounters("counts", 60, 9)),
    ):
        last = m.OperatorCounters(driver.master._attempts.graph.vertices[-1].operators[-1].id, 9, 0)
        counters = (counted, last) if vertex == "count" else (counted,)
        driver.give(events.CountersReported((m.SubtaskCounters(subtask(vertex, 0), counters),)))
    status = driver.master.status()
    driver.give(events.CancelRequested())
    for name in ("tm-a", "tm-b"):
        driver.gone(name)
    result = driver.result()
    assert (status.records_read, status.records_written) == (result.records_read, result.records_written)
    assert result.records_read == 70
    found = status_of(result, "h:1")
    assert (found.records_read, found.records_written) == (result.records_read, result.records_written)


@pytest.mark.parametrize(
    "result", [m.JobResult("job", counters=TOTALS), given_up(m.JobRecord("job"), "it could not be read", 1, 1)]
)
def test_what_is_not_known_is_not_guessed(result: m.JobResult) -> None:
    """Of a job that ended under an older version, or was never read."""
    found = status_of(result, "h:1")
    assert (found.records_read, found.records_written) == (None, None)
