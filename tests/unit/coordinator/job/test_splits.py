"""SplitAssigner: who reads what."""

from __future__ import annotations

from dataclasses import replace

import pytest
from lockgate_coordinator.graph.normalize import normalize
from lockgate_coordinator.job.redistribute import SourceStateUnreadable
from lockgate_coordinator.job.splits import Assign, Discover, SplitAssigner, SplitEffect
from lockgate_proto.messages import (
    AssignSplits,
    FileFormat,
    FileSource,
    GeneratorSource,
    JobGraph,
    KafkaSource,
    PythonSource,
    SplitsDiscovered,
    SplitState,
    StateHandle,
    SubtaskState,
    Vertex,
)

from tests.unit.coordinator.jobs import attempt, source_state, word_count

Source = FileSource | GeneratorSource | PythonSource
CONTINUOUS = FileSource(path="/in", format=FileFormat.TEXT, continuous=True, poll_interval_ms=200)


def vertex(source: Source | None = None, parallelism: int = 2) -> Vertex:
    graph: JobGraph = word_count(source, parallelism=parallelism) if source else word_count(parallelism=parallelism)
    return normalize(graph).vertices[0]


def assigner(
    source: Source | None = None,
    parallelism: int = 2,
    restored: dict[int, SubtaskState] | None = None,
) -> SplitAssigner:
    return SplitAssigner(vertex(source, parallelism), attempt(1), restored or {})


def split(name: str, end: int, offset: int = 0) -> SplitState:
    return SplitState(split=name, offset=offset, end=end)


def found(*splits: SplitState, complete: bool = True) -> SplitsDiscovered:
    return SplitsDiscovered(attempt=attempt(1), vertex_id="read", splits=splits, complete=complete)


def assigned(effects: list[SplitEffect]) -> dict[int, tuple[list[str], bool]]:
    bodies: list[AssignSplits] = [effect.body for effect in effects if isinstance(effect, Assign)]
    return {
        body.subtask.subtask: ([split.split for split in body.splits], body.complete) for body in bodies if body.subtask
    }


def given(machine: SplitAssigner, answer: SplitsDiscovered) -> list[SplitEffect]:
    """What is assigned at 10 ms, when a record of it is written."""
    effects = machine.found(answer, 10)
    machine.first.written(machine.first.packed())
    return [*effects, *machine.stored(10)]


def run_all(machine: SplitAssigner, parallelism: int = 2) -> list[SplitEffect]:
    return [effect for index in range(parallelism) for effect in machine.running(index)]


def test_bounded_files_go_largest_first_to_the_least_loaded_and_are_complete_at_once() -> None:
    machine = assigner()
    (discover,) = machine.deployed(0)
    assert isinstance(discover, Discover)
    assert discover.body.known == ()
    run_all(machine)
    result = assigned(machine.found(found(split("a", 4), split("b", 10), split("c", 5), split("d", 1)), 1))
    assert result == {0: (["b"], True), 1: (["c", "a", "d"], True)}


def test_the_assignment_does_not_depend_on_the_order_of_the_listing() -> None:
    splits = [split(name, end) for name, end in (("a", 3), ("b", 3), ("c", 7), ("d", 0), ("e", 0))]
    results = []
    for order in (splits, splits[::-1]):
        machine = assigner()
        machine.deployed(0)
        run_all(machine)
        results.append(assigned(machine.found(found(*order), 1)))
    assert results[0] == results[1]


def test_splits_wait_until_the_subtask_runs_and_come_once() -> None:
    machine = assigner()
    machine.deployed(0)
    assert not machine.found(found(split("a", 4)), 1)
    assert assigned(machine.running(0)) == {0: (["a"], True)}
    assert not machine.running(0)
    assert assigned(machine.running(1)) == {1: ([], True)}


def test_an_empty_folder_completes_every_subtask() -> None:
    machine = assigner()
    machine.deployed(0)
    run_all(machine)
    assert assigned(machine.found(found(), 1)) == {0: ([], True), 1: ([], True)}


def test_subtasks_are_not_notified_of_missing_splits_while_no_subtask_has_one() -> None:
    machine = assigner(CONTINUOUS)
    machine.deployed(0)
    run_all(machine)
    none_yet = machine.found(found(complete=False), 1)
    assert assigned(none_yet) == {}, "all would be idle, and the first to read would make the others late"
    assert any(isinstance(discover, Discover) for discover in machine.tick(300))
    assert assigned(machine.found(found(split("a", -1), complete=False), 301)) == {0: (["a"], False), 1: ([], False)}


