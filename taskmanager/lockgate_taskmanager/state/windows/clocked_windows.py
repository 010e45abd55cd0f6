"""The common part of stores that fire windows by the clock, over a windowed store in memory or in a database."""

from __future__ import annotations

from typing import Generic, TypeVar

import pyarrow as pa

from lockgate_taskmanager.state.store import CompiledStore, Fires, FrozenStore
from lockgate_taskmanager.task.program import SnapshotOrder, UserError

Windows = TypeVar("Windows", bound=Fires)


class ClockedWindows(Generic[Windows]):
    """What a ProcessingTimeStore leaves to the windows. windows: new or restored."""

    def __init__(self, windows: Windows) -> None:
        self._windows: Windows = windows

    @property
    def schema(self) -> pa.Schema:
        return self._windows.schema

    @property
    def partial_schema(self) -> pa.Schema:
        return self._windows.partial_schema

    def set_input_schema(self, schema: pa.Schema) -> None:
        """Raises UserError for columns or types that differ from those of the stored state."""
        stored, given = ({field.name: field.type for field in item} for item in (self.partial_schema, schema))
        if stored != given:
            raise UserError(
                f"the stored windows have the columns ({_listed(stored)}), the input now has ({_listed(given)}):"
                " give it the same columns and types with SELECT and CAST"
            )

    @property
    def has_more(self) -> bool:
        return self._windows.has_more

    @property
    def is_settled(self) -> bool:
        return self._windows.is_settled

    def snapshot(self, order: SnapshotOrder) -> FrozenStore:
        return self._windows.snapshot(order)

    def warm_up(self) -> None:
        """Aggregates have no Spark job, functions have."""
        if isinstance(self._windows, CompiledStore):
            self._windows.warm_up()

    def close(self) -> None:
        self._windows.close()


def _listed(columns: dict[str, pa.DataType]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())
