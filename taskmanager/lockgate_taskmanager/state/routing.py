"""KeyRouting: which subtask of a vertex gets a row, by the hash of its key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from lockgate_taskmanager.state.layout import HASH


@dataclass(frozen=True, slots=True)
class KeyRouting:
    """Of one vertex: the subtask of a key group is `key group * parallelism // max_parallelism`."""

    parallelism: int
    max_parallelism: int

    def owners(self, table: pa.Table, groups: Any = None) -> Any:
        """The subtask of each row, int16. groups: the key group of each row, int64; None: by the column `__hash`.

        Raises KeyError when there is neither.
        """
        numbers = np.mod(table.column(HASH).to_numpy(), self.max_parallelism) if groups is None else groups
        return (numbers * self.parallelism // self.max_parallelism).astype(np.int16)

    def share(self, table: pa.Table, subtask: int) -> pa.Table:
        """The rows of one subtask, in order. Raises KeyError when the rows have no hash."""
        return table.filter(pa.array(self.owners(table) == subtask))
