"""What a lost task manager ran restarts alone in a job that exchanges records."""

from __future__ import annotations

from dataclasses import replace

import pytest
from lockgate_coordinator.graph.slots import SlotOffer
from lockgate_coordinator.job import effects, events
from lockgate_proto.layout import began_in, layout_of, subtasks_on
from lockgate_proto.messages import (
    AwaitPart,
    CancelAttempt,
    CheckpointMode,
    CheckpointOptions,
    Deploy,
    FileSource,
    JobEventKind,
    JobGraph,
    JobState,
    Participant,
    PartPlace,
    RejoinPart,
    ReplayGap,
    SubtaskCounters,
    SubtaskPhase,
    TaskManagerFailover,
)

from tests.unit.coordinator.driver import Driver
from tests.unit.coordinator.jobs import FILES, attempt, subtask, word_count

PART = TaskManagerFailover.TASK_MANAGER_FAILOVER_PART
NEW = (SlotOffer("tm-a", "a:1"), SlotOffer("tm-c", "c:1", incarnation="c1"))
LOST = (("read", 1), ("count", 1))


def graph(source: FileSource = FILES, parallelism: int = 2) -> JobGraph:
    return replace(word_count(source, parallelism=parallelism), task_manager_failover=PART)


def run(driver: Driver) -> None:
    """All six subtasks of three slots."""
    for index in range(3):
        for vertex in ("read", "count"):
            driver.report(SubtaskPhase.SUBTASK_RUNNING, (vertex, index))


def lose(driver: Driver, name: str = "tm-b") -> None:
    driver.give(events.TaskManagerLost(name, "its process ended"))


def restarted(driver: Driver, slots: tuple[SlotOffer, ...] = NEW) -> None:
    lose(driver)
    driver.tick(1_000)
    driver.deploy(driver.one(effects.RequestSlots).request, slots)


def test_what_runs_on_is_told_whom_to_wait_for() -> None:
    driver = Driver(graph()).run()
    lose(driver)
    assert driver.sent(AwaitPart) == [("tm-a", AwaitPart(attempt(1), (1,)))]
    assert (driver.sent(CancelAttempt), driver.state) == ([], JobState.RESTARTING)
    assert driver.emitted(JobEventKind.RESTART_EXTENT) == [
        "only count-1, read-1 restart, 2 of 4 subtasks: task manager tm-b is lost: its process ended"
    ]


def test_both_sides_learn_where_the_other_one_is() -> None:
    driver = Driver(graph()).run()
    restarted(driver)
    ((name, deploy),) = driver.sent(Deploy)
    layout = layout_of(deploy)
    assert (name, set(subtasks_on(layout, "tm-c")), set(subtasks_on(layout, "tm-a"))) == ("tm-c", set(LOST), set())
    assert [began_in(layout, slot) for slot in (0, 1)] == [1, 2]
    place = PartPlace(1, Participant("tm-c", "c:1", "c1"))
    assert driver.sent(RejoinPart) == [("tm-a", RejoinPart(attempt(1), 2, 0, (place,)))]
    for key in LOST:
        driver.report(SubtaskPhase.SUBTASK_RUNNING, key, 2)
    assert driver.state is JobState.RUNNING


def test_a_part_begins_at_the_newest_checkpoint_and_the_others_send_from_there() -> None:
    driver = Driver(graph()).run()
    driver.complete()
    restarted(driver)
    ((_, order),) = driver.sent(RejoinPart)
    assert order.restored_checkpoint_id == 1


def test_a_part_beside_what_runs_on_leaves_it_alone() -> None:
    driver = Driver(graph()).run()
    restarted(driver, (NEW[0], NEW[0]))
    ((name, deploy),) = driver.sent(Deploy)
    assert (name, deploy.beside, set(subtasks_on(layout_of(deploy), "tm-a"))) == ("tm-a", (1,), set(LOST))


def test_a_failed_subtask_takes_its_task_manager_along() -> None:
    """Subtasks of one task manager hand each other records without a log."""
    driver = Driver(graph(parallelism=3))
    driver.deploy(
        driver.recover().request, (SlotOffer("tm-a", "a:1"), SlotOffer("tm-b", "b:1"), SlotOffer("tm-b", "b:1"))
    )
    run(driver)
    driver.report(SubtaskPhase.SUBTASK_FAILED, ("count", 1), error="broke")
    assert driver.sent(AwaitPart) == [("tm-a", AwaitPart(attempt(1), (1, 2)))]


def test_a_second_loss_concerns_what_began_in_either_attempt() -> None:
    driver = Driver(graph(parallelism=3))
    slots = (SlotOffer("tm-a", "a:1"), SlotOffer("tm-b", "b:1"), SlotOffer("tm-c", "c:1"))
    driver.deploy(driver.recover().request, slots)
    run(driver)
    restarted(driver, (slots[0], SlotOffer("tm-d", "d:1"), slots[2]))
    for key in LOST:
        driver.report(SubtaskPhase.SUBTASK_RUNNING, key, 2)
    lose(driver, "tm-c")
    assert driver.sent(AwaitPart) == [("tm-a", AwaitPart(attempt(1), (2,))), ("tm-d", AwaitPart(attempt(2), (2,)))]
    driver.tick(5_000)
    driver.deploy(
        driver.one(effects.RequestSlots).request, (slots[0], SlotOffer("tm-d", "d:1"), SlotOffer("tm-e", "e:1"))
    )
    assert [(name, order.attempt, order.part) for name, order in driver.sent(RejoinPart)] == [
        ("tm-a", attempt(1), 3),
        ("tm-d", attempt(2), 3),
    ]
    ((_, deploy),) = driver.sent(Deploy)
    assert [began_in(layout_of(deploy), slot) for slot in (0, 1, 2)] == [1, 2, 3]


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        (
            replace(graph(), checkpoints=CheckpointOptions(mode=CheckpointMode.UNALIGNED)),
            "its checkpoints are UNALIGNED",
        ),
        (
            replace(graph(), checkpoints=CheckpointOptions(mode=CheckpointMode.AT_MOST_ONCE)),
            "its checkpoints are AT_MOST_ONCE",
        ),
    ],
)
def test_a_job_that_cannot_restart_in_part_says_why_it_restarts_as_a_whole(changed: JobGraph, why: str) -> None:
    driver = Driver(changed).run()
    lose(driver)
    assert driver.emitted(JobEventKind.RESTART_EXTENT) == [f"the whole job restarts: {why}"]
    assert driver.sent(AwaitPart) == []


