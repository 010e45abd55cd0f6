"""A component of a job that restarts as a whole leaves alone what is in other slots."""

from __future__ import annotations

from dataclasses import replace

import pytest
from lockgate_coordinator.graph.slots import SlotOffer
from lockgate_coordinator.graph.warnings import warnings
from lockgate_coordinator.job import effects, events
from lockgate_proto.layout import layout_of, subtasks_on
from lockgate_proto.messages import (
    AwaitPart,
    CancelAttempt,
    Deploy,
    Edge,
    FileFormat,
    FileSink,
    JobEventKind,
    JobGraph,
    JobState,
    Operator,
    Partitioning,
    RejoinPart,
    SubtaskPhase,
    TaskManagerFailover,
    Vertex,
)

from tests.unit.coordinator.driver import Driver
from tests.unit.coordinator.jobs import FILES, attempt, word_count

PART = TaskManagerFailover.TASK_MANAGER_FAILOVER_PART
SLOTS = tuple(SlotOffer(name, f"{name}:1") for name in ("tm-a", "tm-a", "tm-b", "tm-b"))
EXCHANGING = ("read", "count")
"""The vertices of `word_count`."""


def forward_graph(parallelism: int) -> tuple[tuple[Vertex, ...], tuple[Edge, ...]]:
    """lines(source) --FORWARD--> copy(file sink)"""
    source, sink = Operator("lines-read", kind=FILES), Operator("copy-write", kind=FileSink("/out", FileFormat.PARQUET))
    vertices = (Vertex("lines", parallelism=parallelism, operators=(source,)), Vertex("copy", parallelism=parallelism))
    return (vertices[0], replace(vertices[1], operators=(sink,))), (Edge("lines", "copy", Partitioning.FORWARD),)


def graph(exchanging: int, forward: int, **options: object) -> JobGraph:
    """Two components, of so many subtasks a vertex. One exchanges records."""
    words, (vertices, edges) = word_count(parallelism=exchanging), forward_graph(forward)
    found = replace(words, vertices=(*words.vertices, *vertices), edges=(*words.edges, *edges))
    return replace(found, **options)  # type: ignore[arg-type]


def running(job: JobGraph, slots: tuple[SlotOffer, ...] = SLOTS) -> Driver:
    driver = Driver(job)
    driver.deploy(driver.recover().request, slots)
    for vertex in job.vertices:
        for index in range(vertex.parallelism):
            driver.report(SubtaskPhase.SUBTASK_RUNNING, (vertex.id, index))
    assert driver.state is JobState.RUNNING
    return driver


def lose(driver: Driver, name: str) -> None:
    driver.give(events.TaskManagerLost(name, "its process ended"))


def deployed(driver: Driver, slots: tuple[SlotOffer, ...]) -> dict[str, set[tuple[str, int]]]:
    """The subtasks that begin again, by task manager."""
    driver.tick(1_000)
    driver.deploy(driver.one(effects.RequestSlots).request, slots)
    return {name: set(subtasks_on(layout_of(deploy), name)) for name, deploy in driver.sent(Deploy)}


def test_the_loss_of_a_task_manager_without_a_component_does_not_touch_it() -> None:
    """It is the one that restarts as a whole."""
    driver = running(graph(2, 4))
    lose(driver, "tm-b")
    assert (driver.sent(CancelAttempt), driver.sent(AwaitPart)) == ([], [])
    assert driver.emitted(JobEventKind.RESTART_EXTENT) == [
        "only copy-2, copy-3, lines-2, lines-3 restart, 4 of 12 subtasks: task manager tm-b is lost: its process ended"
    ]
    new = (*SLOTS[:2], *(SlotOffer("tm-c", "c:1"),) * 2)
    assert deployed(driver, new) == {"tm-c": {("lines", 2), ("lines", 3), ("copy", 2), ("copy", 3)}}
    assert driver.sent(RejoinPart) == []


