"""SplitAssigner and SlotPool under random input."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from lockgate_coordinator.graph.normalize import normalize
from lockgate_coordinator.graph.slots import (
    ReleaseSlots,
    RequestSlots,
    SlotEvent,
    SlotPool,
    SlotsOffered,
    TaskManagerAdded,
    TaskManagerRemoved,
    TimePassed,
)
from lockgate_coordinator.job.splits import Assign, SplitAssigner, SplitEffect
from lockgate_proto.messages import (
    GeneratorSource,
    SplitsDiscovered,
    SplitState,
    SubtaskState,
)

from tests.unit.coordinator.jobs import FILES, attempt, source_state, word_count

SIZES = st.lists(st.integers(0, 1_000), max_size=30)


def make(parallelism: int, restored: dict[int, SubtaskState], partitions: int = 0) -> SplitAssigner:
    source = GeneratorSource(partitions=partitions, rows_per_partition=9) if partitions else FILES
    return SplitAssigner(normalize(word_count(source, parallelism=parallelism)).vertices[0], attempt(1), restored)


def shares(effects: list[SplitEffect]) -> dict[int, list[SplitState]]:
    return {effect.subtask: list(effect.body.splits) for effect in effects if isinstance(effect, Assign)}


def start(machine: SplitAssigner, parallelism: int, splits: tuple[SplitState, ...]) -> dict[int, list[SplitState]]:
    effects = machine.deployed(0)
    effects += machine.found(SplitsDiscovered(attempt=attempt(1), vertex_id="read", splits=splits, complete=True), 0)
    for index in range(parallelism):
        effects += machine.running(index)
    return shares(effects)


@given(sizes=SIZES, parallelism=st.integers(1, 6), taken=st.sets(st.integers(0, 5)))
def test_every_split_belongs_to_exactly_one_subtask_before_and_after_a_restore(
    sizes: list[int], parallelism: int, taken: set[int]
) -> None:
    """`taken`: subtasks whose assignment came before the barrier, and so is in the snapshot."""
    splits = tuple(SplitState(split=f"file-{index}", offset=0, end=size) for index, size in enumerate(sizes))
    first = start(make(parallelism, {}), parallelism, splits)
    assert Counter(assigned.split for share in first.values() for assigned in share) == Counter(
        split.split for split in splits
    )
    restored = {
        index: source_state("read", index, tuple(share) if index in taken else (), complete=index in taken)
        for index, share in first.items()
    }
    again = start(make(parallelism, restored), parallelism, splits)
    held = [assigned.split for index, share in first.items() if index in taken for assigned in share]
    assert not set(again) & taken
    assert Counter(held + [assigned.split for share in again.values() for assigned in share]) == Counter(
        split.split for split in splits
    )


@given(sizes=SIZES, parallelism=st.integers(1, 6))
def test_no_subtask_has_more_than_one_split_too_many(sizes: list[int], parallelism: int) -> None:
    splits = tuple(SplitState(split=f"file-{index}", offset=0, end=size) for index, size in enumerate(sizes))
    loads = [
        sum(assigned.end for assigned in share) for share in start(make(parallelism, {}), parallelism, splits).values()
    ]
    assert max(loads) - min(loads) <= max(sizes, default=0)


@given(partitions=st.integers(1, 20), parallelism=st.integers(1, 6), taken=st.sets(st.integers(0, 5)))
def test_generator_partitions_stay_where_they_are(partitions: int, parallelism: int, taken: set[int]) -> None:
    first = start(make(parallelism, {}, partitions), parallelism, ())
    restored = {
        index: source_state("read", index, tuple(share) if index in taken else (), complete=index in taken)
        for index, share in first.items()
    }
    again = start(make(parallelism, restored, partitions), parallelism, ())
    assert again == {index: share for index, share in first.items() if index not in taken}
    assert sorted(int(assigned.split) for share in first.values() for assigned in share) == list(range(partitions))


NAMES, JOBS = st.sampled_from("abc"), st.sampled_from(["j", "k", "l"])
SLOT_EVENTS: st.SearchStrategy[SlotEvent] = st.one_of(
    st.builds(TaskManagerAdded, NAMES, st.just("host:1"), st.integers(0, 4)),
    st.builds(TaskManagerRemoved, NAMES),
    st.builds(RequestSlots, JOBS, st.integers(1, 9), st.integers(1, 5), st.tuples(NAMES, NAMES), st.integers(0, 9)),
    st.builds(ReleaseSlots, JOBS),
    st.builds(TimePassed),
)


@given(st.lists(SLOT_EVENTS, max_size=40))
def test_slots_are_never_granted_twice_and_no_job_waits_that_could_run(script: list[SlotEvent]) -> None:
    pool = SlotPool()
    waiting: dict[str, RequestSlots] = {}
    for now, event in enumerate(script):
        if isinstance(event, RequestSlots):
            waiting[event.job_key] = event
        elif isinstance(event, ReleaseSlots):
            waiting.pop(event.job_key, None)
        for effect in pool.handle(event, now):
            if isinstance(effect, SlotsOffered):
                request = waiting.pop(effect.job_key)
                assert (effect.request, len(effect.slots)) == (request.request, request.count)
                held = Counter(slot.task_manager_id for slot in effect.slots)
                assert pool.held_by(effect.job_key) == held
                sizes = {task_manager.task_manager_id: task_manager.slots for task_manager in pool.task_managers()}
                for name in held:
                    assert sum(pool.held_by(job).get(name, 0) for job in "jkl") <= sizes[name]
    pool.handle(TimePassed(), len(script) + 10)
    still = [job for job in "jkl" if job in waiting and not pool.held_by(job)]
    assert all(waiting[job].count > pool.free_slots for job in still)