def test_a_part_that_cannot_go_on_where_the_others_are_restarts_the_whole_job() -> None:
    driver = Driver(graph()).run()
    restarted(driver)
    driver.report(SubtaskPhase.SUBTASK_FAILED, ("read", 0), 1, error="what was sent since checkpoint 0 is not kept")
    assert driver.emitted(JobEventKind.RESTART_EXTENT)[-1:] == ["the whole job restarts: the job was DEPLOYING"]


def test_a_source_that_has_ended_begins_again_alone_once_a_checkpoint_says_where_that_was() -> None:
    """Its input may have grown: its receivers, which have had the end, would drop what has come since."""
    driver = Driver(graph()).run()
    driver.report(SubtaskPhase.SUBTASK_EXHAUSTED, ("read", 1))
    lose(driver)
    why = "a source in it has read all, and no checkpoint of this run says yet how much that was"
    assert driver.emitted(JobEventKind.RESTART_EXTENT) == [f"the whole job restarts: {why}"]
    driver = Driver(graph()).run()
    driver.report(SubtaskPhase.SUBTASK_EXHAUSTED, ("read", 1))
    driver.complete()
    lose(driver)
    assert driver.sent(AwaitPart) == [("tm-a", AwaitPart(attempt(1), (1,)))]


def beat(driver: Driver, key: tuple[str, int], gap: ReplayGap | None) -> None:
    """A heartbeat."""
    driver.give(events.CountersReported((SubtaskCounters(subtask(*key, 1), gap=gap),)))


FULL = ReplayGap((1,), 2, 32 << 20)
"""For slot 1, of a channel that carried too much behind the barrier of checkpoint 1."""


@pytest.mark.parametrize("gap", [FULL, replace(FULL, slots=()), replace(FULL, slots=(0, 1))])
def test_a_log_that_is_too_small_restarts_the_whole_job_at_once(gap: ReplayGap) -> None:
    driver = Driver(graph()).run()
    driver.complete()
    beat(driver, ("read", 0), gap)
    lose(driver)
    assert driver.emitted(JobEventKind.RESTART_EXTENT) == [
        "the whole job restarts: read-0 on tm-a has sent more to slot 1 since checkpoint 1 than the 32.0 MiB that it "
        "keeps (the channel's share of taskmanager.replay_log_bytes)"
    ]
    assert driver.sent(AwaitPart) == []


@pytest.mark.parametrize("gaps", [[], [FULL, None], [replace(FULL, slots=(0, 2))], [replace(FULL, since=1)]])
def test_a_log_that_has_all_from_the_checkpoint_on_or_leads_elsewhere_keeps_a_part_a_part(
    gaps: list[ReplayGap | None],
) -> None:
    """None: the next heartbeat has none any more."""
    driver = Driver(graph()).run()
    driver.complete()
    for gap in gaps:
        beat(driver, ("read", 0), gap)
    lose(driver)
    assert driver.sent(AwaitPart) == [("tm-a", AwaitPart(attempt(1), (1,)))]


RANDOM = "operator 'tag' uses rand()"


def varies(driver: Driver, key: tuple[str, int]) -> None:
    """A heartbeat."""
    driver.give(events.CountersReported((SubtaskCounters(subtask(*key, 1), irreproducible=RANDOM),)))


@pytest.mark.parametrize("slot", [0, 1])
def test_a_source_that_may_make_something_else_restarts_with_all_that_have_had_it(slot: int) -> None:
    """All subtasks of a vertex do the same: it does not matter which of them has said so."""
    driver = Driver(graph()).run()
    varies(driver, ("read", slot))
    beat(driver, ("count", 0), None)
    lose(driver)
    why = f"'read' may produce other results from the same input: {RANDOM}"
    assert driver.emitted(JobEventKind.RESTART_EXTENT) == [f"the whole job restarts: {why}"]
    assert driver.sent(AwaitPart) == []


def test_what_is_lost_without_a_subtask_of_it_restarts_alone() -> None:
    read, count = graph().vertices
    driver = Driver(replace(graph(), vertices=(replace(read, parallelism=1), count))).run()
    varies(driver, ("read", 0))
    lose(driver)
    assert driver.sent(AwaitPart) == [("tm-a", AwaitPart(attempt(1), (1,)))]


def test_what_a_lost_subtask_could_not_send_again_does_not_matter() -> None:
    driver = Driver(graph()).run()
    beat(driver, ("read", 1), ReplayGap((), 1, 1))
    lose(driver)
    assert driver.sent(AwaitPart) == [("tm-a", AwaitPart(attempt(1), (1,)))]


def test_a_checkpoint_that_is_completed_after_the_report_closes_the_gap() -> None:
    driver = Driver(graph()).run()
    driver.complete()
    beat(driver, ("read", 0), FULL)
    driver.complete()
    lose(driver)
    assert driver.sent(AwaitPart) == [("tm-a", AwaitPart(attempt(1), (1,)))]
