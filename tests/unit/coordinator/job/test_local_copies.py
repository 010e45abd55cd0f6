"""Which task manager keeps which files of a snapshot, and where a lost subtask continues."""

from __future__ import annotations

from dataclasses import replace

import pytest
from lockgate_coordinator.graph.normalize import normalize
from lockgate_coordinator.graph.validate import validate
from lockgate_coordinator.job import local_copies
from lockgate_coordinator.job.local_copies import Copies, copies
from lockgate_proto.codec import encode
from lockgate_proto.messages import (
    KeepCopies,
    OperatorState,
    SinkState,
    SinkTransaction,
    StateHandle,
    StateKind,
    SubtaskState,
)

from tests.unit.coordinator.driver import Driver
from tests.unit.coordinator.jobs import attempt, word_count

FREE = {"tm-a": 2, "tm-b": 0, "tm-c": 1, "tm-d": 3, "tm-e": 3, "tm-f": 0}
OWN = {"tm-a": {"count-0", "more-0", "rows-0"}, "tm-b": {"count-1", "more-1", "rows-1"}}


def handle(name: str) -> StateHandle:
    return StateHandle(path=f"file:///{name}", size_bytes=1, checksum=f"sha256:{name}")


def state(vertex: str, index: int) -> SubtaskState:
    keyed = OperatorState("count", StateKind.KEYED_STATE, handle(f"{vertex}-{index}"), (handle(f"more-{index}"),))
    staged = SinkState((SinkTransaction(1, index, rows=handle(f"rows-{index}")), SinkTransaction(2, index)))
    sink = OperatorState("sink", StateKind.SINK_STATE, StateHandle(inline=encode(staged)))
    return SubtaskState(vertex, index, (keyed, sink))


def found(replicas: int, free: dict[str, int]) -> Copies | None:
    """Of a job with one subtask of each vertex on tm-a and tm-b, with two files of keyed state and one of rows each."""
    driver = Driver(replace(word_count(), standby_replicas=replicas)).run()
    driver.complete()
    completed = driver.master.checkpoints()
    assert completed is not None
    assert completed.restore_point is not None
    completed._metadata = replace(completed.restore_point, subtasks=(state("count", 0), state("count", 1)))
    return copies(driver.master.attempts, completed, free)


def kept(replicas: int, free: dict[str, int]) -> dict[str, set[str]]:
    of_all = found(replicas, free)
    assert of_all is not None
    assert {(order.attempt, order.checkpoint_id) for order in of_all.orders.values()} == {(attempt(), 1)}
    return {name: names(order) for name, order in of_all.orders.items()}


def names(order: KeepCopies) -> set[str]:
    return {handle.path.removeprefix("file:///") for handle in order.files}


def test_those_that_run_it_keep_their_own_and_the_emptiest_other_keeps_all() -> None:
    assert kept(1, FREE) == {**OWN, "tm-d": OWN["tm-a"] | OWN["tm-b"]}
    assert set(kept(2, FREE)) == {"tm-a", "tm-b", "tm-d", "tm-e"}


def test_where_no_other_has_free_slots_they_keep_copies_of_each_other_and_none_is_its_own_heir() -> None:
    both = OWN["tm-a"] | OWN["tm-b"]
    assert kept(1, {"tm-a": 1, "tm-b": 1}) == {"tm-a": both, "tm-b": both}
    assert kept(1, {"tm-a": 0, "tm-b": 1}) == {"tm-a": OWN["tm-a"], "tm-b": both}
    assert kept(8, {"tm-a": 0, "tm-b": 0}) == OWN


@pytest.mark.parametrize(
    ("wanted", "preferred"),
    [
        (("tm-a", "tm-b"), ("tm-a", "tm-b")),
        (("", "tm-b"), ("tm-d", "tm-b")),
        (("", ""), ("tm-d", "tm-d")),
        (("tm-a", "", ""), ("tm-a", "tm-d", "")),  # with more parallelism than before
    ],
)
def test_a_lost_place_goes_to_the_heir_that_has_its_files(wanted: tuple[str, ...], preferred: tuple[str, ...]) -> None:
    of_all = found(1, FREE)
    assert of_all is not None
    assert of_all.preferred(wanted) == preferred


def test_slots_of_one_lost_task_manager_are_spread_over_all_its_heirs() -> None:
    of_all = Copies({}, ("tm-a", "tm-a", "tm-a", "tm-b"), {"tm-a": ("tm-c", "tm-d"), "tm-b": ("tm-d",)})
    assert of_all.preferred(("", "", "", "")) == ("tm-c", "tm-d", "tm-c", "tm-d")


def test_of_too_many_files_none_is_copied_and_what_is_there_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_copies, "MOST_FILES", 5)
    assert kept(1, FREE) == {**OWN, "tm-d": set()}


def test_a_job_that_wants_none_has_none() -> None:
    assert found(0, FREE) is None


def test_the_number_is_bounded() -> None:
    def problems(replicas: int) -> tuple[str, ...]:
        return tuple(validate(normalize(replace(word_count(), standby_replicas=replicas))))

    assert problems(8) == ()
    for replicas in (-1, 9):
        (problem,) = problems(replicas)
        assert f"standby_replicas is {replicas}: it must be between 0 and 8" in problem