def test_a_repeated_answer_is_ignored() -> None:
    machine = assigner()
    machine.deployed(0)
    run_all(machine)
    machine.found(found(split("a", 4)), 1)
    assert not machine.found(found(split("a", 4)), 2)


def test_known_splits_are_sent_once_an_attempt() -> None:
    restored = {0: source_state("read", 0, (split("a", -1),), complete=False)}
    machine = assigner(CONTINUOUS, restored=restored)
    first = machine.deployed(0)
    machine.found(replace(found(split("b", -1), complete=False), round=1), 1)
    second = machine.tick(300)
    asked = [(effect.body.known, effect.body.round) for effect in [*first, *second] if isinstance(effect, Discover)]
    assert asked == [(("a",), 1), ((), 2)]


def test_files_that_arrive_one_by_one_in_a_watched_folder_reach_all_subtasks() -> None:
    machine = assigner(CONTINUOUS, parallelism=3)
    machine.deployed(0)
    run_all(machine, 3)
    homes: list[int] = []
    for number in range(6):
        new = assigned(machine.found(found(split(f"{number}", -1), complete=False), 1000 * number))
        homes += [index for index, (splits, _) in new.items() if splits]
        machine.tick(1000 * number + 200)
    assert homes == [0, 1, 2, 0, 1, 2]


def test_files_of_splits_at_rest_are_passed_to_the_lister_of_the_source() -> None:
    file = StateHandle(path="splits", shared=True, checkpoint_id=3)
    state = source_state("read", 1, (), complete=False)
    state = replace(state, operators=(replace(state.operators[0], files=(file,)),))
    machine = assigner(CONTINUOUS, restored={0: source_state("read", 0, (), complete=False), 1: state})
    (first,) = machine.deployed(0)
    run_all(machine)
    idle = assigned(machine.found(replace(found(complete=False), round=1), 1))
    assert idle == {0: ([], False)}, "the other has splits"
    (second,) = machine.tick(300)
    assert isinstance(first, Discover)
    assert isinstance(second, Discover)
    assert (first.body.files, second.body.files) == ((file,), ())


def test_an_answer_to_an_earlier_request_is_ignored() -> None:
    """It may come again when a stream has broken, and would end a look that is still under way."""
    machine = assigner(CONTINUOUS)
    machine.deployed(0)
    run_all(machine)
    early = replace(found(split("a", -1), complete=False), round=1)
    machine.found(early, 1)
    machine.tick(300)
    assert not machine.found(early, 301)
    assert assigned(machine.found(replace(found(split("b", -1), complete=False), round=2), 302)) == {1: (["b"], False)}


def test_an_unexpected_answer_is_ignored() -> None:
    assert not assigner().found(found(split("a", 4)), 2)


@pytest.mark.parametrize(
    "source",
    [
        CONTINUOUS,
        PythonSource(source=b"x", schema="n INT", continuous=True, poll_interval_ms=200),
        KafkaSource("h:9", ("t",), poll_interval_ms=200),
    ],
)
def test_continuous_sources_are_polled_and_known_splits_are_not_assigned_again(source: Source) -> None:
    machine = assigner(source)
    machine.deployed(0)
    run_all(machine)
    first = assigned(given(machine, found(split("a", 4), complete=False)))
    assert first == {0: (["a"], False), 1: ([], False)}, "the other is notified that there is none for it yet"
    assert machine.next_wake_ms() == 210
    assert not machine.tick(209)
    (discover,) = machine.tick(210)
    assert isinstance(discover, Discover)
    assert discover.body.round == 2
    assert not machine.found(found(split("a", 4), complete=False), 400), "nothing is new, and both know"
    machine.tick(600)
    assert assigned(machine.found(found(split("a", 4), split("b", 1), complete=False), 600)) == {1: (["b"], False)}


def test_generator_partitions_need_no_discovery() -> None:
    machine = assigner(GeneratorSource(partitions=3, rows_per_partition=9))
    assert not machine.deployed(0)
    assert assigned(run_all(machine)) == {0: (["0", "2"], True), 1: (["1"], True)}


