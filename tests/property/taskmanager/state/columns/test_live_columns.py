"""Columns that are written while snapshots read them, against copies made at once."""

from __future__ import annotations

import threading

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from lockgate_taskmanager.state.columns.folded import Freeze
from lockgate_taskmanager.state.columns.live_columns import FrozenColumns, LiveColumns

KINDS = ((None, np.object_), (7, np.int64))
ROWS = 12
rows_ = st.lists(st.integers(0, ROWS - 1), unique=True, max_size=5)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("write"), rows_),
        st.tuples(st.just("freeze"), st.integers(0, ROWS)),
        st.tuples(st.just("release"), st.integers(0, 5)),
        st.tuples(st.just("grow"), st.just(0)),
        st.tuples(st.just("keep"), rows_),
    ),
    max_size=25,
)


@given(steps)
@settings(max_examples=300, deadline=None)
def test_frozen_values_do_not_change(story: list[tuple[str, object]]) -> None:
    live = LiveColumns(KINDS, ROWS)
    taken: list[tuple[FrozenColumns, Freeze, list[list[object]]]] = []
    for number, (step, what) in enumerate(story):
        if step == "write":
            rows = np.array(what, np.int64)
            live.write(rows, (np.array([f"v{number}"] * len(rows), np.object_), np.full(len(rows), number)))
        elif step == "freeze":
            reader = Freeze()
            copy = [live[column][:what].tolist() for column in range(2)]  # type: ignore[misc]
            taken.append((live.freeze(what, reader), reader, copy))  # type: ignore[arg-type]
        elif step == "release" and taken:
            frozen, reader, copy = taken.pop(0)
            assert [item.tolist() for item in frozen.take(np.arange(frozen.count))] == copy
            reader.done = True
        elif step == "grow":
            live.reserve(2 * len(live))
        elif step == "keep":
            live.keep(np.array(what, np.int64), max(ROWS, len(live)))
        for frozen, _, copy in taken:
            assert [item.tolist() for item in frozen.take(np.arange(frozen.count))] == copy


def test_the_first_write_behind_a_freeze_moves_nothing() -> None:
    live = LiveColumns(KINDS, 1000)
    frozen = live.freeze(1000, Freeze())
    before = live[0]
    live.write(np.array([3]), (np.array([b"x"], np.object_), np.array([1])))
    assert live[0] is before
    assert frozen.take(np.array([3, 4]))[1].tolist() == [7, 7]


def test_a_reader_on_another_thread_sees_one_moment() -> None:
    count = 50_000
    live = LiveColumns(KINDS, count)
    live.write(np.arange(count), (np.full(count, b"0", np.object_), np.zeros(count, np.int64)))
    frozen = live.freeze(count, Freeze())
    found: list[np.ndarray] = []
    reader = threading.Thread(target=lambda: found.extend(frozen.take(np.arange(count))))
    reader.start()
    turn = 0
    while reader.is_alive() or turn < 3:
        turn += 1
        live.write(np.arange(count), (np.full(count, b"%d" % turn, np.object_), np.full(count, turn)))
    reader.join()
    assert set(found[0].tolist()) == {b"0"}
    assert set(found[1].tolist()) == {0}
