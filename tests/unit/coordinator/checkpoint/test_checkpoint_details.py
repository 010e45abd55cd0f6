"""What each subtask contributed to a checkpoint is kept for the newest ones, within bounds."""

from __future__ import annotations

from dataclasses import replace

import pytest
from lockgate_coordinator.checkpoint import details
from lockgate_coordinator.checkpoint.details import CheckpointDetails, SnapshotDetails
from lockgate_coordinator.checkpoint.events import Acknowledged, AttemptRunning, CheckpointPersisted
from lockgate_proto.messages import OperatorState, StateHandle, SubtaskSnapshot, SubtaskState

from tests.unit.coordinator.jobs import SUBTASKS, ack, attempt
from tests.unit.coordinator.testing_checkpoints import TestingCheckpoints

ACK = ack(1, "count", 0)


def _parts(checkpoints: TestingCheckpoints, number: int) -> dict[tuple[str, int], SubtaskSnapshot]:
    found = checkpoints.machine.completed.details.of(number)
    return {(part.vertex_id, part.subtask): part for part in found.subtasks()} if found is not None else {}


def test_each_subtask_has_its_size_and_times() -> None:
    checkpoints = TestingCheckpoints(running=False)
    checkpoints.give(AttemptRunning(attempt(1), frozenset(SUBTASKS), places=("tm-a", "tm-b")))
    checkpoints.complete()
    number = checkpoints.trigger()
    handles = (StateHandle(size_bytes=70, checkpoint_id=number), StateHandle(size_bytes=30, checkpoint_id=number - 1))
    operators = tuple(OperatorState(f"o{index}", handle=handle) for index, handle in enumerate(handles))
    slow = ack(number, "count", 1, state=SubtaskState("count", 1, operators), sync_us=900)
    checkpoints.acknowledge(number, without=("count", 1))
    assert _parts(checkpoints, number) == {}, "it is not complete"
    checkpoints.give(Acknowledged(replace(slow, async_ms=40, alignment_ms=5)), after_ms=250)
    record = checkpoints.persist().record
    checkpoints.give(Acknowledged(replace(slow, async_ms=1, alignment_ms=1)))  # repeated
    checkpoints.give(CheckpointPersisted(record))
    found = _parts(checkpoints, number)
    assert found.keys() == set(SUBTASKS)
    assert found["count", 1] == SubtaskSnapshot("count", 1, "tm-b", 250, 100, 70, 900, 40, 5)
    assert (found["read", 0].duration_ms, found["read", 0].task_manager_id) == (0, "tm-a")


def test_the_newest_ones_are_kept() -> None:
    checkpoints = TestingCheckpoints()
    taken = [checkpoints.complete() for _ in range(details.MOST_CHECKPOINTS + 3)]
    assert [number for number in taken if _parts(checkpoints, number)] == taken[3:]


@pytest.mark.parametrize(("subtasks", "kept"), [(1_000, 10), (2_600, 3), (10_000, 1), (30_000, 1)])
def test_fewer_checkpoints_of_a_large_job_are_kept_and_always_one(subtasks: int, kept: int) -> None:
    known = CheckpointDetails()
    for number in range(1, 13):
        taken = SnapshotDetails(number, ())
        for index in range(subtasks):
            taken.add(("count", index), ACK, 0)
        known.keep(taken)
    assert [number for number in range(1, 13) if known.of(number) is not None] == list(range(13 - kept, 13))


def test_hostile_numbers_fit() -> None:
    known = SnapshotDetails(1, ("tm",))
    huge = (1 << 63) - 1
    state = SubtaskState("a", 7, tuple(OperatorState(f"{at}", handle=StateHandle(size_bytes=huge)) for at in range(3)))
    known.add(("a", 7), replace(ack(1, "a", 7), state=state, sync_us=-(1 << 63)), 1)
    (part,) = known.subtasks()
    assert (part.size_bytes, part.sync_us, part.task_manager_id) == (huge, 0, "")
