"""Before images: what a value was in the snapshot that is built on, whatever has become of the snapshots in between."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lockgate_taskmanager.state.rows.before_images import BeforeImages

ROWS = 6
LARGE = b"x" * 1000


class Values:
    """A few rows as a store keeps them, with their before images and copies of all that ever was."""

    def __init__(self) -> None:
        self.images = BeforeImages()
        self.now = np.full(ROWS, None, np.object_)
        self.changed_at = np.zeros(ROWS, np.int32)
        self.version = 1
        self.copies: dict[int, Any] = {}

    def set(self, changes: dict[int, bytes | None]) -> None:
        rows = np.array(list(changes), np.int64)
        after = np.empty(len(rows), np.object_)
        after[:] = list(changes.values())
        self.images.note(rows, self.now[rows], after, self.changed_at[rows])
        self.now[rows], self.changed_at[rows] = after, self.version

    def freeze(self, base: int, is_base: bool = True) -> None:
        """A snapshot. base: version of the one that it builds on."""
        layers = self.images.since(base)
        if layers is not None:
            before = layers.before()
            found = dict(zip(before.rows.tolist(), before.values.tolist(), strict=True))
            old = self.copies[base]
            assert list(found) == sorted(found)
            assert found == {row: old[row] for row in found}
            assert all(old[row] is self.now[row] for row in range(ROWS) if row not in found)
        self.copies[self.version] = self.now.copy()
        if is_base:
            self.images.begin(self.version)
        self.version += 1


def test_the_oldest_layer_from_the_base_on_has_the_last_word() -> None:
    values = Values()
    values.set({row: LARGE + b"%d" % row for row in range(ROWS)})
    values.freeze(0)
    values.set({1: LARGE + b"second", 2: None})
    values.freeze(1)
    values.set({1: LARGE + b"third", 2: LARGE + b"back", 3: LARGE + b"third"})
    values.freeze(1)  # the second has come to nothing
    layers = values.images.since(1)
    assert layers is not None
    before = layers.before()
    assert before.rows.tolist() == [1, 2, 3]
    assert before.values.tolist() == [LARGE + b"%d" % row for row in (1, 2, 3)]


def test_a_released_base_is_unknown() -> None:
    values = Values()
    values.set(dict.fromkeys(range(ROWS), LARGE))
    values.freeze(0)
    values.freeze(1)
    values.freeze(2)
    assert values.images.since(1) is None, "it was said that nothing builds on it any more"
    assert values.images.since(2) is not None
    values.images.clear()
    assert values.images.since(2) is None


def test_before_images_take_no_more_than_twice_the_values() -> None:
    values = Values()
    values.set(dict.fromkeys(range(ROWS), LARGE))
    values.freeze(0)
    for number in range(2):
        values.set(dict.fromkeys(range(ROWS), LARGE + b"%d" % number))
        values.freeze(1)
    assert values.images.since(1) is not None
    values.set({0: LARGE, 1: LARGE})
    assert values.images.since(1) is None, "the oldest have to go"
    assert values.images.since(2) is not None
    values.set(dict.fromkeys(range(ROWS), b""))  # hardly anything is left to keep images of
    assert values.images.since(3) is None


steps = st.one_of(
    st.tuples(
        st.just("set"),
        st.dictionaries(
            st.integers(0, ROWS - 1), st.one_of(st.none(), st.just(b""), st.binary(max_size=40)), min_size=1
        ),
    ),
    st.tuples(st.just("freeze"), st.integers(0, 4), st.booleans()),
    st.tuples(st.just("clear")),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(steps, max_size=40))
def test_the_values_of_a_base_are_unchanged(plan: list[tuple[Any, ...]]) -> None:
    values = Values()
    base = 0
    for name, *given_ in plan:
        if name == "set":
            values.set(given_[0])
        elif name == "freeze":  # bases only rise
            base = min(base + given_[0], values.version - 1)
            values.freeze(base, given_[1])
        else:
            values.images.clear()


@pytest.mark.parametrize("is_base", [True, False])
def test_a_savepoint_in_between_changes_nothing(is_base: bool) -> None:
    values = Values()
    values.set({0: LARGE})
    values.freeze(0)
    values.set({0: LARGE + b"1"})
    values.freeze(0, is_base)
    values.set({0: LARGE + b"2", 1: LARGE})
    layers = values.images.since(1)
    assert layers is not None
    assert layers.before().values.tolist() == [LARGE, None]
