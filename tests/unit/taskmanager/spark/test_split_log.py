"""What snapshots hold of the splits of a watched folder: everything, at a cost that goes with what is new."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from lockgate_proto.codec import decode
from lockgate_proto.messages import OperatorState, SourceState, SplitState
from lockgate_taskmanager.spark import split_log
from lockgate_taskmanager.spark.layout import ChainLayout
from lockgate_taskmanager.spark.snapshot import restore_plain
from lockgate_taskmanager.spark.sources.split_table import SplitTable
from lockgate_taskmanager.spark.split_log import SplitLog
from lockgate_taskmanager.state.backend import FileBackend, InlineBackend
from lockgate_taskmanager.state.format.split_files import SplitsUnknown, names_in
from lockgate_taskmanager.task.program import BY_ITSELF, SnapshotOrder, StateUnreadable


class Splits:
    """A source with a table; `size` is what is known of each split."""

    def __init__(self, splits: Sequence[SplitState] = ()) -> None:
        self.table = SplitTable()
        self.sizes: dict[str, int] = {}
        self.complete = False
        self.assign(splits, False)

    def assign(self, splits: Sequence[SplitState], complete: bool) -> None:
        for split in splits:
            self.table[split.split] = split
            self.sizes[split.split] = split.offset
        self.complete = self.complete or complete

    def is_at_rest(self, split: SplitState) -> bool:
        return split.offset == self.sizes[split.split]

    def splits(self) -> tuple[SplitState, ...]:
        return tuple(self.table.values())


class Attempts:
    """Attempts of one source subtask that snapshots are taken of and restored from."""

    def __init__(self, folder: Path, has_files: bool = True) -> None:
        self.backend = FileBackend(str(folder), "p") if has_files else InlineBackend(1 << 20)
        self.has_files = has_files
        self.start(())

    def start(self, splits: Sequence[SplitState]) -> None:
        self.source = Splits(splits)
        self.log = SplitLog("source", self.source, tuple, self.has_files)  # type: ignore[arg-type]

    def snapshot(self, checkpoint_id: int, order: SnapshotOrder = BY_ITSELF) -> OperatorState:
        return self.log.freeze(order).persist(checkpoint_id, self.backend.writer(checkpoint_id))


def restored(state: OperatorState) -> dict[str, SplitState]:
    source = Splits()
    layout = ChainLayout((), None, source, None, (), range(1), 1)  # type: ignore[arg-type]
    restore_plain(layout, state, source.assign)
    return dict(source.table)


def inside(state: OperatorState) -> tuple[SplitState, ...]:
    assert state.handle is not None
    return decode(SourceState, state.handle.inline).splits


def numbered(first: int, last: int, offset: int = 5) -> list[SplitState]:
    return [SplitState(f"{number:06}.txt", offset, -1) for number in range(first, last)]


def test_a_snapshot_writes_only_new_splits_and_few_files(tmp_path: Path) -> None:
    attempts, written, most = Attempts(tmp_path), [], 0
    state = attempts.snapshot(1)
    for number in range(2, 200):
        attempts.source.assign(numbered(100 * number, 100 * number + 100), False)
        state = attempts.snapshot(number, SnapshotOrder(number - 1))
        written.append(
            len(inside(state)) + sum(file.size_bytes for file in state.files if file.checkpoint_id == number)
        )
        most = max(most, len(state.files))
        assert len(inside(state)) < split_log.APART_FROM
    assert len(restored(state)) == 19_800
    assert most <= 10
    assert sum(written) < 12 * sum(file.size_bytes for file in state.files), "what is merged grows with the logarithm"
    assert sorted(written)[len(written) // 2] < 1000, "most write no file"


def test_few_splits_stay_inside_the_snapshot_as_ever(tmp_path: Path) -> None:
    attempts = Attempts(tmp_path)
    attempts.source.assign(numbered(0, split_log.APART_FROM - 1), True)
    state = attempts.snapshot(1)
    assert state.files == ()
    assert state.handle is not None
    kept = decode(SourceState, state.handle.inline)
    assert kept == SourceState(tuple(numbered(0, split_log.APART_FROM - 1)), complete=True)


def test_the_memory_backend_has_no_files(tmp_path: Path) -> None:
    attempts = Attempts(tmp_path, has_files=False)
    attempts.source.assign(numbered(0, 2000), False)
    state = attempts.snapshot(1)
    assert state.files == ()
    assert len(inside(state)) == 2000


def test_a_savepoint_is_self_contained(tmp_path: Path) -> None:
    attempts = Attempts(tmp_path)
    attempts.source.assign(numbered(0, 1000), False)
    attempts.snapshot(1)
    state = attempts.snapshot(2, SnapshotOrder(1, is_savepoint=True))
    (file,) = state.files
    assert (file.shared, file.checkpoint_id) == (False, 0)
    assert "chk-2/" in file.path
    assert len(restored(state)) == 1000


def test_unread_splits_stay_inline_where_a_rescale_can_distribute_them(tmp_path: Path) -> None:
    attempts = Attempts(tmp_path)
    attempts.source.assign(numbered(0, 2000), False)
    for number in range(700):
        attempts.source.sizes[f"{number:06}.txt"] = 9
    state = attempts.snapshot(1)
    assert len(inside(state)) == 700
    assert not any(split.rested for split in inside(state))


def test_a_split_that_continues_is_newer_inline_and_marked(tmp_path: Path) -> None:
    attempts = Attempts(tmp_path)
    attempts.source.assign(numbered(0, 1000), False)
    attempts.snapshot(1)
    grown = SplitState("000007.txt", 8, -1)
    attempts.source.assign([grown], False)
    state = attempts.snapshot(2, SnapshotOrder(1))
    assert inside(state) == (replace(grown, rested=True),)
    assert restored(state)["000007.txt"] == grown


def test_a_snapshot_that_builds_on_nothing_has_what_files_had_too_and_so_have_those_that_build_on_it(
    tmp_path: Path,
) -> None:
    """Most of a file's splits have grown, so that the rest is not worth a file any more."""
    attempts = Attempts(tmp_path)
    attempts.source.assign(numbered(0, 600), False)
    attempts.snapshot(1)
    attempts.snapshot(2, SnapshotOrder(1))
    for number in range(300):
        attempts.source.sizes[f"{number:06}.txt"] = 9
    assert len(restored(attempts.snapshot(3))) == 600
    assert len(restored(attempts.snapshot(4, SnapshotOrder(3)))) == 600


