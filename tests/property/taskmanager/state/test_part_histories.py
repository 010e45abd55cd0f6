"""Named parts: whatever becomes of snapshots (late, lost, aborted), each kept one is the state that it was taken of."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lockgate_proto.messages import ObjectState, OperatorState
from lockgate_taskmanager.spark.functions.object_restore import Owner
from lockgate_taskmanager.spark.functions.object_state import StateOfObject
from lockgate_taskmanager.state.backend import FileBackend
from lockgate_taskmanager.state.parts import cleaning, pack_reader, pack_writer
from lockgate_taskmanager.task.program import SnapshotOrder

pytestmark = pytest.mark.spark  # objects are pickled with what comes with Spark

names = st.sampled_from("abcdefgh")
which = st.integers(0, 3)
steps = st.one_of(
    st.tuples(st.just("put"), names, st.integers(0, 300)),
    st.tuples(st.just("put"), names, st.integers(0, 300)),
    st.tuples(st.just("drop"), names),
    st.tuples(st.just("trigger"), st.booleans()),
    st.tuples(st.just("upload"), which),
    st.tuples(st.just("complete"), which, st.booleans()),
    st.tuples(st.just("checkpoint"), st.booleans()),
    st.tuples(st.just("checkpoint"), st.booleans()),
    st.tuples(st.just("abort"), which),
    st.tuples(st.just("restart")),
)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files and steps that a few parts fill."""
    monkeypatch.setattr(pack_writer, "PACK_BYTES", 500)
    monkeypatch.setattr(cleaning, "MOST_FILES", 4)
    monkeypatch.setattr(cleaning, "_MERGED", 2)
    monkeypatch.setattr(cleaning, "_LEAST_BYTES", 100)
    monkeypatch.setattr(pack_reader, "_SMALL", 0)


class Parts:
    """The author's object."""

    def __init__(self) -> None:
        self.parts: dict[str, bytes] = {}
        self.changed: set[str] = set()

    def snapshot_state(self) -> dict[str, bytes]:
        return self.parts

    def changes_since_last_checkpoint(self) -> dict[str, bytes | None]:
        changed, self.changed = self.changed, set()
        return {name: self.parts.get(name) for name in changed}

    def restore_state(self, state: dict[str, bytes]) -> None:
        self.parts = state


class World:
    """One subtask, its storage, and a leader that keeps the newest three checkpoints."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._attempt, self._number, self._fill = folder, 0, 0, 0
        self.under_way: list[tuple[int, bool, Any, dict[str, bytes]]] = []
        self._stored: dict[int, tuple[bool, OperatorState, dict[str, bytes]]] = {}
        self.kept: dict[int, tuple[OperatorState, dict[str, bytes]]] = {}
        self._heard = 0
        self._open()

    def _open(self) -> None:
        self._attempt += 1
        self._function = Parts()
        self._state = StateOfObject(
            self._function, ObjectState.OBJECT_STATE_SPLIT, Owner("f", "operator 'f'", 0, 1), has_files=True
        )

    def put(self, name: str, size: int) -> None:
        self._fill = (self._fill + 1) % 256
        self._function.parts[name] = bytes([self._fill]) * size
        self._function.changed.add(name)

    def drop(self, name: str) -> None:
        if self._function.parts.pop(name, None) is not None:
            self._function.changed.add(name)

    def trigger(self, is_savepoint: bool) -> None:
        self._number += 1
        frozen = self._state.snapshot(self._number, SnapshotOrder(self._heard, is_savepoint))
        self.under_way.append((self._number, is_savepoint, frozen, dict(self._function.parts)))

    def upload(self, index: int) -> None:
        if index < len(self.under_way):
            number, is_savepoint, frozen, parts = self.under_way.pop(index)
            writer = FileBackend(str(self._folder), f"a{self._attempt}-v-0").writer(number)
            self._stored[number] = (is_savepoint, frozen.persist(number, writer), parts)

    def complete(self, index: int, is_heard: bool) -> None:
        numbers = sorted(self._stored)
        if index >= len(numbers) or numbers[index] < max(self.kept, default=0):
            return
        number = numbers[index]
        is_savepoint, state, parts = self._stored.pop(number)
        self.kept[number] = (state, parts)
        for older in [older for older in numbers if older < number]:
            self._remove(older)
        self.under_way = [waiting for waiting in self.under_way if waiting[0] > number]
        if not is_savepoint:
            self._newest = number
            self._heard = number if is_heard else self._heard
        for old in sorted(self.kept)[:-3]:
            if old != self._heard:
                del self.kept[old]
        self._sweep()

    def checkpoint(self, is_heard: bool) -> None:
        self.trigger(is_savepoint=False)
        while self.under_way:
            self.upload(0)
        self.complete(len(self._stored) - 1, is_heard)

    def abort(self, index: int) -> None:
        numbers = sorted(self._stored)
        if index < len(numbers):
            self._remove(numbers[index])

    def restart(self) -> None:
        """From the newest, whether the subtask has heard of it or not."""
        self.under_way = []
        for number in sorted(self._stored):
            self._remove(number)
        self._open()
        self._heard = 0
        if self.kept:
            number = max(self.kept)
            self._state.restore([self.kept[number][0]], number)
            is_own = all(file.shared for file in self.kept[number][0].files)
            self._heard = number if is_own else 0

    def _remove(self, number: int) -> None:
        self._stored.pop(number, None)
        shutil.rmtree(self._folder / f"chk-{number}", ignore_errors=True)
        for file in self._folder.glob(f"shared/{number}-*"):
            file.unlink()

    def _sweep(self) -> None:
        """Deletes shared files of complete checkpoints that no kept one refers to; later ones may refer to them."""
        states = [state for state, _ in self.kept.values()]
        used = {file.path.rpartition("/")[2] for state in states for file in state.files}
        newest = max(self.kept)
        for file in self._folder.glob("shared/*"):
            if int(file.name.partition("-")[0]) <= newest and file.name not in used:
                file.unlink()

    def check(self) -> None:
        for number, (state, parts) in self.kept.items():
            restored = Parts()
            owner = Owner("f", "operator 'f'", 0, 1)
            StateOfObject(restored, ObjectState.OBJECT_STATE_SPLIT, owner, has_files=True).restore([state], number)
            assert restored.parts == parts, f"checkpoint {number}"


@settings(deadline=None, max_examples=150)
@given(st.lists(steps, max_size=40))
def test_every_kept_checkpoint_restores_its_parts(history: list[tuple[Any, ...]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        world = World(Path(name))
        for step, *arguments in history:
            getattr(world, step)(*arguments)
        world.check()
