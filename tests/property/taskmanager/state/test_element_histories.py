"""Large maps and lists of process functions against plain dicts and lists: random edits, snapshots, restores and
rescales, in RocksDB and, by way of savepoints, in memory.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from lockgate_proto.messages import FilesystemBackend, RocksdbBackend, StateBackend
from lockgate_taskmanager.state.format import key_payload
from lockgate_taskmanager.state.rocksdb.element_entries import prefix
from lockgate_taskmanager.state.rows.row_database import RowDatabase
from lockgate_taskmanager.state.rows.row_store import NEVER

from tests.large_states import LargeStates, States, View
from tests.property.taskmanager.state.store_world import GROUPS, hash_of

CHOICES = (
    StateBackend(RocksdbBackend(memory_bytes=16 << 20)),
    StateBackend(FilesystemBackend(), full_every=4, binary_diff=True),
)
KEYS = ("a", "b", "aa", "c")
SHARES = ((range(GROUPS),), (range(GROUPS // 2), range(GROUPS // 2, GROUPS)))
LARGE = 70_000  # more than a frame of a pickle has
Edit = tuple[str, int]


class Model:
    """One key as a plain dict, list and value."""

    def __init__(self) -> None:
        self.mapped: dict[int, Any] = {}
        self.listed: list[Any] = []
        self.value: Any = None

    def view(self) -> View:
        return list(self.mapped.items()), list(self.listed), self.value


def edit(model: Model, states: States, change: Edit) -> None:
    """The same change of both."""
    name, n = change
    text = "x" * LARGE if n % 97 == 0 else f"text {n}"
    if name == "set":
        model.mapped[n % 20] = text
        states.mapped[n % 20] = text
    elif name == "remove" and n % 20 in model.mapped:
        del model.mapped[n % 20]
        del states.mapped[n % 20]
    elif name == "append":
        model.listed.append(text)
        states.listed.append(text)
    elif name == "extend":
        model.listed += [n, [text, None], {"n": n}]
        states.listed.extend([n, [text, None], {"n": n}])
    elif name == "replace":
        model.listed[:] = [n, n, None]
        states.listed.set([n, n, None])
    elif name == "value":
        model.value = text if n % 2 else None
        states.value.set(model.value)
    elif name == "clear map":
        model.mapped.clear()
        states.mapped.clear()
    elif name == "clear list":
        model.listed.clear()
        states.listed.clear()


class World:
    """The subtasks of a job, attempt after attempt, beside the model."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="lockgate-elements-"))
        self.models = {key: Model() for key in KEYS}
        self.number, self.choice, self.groups = 0, CHOICES[0], SHARES[0]
        self.base = [0]  # of each subtask
        self.stores = self._made()

    def _made(self) -> list[LargeStates]:
        return [
            LargeStates(self.choice, self.folder / f"{self.number}-{part}", groups)
            for part, groups in enumerate(self.groups)
        ]

    def store_of(self, key: str) -> LargeStates:
        return next(store for store in self.stores if hash_of(key) % GROUPS in store.spec.key_groups)

    def visit(self, key: str, changes: list[Edit]) -> None:
        """A call of the function in which all of these happen."""
        model = self.models[key]

        def apply(states: States) -> None:
            for change in changes:
                edit(model, states, change)

        assert self.store_of(key).visit(key, apply) == model.view()
        assert self.store_of(key).view(key) == model.view()

    def restart(self, share: int, choice: int, is_savepoint: bool) -> None:
        """A snapshot, from which the next attempt begins: with as many subtasks, and this backend if it may change."""
        self.number += 1
        states = [
            store.snapshot(self.number, base, is_savepoint=is_savepoint)
            for store, base in zip(self.stores, self.base, strict=True)
        ]
        before, groups = self.stores, self.groups
        self.groups = SHARES[share]
        self.choice = CHOICES[choice] if is_savepoint else self.choice
        self.stores = self._made()
        for store in self.stores:
            mine = [state for state, owned in zip(states, groups, strict=True) if {*owned} & {*store.spec.key_groups}]
            store.restore(mine, self.number)
        self.base = [0 if is_savepoint or groups != self.groups else self.number] * len(self.stores)
        for store in before:
            store.close()

    def check(self) -> None:
        """Every key is as the model has it, and nothing else is in the databases."""
        for key, model in self.models.items():
            assert self.store_of(key).view(key) == model.view()
        for store in self.stores:
            if isinstance(store.rows, RowDatabase):
                check_elements(store.rows)

    def close(self) -> None:
        for store in self.stores:
            store.close()
        shutil.rmtree(self.folder)


def check_elements(rows: RowDatabase) -> None:
    """The elements in a database are those that its rows know."""
    known = set()
    for name, value in rows.database.rows(b"", b"\x80", NEVER):
        (payload,) = rows.elements.joined([name], rows._table.rows_of([value]).payloads)  # type: ignore[union-attr]
        for apart in key_payload.read(payload.as_py()).apart.values():
            known |= {prefix(name) + key_payload.name_of(apart.number, position) for position in apart.positions}
    assert set(rows.database.names(b"\x80", b"\xff" * 9, NEVER)) == known


edits = st.tuples(
    st.sampled_from(["set", "set", "set", "remove", "append", "extend", "replace", "value", "clear map", "clear list"]),
    st.integers(0, 200),
)
steps = st.one_of(
    st.tuples(st.just("visit"), st.sampled_from(KEYS), st.lists(edits, min_size=1, max_size=12)),
    st.tuples(st.just("visit"), st.sampled_from(KEYS), st.lists(edits, min_size=1, max_size=3)),
    st.tuples(st.just("restart"), st.sampled_from([0, 1]), st.sampled_from([0, 0, 1]), st.booleans()),
)
FILL = ("visit", "a", [*(("set", n) for n in range(20)), *(("append", n) for n in range(20))])
MOVED = ("visit", "a", [("remove", 3), ("set", 3), ("remove", 19), ("set", 19), ("set", 7)])
ENDED = ("visit", "a", [("clear map", 0), ("clear list", 0), ("extend", 1), ("value", 97)])


@settings(max_examples=60, deadline=None)
@example([FILL, MOVED, ("restart", 1, 0, False), ENDED, ("restart", 0, 0, False), FILL])
@example([FILL, ("restart", 0, 1, True), MOVED, ("restart", 1, 0, True), MOVED, ("restart", 0, 0, False), ENDED])
@given(st.lists(steps, max_size=12))
def test_elements_are_those_of_plain_maps_and_lists(plan: list[tuple[Any, ...]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_payload, "LARGEST_WHOLE", 200)
        world = World()
        try:
            for name, *given_ in plan:
                getattr(world, name)(*given_)
            world.check()
            world.restart(0, 0, False)
            world.check()
        finally:
            world.close()
