"""The contents of windows on every home of their records."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from lockgate_proto.messages import OperatorState, RocksdbBackend, StateBackend, Window
from lockgate_taskmanager.state.backend import InlineBackend, load, make_backend
from lockgate_taskmanager.state.contents.contents_spec import ContentsSpec
from lockgate_taskmanager.state.contents.window_contents import WindowContents
from lockgate_taskmanager.state.factory import StoreFactory
from lockgate_taskmanager.state.scratch import ScratchFolder
from lockgate_taskmanager.task.program import BY_ITSELF, SnapshotOrder

HOMES = {
    "memory": StateBackend(),
    "increments": StateBackend(full_every=3),
    "rocksdb": StateBackend(RocksdbBackend(memory_bytes=16 << 20)),
}


class ContentsFolder:
    """A folder of a test with the windows that work in it. `close` removes it all."""

    def __init__(self, window: Window, schema: pa.Schema, max_parallelism: int) -> None:
        """schema: of the records, with the key `k`, hashes and times."""
        self._window, self._schema, self._groups = window, schema, max_parallelism
        self._folder = tempfile.TemporaryDirectory(prefix="lockgate-contents-")
        self._scratch = ScratchFolder(Path(self._folder.name) / "work", "state-")
        self._made: list[WindowContents] = []

    def fresh(self, home: str, groups: range) -> WindowContents:
        """Empty contents."""
        spec = self._spec(groups)
        return self._kept(WindowContents(spec, self._factory(home).fresh(spec, self._schema), self._schema))

    def restored(self, home: str, groups: range, states: Sequence[OperatorState], number: int) -> WindowContents:
        """Contents with the state of some subtasks."""
        spec = self._spec(groups)
        held = self._factory(home).restored(spec, states, number)
        return self._kept(WindowContents(spec, held, held.restored_from[0].partial_schema))

    def stored(
        self, home: str, contents: WindowContents, number: int, order: SnapshotOrder = BY_ITSELF
    ) -> OperatorState:
        """A snapshot, where its backend puts it."""
        frozen = contents.snapshot(order)
        prefix = f"a{id(contents)}-windows-0"
        state = frozen.persist(number, make_backend(HOMES[home], f"{self._folder.name}/storage", prefix).writer(number))
        frozen.release()
        return state

    def close(self) -> None:
        """Closes every store and deletes the folder."""
        for contents in self._made:
            contents.close()
        self._scratch.close()
        self._folder.cleanup()

    def _spec(self, groups: range) -> ContentsSpec:
        return ContentsSpec("windows", ("k",), self._window, self._groups, groups)

    def _factory(self, home: str) -> StoreFactory:
        return StoreFactory(HOMES[home], self._scratch)

    def _kept(self, contents: WindowContents) -> WindowContents:
        self._made.append(contents)
        return contents


@contextmanager
def contents_folder(window: Window, schema: pa.Schema, max_parallelism: int) -> Iterator[ContentsFolder]:
    """Closed in the end."""
    made = ContentsFolder(window, schema, max_parallelism)
    try:
        yield made
    finally:
        made.close()


def held(contents: WindowContents) -> int:
    """How many records wait, as a savepoint has them."""
    frozen = contents.snapshot(SnapshotOrder(is_savepoint=True))
    state = frozen.persist(1, InlineBackend(1 << 30).writer(1))
    frozen.release()
    assert state.handle is not None
    return int(pa.ipc.open_file(load(state.handle)).read_all().num_rows)
