"""A snapshot spread over another number of subtasks: nothing is lost, nothing is there twice, order stays."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
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

from coordinator.graph.normalize import normalize
from coordinator.graph.shape import vertex_shapes
from coordinator.recovery.redistribute import counted, redistribute
from coordinator.recovery.restore import misfits
from tests.unit.coordinator.jobs import word_count

PARALLELISM = st.integers(1, 9)
SPLITS = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50), st.booleans()), max_size=20)


def _state(operator: str, kind: StateKind, data: bytes) -> OperatorState:
    return OperatorState(operator_id=operator, kind=kind, handle=StateHandle(inline=data))


def _snapshot(parallelism: int, splits: list[SplitState], complete: list[bool]) -> CheckpointMetadata:
    """Of a word count: splits dealt out in turn, keyed state named after its subtask, two transactions a sink."""
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
def test_every_split_goes_on_where_it_was_in_exactly_one_subtask(
    before: int, after: int, drawn: list[tuple[int, int, bool]], complete: list[bool]
) -> None:
    splits = _splits(drawn)
    snapshot = _snapshot(before, splits, complete)
    graph = normalize(word_count(parallelism=after))
    assert misfits(graph, snapshot) == ()
    restored = redistribute(graph, snapshot)
    states = [decode(SourceState, restored["read", i].operators[0].handle.inline) for i in range(after)]  # type: ignore[union-attr]
    assert sorted((s for one in states for s in one.splits), key=lambda s: s.split) == sorted(
        splits, key=lambda s: s.split
    )
    if before != after:
        was_complete = all(complete[index % len(complete)] for index in range(before))
        assert {one.complete for one in states} == {was_complete}


@given(PARALLELISM, st.integers(1, 30), PARALLELISM)
def test_unread_splits_are_spread_evenly(before: int, count: int, after: int) -> None:
    splits = [SplitState(split=f"s{number}", offset=0, end=100) for number in range(count)]
    restored = redistribute(normalize(word_count(parallelism=after)), _snapshot(before, splits, [True]))
    if before != after:
        sizes = [len(decode(SourceState, restored["read", i].operators[0].handle.inline).splits) for i in range(after)]  # type: ignore[union-attr]
        assert max(sizes) - min(sizes) <= 1


@given(PARALLELISM, PARALLELISM)
def test_every_key_group_finds_its_state_and_nobody_loads_what_it_cannot_use(before: int, after: int) -> None:
    restored = redistribute(normalize(word_count(parallelism=after)), _snapshot(before, [], [True]))
    for index in range(after):
        keyed = [one for one in restored["count", index].operators if one.kind is StateKind.KEYED_STATE]
        got = [int(one.handle.inline) for one in keyed if one.handle is not None]
        groups = key_group_range(index, after, 128)
        assert sorted(got) == sorted({group * before // 128 for group in groups})


@given(PARALLELISM, PARALLELISM)
def test_every_pending_transaction_is_in_one_subtask_beside_its_siblings_and_in_order(before: int, after: int) -> None:
    restored = redistribute(normalize(word_count(parallelism=after)), _snapshot(before, [], [True]))
    home: dict[int, int] = {}
    seen: Counter[tuple[int, int]] = Counter()
    for index in range(after):
        for one in restored["count", index].operators:
            if one.kind is StateKind.SINK_STATE and one.handle is not None:
                pending = decode(SinkState, one.handle.inline).pending
                assert [each.checkpoint_id for each in pending] == sorted(each.checkpoint_id for each in pending)
                for each in pending:
                    assert home.setdefault(each.subtask, index) == index
                    seen[each.subtask, each.checkpoint_id] += 1
    assert seen == {(subtask, number): 1 for subtask in range(before) for number in (4, 5)}


@given(PARALLELISM, PARALLELISM)
def test_the_sums_of_the_counters_stay(before: int, after: int) -> None:
    restored = counted(normalize(word_count(parallelism=after)), _snapshot(before, [], [True]))
    totals = [one for state in restored.values() for one in state.counters]
    assert sum(one.records_in for one in totals) == sum(range(before))
    assert sum(one.records_out for one in totals) == sum(10 * index + 1 for index in range(before))


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
