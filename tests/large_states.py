"""The states of process functions in a row store, read and written as their calls do, without Spark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from lockgate_proto.messages import OperatorState, StateBackend
from lockgate_taskmanager.spark.keyed.handles import Cells, ListHandle, MapHandle, ValueHandle
from lockgate_taskmanager.state.backend import make_backend
from lockgate_taskmanager.state.factory import StoreFactory
from lockgate_taskmanager.state.format import key_payload
from lockgate_taskmanager.state.layout import HASH
from lockgate_taskmanager.state.rows.row_store import NEVER, PROCESS, Keys, Rows, RowSpec, RowStore
from lockgate_taskmanager.state.scratch import ScratchFolder
from lockgate_taskmanager.task.program import SnapshotOrder

from tests.property.taskmanager.state.store_world import GROUPS, hash_of

SCHEMA = pa.schema([("k", pa.string()), (HASH, pa.int64())])
View = tuple[list[tuple[Any, Any]], list[Any], Any]


class States:
    """What a function sees of a key: a map, a list and a value."""

    def __init__(self, content: dict[str, Any]) -> None:
        self.cells = Cells()
        self.cells.content = content
        self.mapped = MapHandle(self.cells, "mapped", lambda value: value, 0, lambda key: key)
        self.listed = ListHandle(self.cells, "listed", lambda value: value, 0)
        self.value = ValueHandle(self.cells, "value", lambda value: value, 0)

    def view(self) -> View:
        return self.mapped.items(), self.listed.get(), self.value.get()


class LargeStates:
    """The store of one subtask. groups: its key groups."""

    def __init__(self, choice: StateBackend, folder: Path, groups: range = range(GROUPS)) -> None:
        self.choice, self._folder, self.now_ms = choice, folder, 0
        self.spec = RowSpec("op", PROCESS, ("k",), GROUPS, groups)
        self.factory = StoreFactory(choice, ScratchFolder(folder / "work", "state-"))
        self.rows: RowStore = self.factory.fresh(self.spec, SCHEMA)

    def visit(self, key: str, edit: Callable[[States], None], expiry: int = NEVER) -> View:
        """One call of a function. expiry: of the key."""
        keys = Keys(pa.record_batch({"k": pa.array([key])}), np.array([hash_of(key)]))
        stored = key_payload.read(self.rows.find(keys, self.now_ms)[0].as_py())
        states = States(stored.states)
        edit(states)
        content = states.cells.content
        if states.cells.is_changed:
            payload, elements = None, []
            if content:
                payload, elements = key_payload.written(content, [], [], stored.apart, self.rows.elements is not None)
            never = np.array([NEVER])
            self.rows.put(keys, Rows(pa.array([payload], pa.binary()), never, never, np.array([expiry])))
            if elements:
                assert self.rows.elements is not None
                names, values = (pa.array(column, pa.binary()) for column in zip(*elements, strict=True))
                self.rows.elements.put(keys.take(np.zeros(len(elements), np.int64)), names, values)
        return states.view()

    def view(self, key: str) -> View:
        return self.visit(key, lambda states: None)  # noqa: ARG005

    def snapshot(self, number: int, base: int = 0, *, is_savepoint: bool = False) -> OperatorState:
        frozen = self.rows.snapshot(SnapshotOrder(base, is_savepoint))
        writer = make_backend(self.choice, str(self._folder / "storage"), f"a{id(self)}-v-{self.spec.key_groups.start}")
        state = frozen.persist(number, writer.writer(number))
        frozen.release()
        return state

    def restore(self, states: Sequence[OperatorState], number: int) -> None:
        """Begins again from snapshots."""
        self.rows.close()
        self.rows = self.factory.restored(self.spec, states, number)

    def close(self) -> None:
        self.rows.close()