def test_an_unbounded_generator_has_no_end() -> None:
    machine = assigner(GeneratorSource())
    machine.deployed(0)
    bodies = [split_effect.body for split_effect in run_all(machine) if isinstance(split_effect, Assign)]
    assert {split.end for body in bodies for split in body.splits} == {-1}


def test_a_complete_snapshot_asks_for_nothing() -> None:
    restored = {index: source_state("read", index, (split(str(index), 9, 3),)) for index in (0, 1)}
    machine = assigner(restored=restored)
    assert not machine.deployed(0)
    assert not run_all(machine)


def test_splits_assigned_behind_the_barrier_go_to_subtasks_that_are_still_open() -> None:
    restored = {0: source_state("read", 0, (split("a", 9, 9),)), 1: source_state("read", 1, (), complete=False)}
    machine = assigner(restored=restored)
    (discover,) = machine.deployed(0)
    assert isinstance(discover, Discover)
    assert discover.body.known == ("a",)
    run_all(machine)
    assert assigned(machine.found(found(split("b", 5), split("c", 5)), 1)) == {1: (["b", "c"], True)}


def test_a_generator_restored_half_assigned_gives_the_missing_partitions_to_their_home() -> None:
    restored = {
        0: source_state("read", 0, (split("0", 9, 2), split("2", 9, 2))),
        1: source_state("read", 1, (), complete=False),
    }
    machine = assigner(GeneratorSource(partitions=4, rows_per_partition=9), restored=restored)
    machine.deployed(0)
    assert assigned(run_all(machine)) == {1: (["1", "3"], True)}


def test_a_restored_continuous_source_keeps_its_known_splits() -> None:
    restored = {
        0: source_state("read", 0, (split("a", 100, 90),), complete=False),
        1: source_state("read", 1, (), complete=False),
    }
    machine = assigner(CONTINUOUS, restored=restored)
    machine.deployed(0)
    run_all(machine)
    assert assigned(machine.found(found(split("a", 100), split("b", 5), complete=False), 1)) == {1: (["b"], False)}


def test_a_subtask_without_splits_is_notified_once_and_again_after_a_restart() -> None:
    machine = assigner(CONTINUOUS, parallelism=3)
    machine.deployed(0)
    assert not machine.running(2), "the splits are not known yet"
    assert assigned(machine.found(found(split("a", 4), split("b", 3), complete=False), 1)) == {2: ([], False)}
    assert assigned(run_all(machine, 3)) == {0: (["a"], False), 1: (["b"], False)}
    restored = {
        0: source_state("read", 0, (split("a", 4, 4),), complete=False),
        1: source_state("read", 1, (split("b", 3),), complete=False),
        2: source_state("read", 2, (), complete=False),
    }
    machine = assigner(CONTINUOUS, parallelism=3, restored=restored)
    machine.deployed(0)
    run_all(machine, 3)
    assert assigned(machine.found(found(complete=False), 1)) == {2: ([], False)}


def test_a_source_state_outside_the_metadata_is_refused() -> None:
    state = source_state("read", 0, ())
    operator = state.operators[0]
    assert operator.handle is not None
    object.__setattr__(operator.handle, "path", "/elsewhere")
    with pytest.raises(SourceStateUnreadable, match="read-0"):
        assigner(restored={0: state})


def test_splits_of_a_lost_part_that_no_checkpoint_has_are_given_to_the_same_subtasks_at_once() -> None:
    """What they made of them may have been passed on, and they do not run before they have read it."""
    before = assigner(CONTINUOUS, parallelism=3)
    before.deployed(0)
    for index in range(3):
        before.running(index)
    before.found(found(split("a", 10), split("b", 2), split("c", 1), complete=False), 0)
    before.tick(200)
    effects = before.found(replace(found(split("d", 20), complete=False), round=2), 300)
    assert assigned(effects) == {2: (["d"], False)}
    after = SplitAssigner(vertex(CONTINUOUS, 3), attempt(2), {}, before.next_round, {0: attempt(1)})
    after.carry_on(before)
    after.deployed(400)
    again = found(split("b", 2), split("c", 1), split("d", 20), complete=False)
    shares = assigned(after.found(replace(again, round=3), 500))
    assert {index: sorted(names) for index, (names, _) in shares.items()} == {1: ["b"], 2: ["c", "d"]}