def test_a_component_that_restarts_as_a_whole_takes_its_slots_and_no_others() -> None:
    driver = running(graph(2, 4), (SLOTS[0], *SLOTS[2:], SLOTS[1]))  # slots 1 and 2 are on tm-b
    lose(driver, "tm-b")
    assert driver.sent(CancelAttempt) == [
        ("tm-a", CancelAttempt(attempt(1), "task manager tm-b is lost: its process ended", slots=(0,)))
    ]
    found = deployed(driver, (SLOTS[0], *(SlotOffer("tm-c", "c:1"),) * 2, SLOTS[1]))
    both = {(vertex, index) for vertex in EXCHANGING for index in (0, 1)}
    assert set().union(*found.values()) == both | {(name, slot) for name in ("lines", "copy") for slot in (0, 1, 2)}
    assert driver.state is JobState.DEPLOYING


def test_a_failed_subtask_takes_along_what_it_exchanges_records_with() -> None:
    driver = running(graph(2, 4))
    driver.report(SubtaskPhase.SUBTASK_FAILED, ("count", 1), error="broke")
    ((name, cancel),) = driver.sent(CancelAttempt)
    assert (name, cancel.slots) == ("tm-a", (0, 1))


def test_a_failed_subtask_of_the_other_component_restarts_alone_in_a_slot_without_the_first() -> None:
    driver = running(graph(2, 4))
    driver.report(SubtaskPhase.SUBTASK_FAILED, ("copy", 3), error="broke")
    ((name, cancel),) = driver.sent(CancelAttempt)
    assert (name, cancel.slots) == ("tm-b", (3,))


def test_a_component_in_all_slots_restarts_the_whole_job_and_is_named() -> None:
    driver = running(graph(3, 4))
    lose(driver, "tm-b")
    assert driver.emitted(JobEventKind.RESTART_EXTENT) == [
        "the whole job restarts: every subtask of 'count' reads from every subtask of 'read'"
    ]


def spread(exchanging: int, spread: int) -> JobGraph:
    """With PART: a component that keeps what it sends, and one that does not since it distributes records in turn."""
    vertices, (edge,) = forward_graph(spread)
    edges = (replace(edge, partitioning=Partitioning.REBALANCE),)
    words = word_count(parallelism=exchanging)
    return replace(
        words, vertices=(*words.vertices, *vertices), edges=(*words.edges, *edges), task_manager_failover=PART
    )


def test_a_component_that_keeps_what_it_sends_restarts_in_part_beside_one_that_does_not() -> None:
    driver = running(spread(4, 2))
    lose(driver, "tm-b")
    assert driver.sent(AwaitPart) == [("tm-a", AwaitPart(attempt(1), (2, 3)))]
    new = (*SLOTS[:2], *(SlotOffer("tm-c", "c:1"),) * 2)
    assert deployed(driver, new) == {"tm-c": {(vertex, index) for vertex in EXCHANGING for index in (2, 3)}}
    assert [name for name, _ in driver.sent(RejoinPart)] == ["tm-a"]


def test_a_failed_subtask_takes_along_only_the_slots_of_its_component_on_its_task_manager() -> None:
    driver = running(graph(3, 4, task_manager_failover=PART))
    driver.report(SubtaskPhase.SUBTASK_FAILED, ("count", 2), error="broke")
    assert driver.sent(AwaitPart) == [
        ("tm-a", AwaitPart(attempt(1), (2,))),
        ("tm-b", AwaitPart(attempt(1), (2,))),
    ]


@pytest.mark.parametrize("parallelism", [1, 4])
def test_components_that_all_restart_as_a_whole_restart_together(parallelism: int) -> None:
    job = spread(4, parallelism)
    driver = running(replace(job, task_manager_failover=TaskManagerFailover.TASK_MANAGER_FAILOVER_UNSPECIFIED))
    lose(driver, "tm-b")
    assert driver.emitted(JobEventKind.RESTART_EXTENT) == [
        "the whole job restarts: every subtask of 'count' reads from every subtask of 'read'"
    ]


@pytest.mark.parametrize(("beside", "what"), [(4, "the whole job"), (2, "and what shares slots with it")])
def test_the_warning_at_submission_says_what_restarts(beside: int, what: str) -> None:
    (warning,) = (found for found in warnings(spread(4, beside)) if "task_manager_failover" in found)
    assert f"The loss of a task manager restarts {what}" in warning or f", {what}, in spite of" in warning
