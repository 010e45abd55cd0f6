"""The identity of the elements of count windows, and how they are found in a row store."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from lockgate_proto.messages import CountWindow

from lockgate_taskmanager.state.columns.hashing import mixed
from lockgate_taskmanager.state.rows.row_store import Keys, RowSpec

Array = Any  # numpy.ndarray
ELEMENT = "__lockgate_element"
"""Column of the number of an element: the last part of the key of a row."""
SEEN = -1
"""In its place: the row with the number of a key's records."""
OWNER = "count"


@dataclass(frozen=True, slots=True)
class CountSpec(RowSpec):
    """Of rows for the elements of each key, and one for its number of records. keys: with ELEMENT."""

    window: CountWindow

    @classmethod
    def of(cls, operator_id: str, window: CountWindow, max_parallelism: int, key_groups: range) -> CountSpec:
        """Of an operator in one subtask."""
        return cls(operator_id, OWNER, (*window.keys, ELEMENT), max_parallelism, key_groups, window)

    def within(self, schema: pa.Schema) -> CountSpec:
        """As RowSpec has it."""
        names = {name.casefold(): name for name in schema.names}
        return replace(self, keys=tuple(names[key.casefold()] for key in self.keys))

    @property
    def signature(self) -> str:
        window = self.window
        aggregates = [[item.output, item.function.name, item.input] for item in window.aggregates]
        named = {"counted": [key.casefold() for key in window.keys], "size": window.size, "every": window.every}
        return json.dumps({**named, "aggregated": aggregates})

    @property
    def key_names(self) -> tuple[str, ...]:
        """Of the key columns alone."""
        return self.keys[:-1]

    def elements_of(self, keys: Keys, numbers: Array) -> Keys:
        """The keys of the rows of some elements. numbers: of the elements.

        Their hashes differ, so that a key with many elements is found as fast as any, and are of the key's key group.
        """
        fields = [*keys.columns.schema, pa.field(ELEMENT, pa.int64())]
        columns = pa.RecordBatch.from_arrays([*keys.columns.columns, pa.array(numbers)], schema=pa.schema(fields))
        groups, most = self.max_parallelism, np.iinfo(np.int64)
        spread = np.clip(mixed(keys.hashes, numbers), most.min + groups, most.max - groups)
        return Keys(columns, spread - np.mod(spread, groups) + np.mod(keys.hashes, groups))


def with_element(schema: pa.Schema) -> pa.Schema:
    """The schema of the records as the row store has it."""
    return schema.append(pa.field(ELEMENT, pa.int64()))


def without_element(schema: pa.Schema) -> pa.Schema:
    """The inverse."""
    return pa.schema([field for field in schema if field.name != ELEMENT])
