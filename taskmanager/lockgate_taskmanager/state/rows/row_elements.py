"""Elements of large maps and lists in a RocksDB database, each a row of its own. See `key_payload`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lockgate_taskmanager.state.format.key_payload import ALL, MARK
from lockgate_taskmanager.state.rocksdb.barrier_buffered_database import BarrierBufferedDatabase
from lockgate_taskmanager.state.rocksdb.element_entries import bounds, prefix
from lockgate_taskmanager.state.rows.row_store import NEVER, Array, Keys

PORTION_BYTES = 64 << 20  # of payloads with their elements


class RowElements:
    """The ElementRows of a database. names_of: the database keys of the rows of some keys."""

    def __init__(self, database: BarrierBufferedDatabase, names_of: Callable[[Keys], list[bytes]]) -> None:
        self._database, self._names_of = database, names_of

    def put(self, keys: Keys, names: pa.Array, payloads: pa.Array) -> None:
        changes: dict[bytes, bytes | None] = {}
        for row, name, payload in zip(self._names_of(keys), names.to_pylist(), payloads.to_pylist(), strict=True):
            if name == ALL:
                changes |= self._removed(row)
            else:
                changes[prefix(row) + name] = payload
        self._database.write(changes)

    def obsolete(self, names: Sequence[bytes], before: pa.Array, after: pa.Array) -> dict[bytes, bytes | None]:
        """The removal of all elements of the rows that had some, and now have none."""
        changes: dict[bytes, bytes | None] = {}
        for at in np.flatnonzero(_begins(before, MARK) & ~_begins(after, MARK)).tolist():
            changes |= self._removed(names[at])
        return changes

    def joined(self, names: Sequence[bytes], payloads: pa.Array) -> pa.Array:
        """Payloads of rows, with their elements."""
        are_apart = _begins(payloads, MARK)
        if not are_apart.any():
            return payloads
        found = payloads.to_pylist()
        for at in np.flatnonzero(are_apart).tolist():
            found[at] = self._joined(names[at], found[at])
        return pa.array(found, payloads.type)

    def portions(self, names: Sequence[bytes], keys: Keys, payloads: pa.Array) -> Iterator[tuple[Keys, pa.Array]]:
        """Keys with the same, in portions of a bounded number of bytes, unless a row has more. names: of the rows."""
        start, held, some = 0, 0, []
        are_apart = _begins(payloads, MARK)
        for behind, name in enumerate(names, 1) if are_apart.any() else ():
            payload = payloads[behind - 1].as_py()
            some.append(self._joined(name, payload) if are_apart[behind - 1] else payload)
            held += len(some[-1])
            if held >= PORTION_BYTES:
                yield keys.take(np.arange(start, behind)), pa.array(some, payloads.type)
                start, held, some = behind, 0, []
        if some:
            yield keys.take(np.arange(start, len(keys))), pa.array(some, payloads.type)
        elif start < len(keys):
            yield keys, payloads

    def _removed(self, name: bytes) -> dict[bytes, bytes | None]:
        return dict.fromkeys(self._database.names(*bounds(name), limit=NEVER))

    def _joined(self, name: bytes, payload: bytes) -> bytes:
        return b"".join((payload, *self._database.values(*bounds(name))))


def _begins(payloads: pa.Array, mark: bytes) -> Array:
    """Mask of the payloads that begin so; False for NULL."""
    return pc.starts_with(payloads, mark.decode()).fill_null(False).to_numpy(zero_copy_only=False)