def test_files_that_have_vanished_are_reported(tmp_path: Path) -> None:
    """For who restores from them that is final; for who lists the folder the snapshot may be another one by now."""
    attempts = Attempts(tmp_path)
    attempts.source.assign(numbered(0, 1000), False)
    state = attempts.snapshot(1)
    (file,) = state.files
    assert len(list(names_in([file]))) == 1000
    Path(file.path.removeprefix("file://")).unlink()
    with pytest.raises(StateUnreadable, match="is missing"):
        restored(state)
    with pytest.raises(SplitsUnknown, match="is missing"):
        names_in([file])


steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(2, 6)),
        st.tuples(st.just("read"), st.integers(0, 30)),
        st.tuples(st.just("grow"), st.integers(0, 30)),
        st.tuples(
            st.just("snapshot"), st.sampled_from(["completes", "completes", "late", "fails", "full", "savepoint"])
        ),
        st.tuples(st.just("restart"), st.just(0)),
    ),
    max_size=40,
)


@settings(max_examples=120, deadline=None)
@example([("add", 4), ("snapshot", "completes"), ("snapshot", "completes")])
@example([("add", 4), ("snapshot", "completes"), ("grow", 1), ("snapshot", "late"), ("read", 1), ("restart", 0)])
@given(steps)
def test_every_completed_snapshot_holds_every_split_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, plan: list[tuple[str, int | str]]
) -> None:
    attempts = Attempts(tmp_path_factory.mktemp("state"))
    completed: dict[int, tuple[OperatorState, dict[str, SplitState]]] = {}
    under_way: list[int] = []
    last, files_of_failed = 0, set[str]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(split_log, "APART_FROM", 3)
        for what, number in plan:
            names = sorted(attempts.source.table)
            if what == "add":
                first = len(names)
                attempts.source.assign(numbered(first, first + int(number)), False)
            elif what in ("read", "grow") and names:
                name = names[int(number) % len(names)]
                split = attempts.source.table[name]
                attempts.source.sizes[name] += what == "grow"
                if what == "read":
                    attempts.source.table[name] = replace(split, offset=attempts.source.sizes[name])
            elif what == "snapshot":
                last += 1
                base = max((number for number in completed if number not in under_way), default=0)
                order = SnapshotOrder(0 if number == "full" else base, number == "savepoint")
                state = attempts.snapshot(last, order)
                if number == "fails":
                    files_of_failed |= {file.path for file in state.files if file.checkpoint_id == last}
                    continue
                completed[last] = (state, dict(attempts.source.table))
                under_way = [last] if number == "late" else []  # subtasks hear of it with the next one
            elif what == "restart" and completed:
                attempts.start(list(restored(completed[max(completed)][0]).values()))
                under_way = []
        for state, wanted in completed.values():
            assert restored(state) == wanted
            assert not files_of_failed & {file.path for file in state.files}
