"""What a job has read and written in all, while it runs and in its result."""

from __future__ import annotations

from dataclasses import replace

import pytest
from lockgate_coordinator.job import effects, events
from lockgate_coordinator.job.counters import JobCounters
from lockgate_coordinator.runtime.views import given_up, status_of
from lockgate_proto import messages as m

from tests.unit.coordinator.driver import Driver
from tests.unit.coordinator.jobs import source_state, subtask


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


def test_output_of_sources_and_input_of_the_last_operators_is_counted() -> None:
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


def test_a_stopped_job_has_read_what_its_savepoint_holds_and_no_more() -> None:
    """Its sources read on until they are cancelled, and then say how far they came."""
    driver = Driver().run()
    driver.give(events.StopRequested("s"))
    driver.give(events.OrdersPersisted(driver.one(effects.PersistOrders).orders))
    number = driver.one(effects.PersistCheckpointId).checkpoint_id
    driver.give(events.CheckpointIdPersisted(number))
    held = source_state("read", 0, (m.SplitState("file-0", offset=70, end=90),))
    driver.acknowledge(number, {("read", 0): replace(held, counters=(m.OperatorCounters("source", 0, 70),))})
    driver.persisted(driver.one(effects.PersistCheckpoint))
    driver.commit(number)
    assert driver.result().records_read == 70
    last = m.SubtaskReport(
        subtask("read", 0), m.SubtaskPhase.SUBTASK_CANCELED, counters=(m.OperatorCounters("source", 0, 90),)
    )
    driver.give(events.TaskManagerReport("tm-a", events.Reported(last)))
    driver.give(events.ResultPersisted())
    assert driver.master.status().records_read == 70


@pytest.mark.parametrize(
    "result", [m.JobResult("job", counters=TOTALS), given_up(m.JobRecord("job"), "it could not be read", 1, 1)]
)
def test_unknown_totals_are_not_guessed(result: m.JobResult) -> None:
    """Of a job that ended under an older version, or was never read."""
    found = status_of(result, "h:1")
    assert (found.records_read, found.records_written) == (None, None)
