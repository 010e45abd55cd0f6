"""A snapshot spread over another number of subtasks: nothing is lost, nothing is there twice, order stays."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from lockgate_coordinator.graph.normalize import normalize
from lockgate_coordinator.graph.shape import vertex_shapes
from lockgate_coordinator.job.redistribute import counted, redistribute
from lockgate_coordinator.job.restore import misfits
from lockgate_proto.codec import decode, encode
from lockgate_proto.key_groups import key_group_range
from lockgate_proto.messages import (
    CheckpointMetadata,
    OperatorCounters,
    OperatorState,
    SinkState,
    SinkTransaction,
    SourceState,
    SplitState,
    StateHandle,
    StateKind,
    SubtaskState,
)

from tests.unit.coordinator.jobs import word_count

PARALLELISM = st.integers(1, 9)
SPLITS = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50), st.booleans()), max_size=20)


def _state(operator: str, kind: StateKind, data: bytes) -> OperatorState:
    return OperatorState(operator_id=operator, kind=kind, handle=StateHandle(inline=data))


def _snapshot(parallelism: int, splits: list[SplitState], complete: list[bool]) -> CheckpointMetadata:
    """Of a word count: splits assigned in turn, keyed state named after its subtask, two transactions a sink."""
    subtasks = []
    for index in range(parallelism):
        own = SourceState(splits=tuple(splits[index::parallelism]), complete=complete[index % len(complete)])
        pending = tuple(SinkTransaction(checkpoint_id=number, subtask=index) for number in (4, 5))
        counters = (OperatorCounters("source", index, 10 * index + 1),)
        read = (_state("source", StateKind.SOURCE_STATE, encode(own)),)
        count = (
            _state("counts", StateKind.KEYED_STATE, str(index).encode()),
            _state("sink", StateKind.SINK_STATE, encode(SinkState(pending=pending))),
        )
        subtasks += [SubtaskState("read", index, read, counters), SubtaskState("count", index, count)]
    shapes = vertex_shapes(normalize(word_count(parallelism=parallelism)))
    return CheckpointMetadata(format_version=1, vertices=shapes, subtasks=tuple(subtasks))


def _splits(drawn: list[tuple[int, int, bool]]) -> list[SplitState]:
    return [
        SplitState(split=f"s{number}", offset=offset, end=offset + more if bounded else -1)
        for number, (offset, more, bounded) in enumerate(drawn)
    ]


@given(PARALLELISM, PARALLELISM, SPLITS, st.lists(st.booleans(), min_size=1, max_size=9))
def test_every_split_continues_where_it_was_in_exactly_one_subtask(
    before: int, after: int, drawn: list[tuple[int, int, bool]], complete: list[bool]
) -> None:
    splits = _splits(drawn)
    snapshot = _snapshot(before, splits, complete)
    graph = normalize(word_count(parallelism=after))
    assert misfits(graph, snapshot) == ()
    restored = redistribute(graph, snapshot)
    states = [decode(SourceState, restored["read", i].operators[0].handle.inline) for i in range(after)]  # type: ignore[union-attr]
    assert sorted((s for state in states for s in state.splits), key=lambda s: s.split) == sorted(
        splits, key=lambda s: s.split
    )
    if before != after:
        was_complete = all(complete[index % len(complete)] for index in range(before))
        assert {state.complete for state in states} == {was_complete}


@given(PARALLELISM, PARALLELISM, SPLITS, st.lists(st.booleans(), min_size=20, max_size=20))
def test_files_of_splits_at_rest_stay_with_what_is_newer_of_them(
    before: int, after: int, drawn: list[tuple[int, int, bool]], rested: list[bool]
) -> None:
    splits = [replace(split, rested=rested[number]) for number, split in enumerate(_splits(drawn))]
    snapshot = _snapshot(before, splits, [False])
    subtasks = [
        replace(
            subtask, operators=tuple(replace(state, files=(_file(subtask.subtask),)) for state in subtask.operators)
        )
        if subtask.vertex_id == "read"
        else subtask
        for subtask in snapshot.subtasks
    ]
    restored = redistribute(normalize(word_count(parallelism=after)), replace(snapshot, subtasks=tuple(subtasks)))
    home: dict[str, int] = {}
    found: list[SplitState] = []
    for index in range(after):
        (state,) = restored["read", index].operators
        assert state.handle is not None
        home |= {file.path: index for file in state.files}
        found += decode(SourceState, state.handle.inline).splits
        for split in decode(SourceState, state.handle.inline).splits:
            if split.rested:
                owner = splits.index(split) % before
                assert f"splits-{owner}" in {file.path for file in state.files}
    assert len(home) == before
    assert sorted(found, key=lambda split: split.split) == sorted(splits, key=lambda split: split.split)


def _file(subtask: int) -> StateHandle:
    return StateHandle(path=f"splits-{subtask}", shared=True, checkpoint_id=7)


@given(PARALLELISM, st.integers(1, 30), PARALLELISM)
def test_unread_splits_are_spread_evenly(before: int, count: int, after: int) -> None:
    splits = [SplitState(split=f"s{number}", offset=0, end=100) for number in range(count)]
    restored = redistribute(normalize(word_count(parallelism=after)), _snapshot(before, splits, [True]))
    if before != after:
        sizes = [len(decode(SourceState, restored["read", i].operators[0].handle.inline).splits) for i in range(after)]  # type: ignore[union-attr]
        assert max(sizes) - min(sizes) <= 1


@given(PARALLELISM, PARALLELISM)
def test_every_key_group_finds_its_state_and_no_subtask_loads_foreign_groups(before: int, after: int) -> None:
    restored = redistribute(normalize(word_count(parallelism=after)), _snapshot(before, [], [True]))
    for index in range(after):
        keyed = [operator for operator in restored["count", index].operators if operator.kind is StateKind.KEYED_STATE]
        got = [int(operator.handle.inline) for operator in keyed if operator.handle is not None]
        groups = key_group_range(index, after, 128)
        assert sorted(got) == sorted({group * before // 128 for group in groups})


@given(PARALLELISM, PARALLELISM)
def test_every_pending_transaction_is_in_one_subtask_beside_its_siblings_and_in_order(before: int, after: int) -> None:
    restored = redistribute(normalize(word_count(parallelism=after)), _snapshot(before, [], [True]))
    home: dict[int, int] = {}
    seen: Counter[tuple[int, int]] = Counter()
    for index in range(after):
        for operator in restored["count", index].operators:
            if operator.kind is StateKind.SINK_STATE and operator.handle is not None:
                pending = decode(SinkState, operator.handle.inline).pending
                assert [checkpoint.checkpoint_id for checkpoint in pending] == sorted(
                    checkpoint.checkpoint_id for checkpoint in pending
                )
                for checkpoint in pending:
                    assert home.setdefault(checkpoint.subtask, index) == index
                    seen[checkpoint.subtask, checkpoint.checkpoint_id] += 1
    assert seen == {(subtask, number): 1 for subtask in range(before) for number in (4, 5)}


@given(PARALLELISM, PARALLELISM)
def test_the_sums_of_the_counters_stay(before: int, after: int) -> None:
    restored = counted(normalize(word_count(parallelism=after)), _snapshot(before, [], [True]))
    totals = [counter for state in restored.values() for counter in state.counters]
    assert sum(total.records_in for total in totals) == sum(range(before))
    assert sum(total.records_out for total in totals) == sum(10 * index + 1 for index in range(before))


@given(PARALLELISM)
def test_at_the_same_parallelism_every_subtask_gets_its_own_back(parallelism: int) -> None:
    snapshot = _snapshot(parallelism, [SplitState("s", 1, 2)], [True, False])
    restored = redistribute(normalize(word_count(parallelism=parallelism)), snapshot)
    assert [state.operators for state in snapshot.subtasks] == [
        restored[state.vertex_id, state.subtask].operators for state in snapshot.subtasks
    ]


def test_no_snapshot_is_no_state() -> None:
    assert redistribute(normalize(word_count()), None) == {}
    assert counted(normalize(word_count()), None) == {}
