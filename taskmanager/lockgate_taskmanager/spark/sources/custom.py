"""Sources that authors write in Python, see `lockgate.connectors.CustomSource`. Offsets are the author's."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import pandas as pd
import pyarrow as pa
from lockgate_common.backlog import Backlog
from lockgate_proto.messages import PythonSource, SplitRange, SplitState
from lockgate_proto.splits import UNBOUNDED, ending

from lockgate_taskmanager.spark.chain import loaded
from lockgate_taskmanager.spark.errors import explained
from lockgate_taskmanager.spark.jobs import to_arrow
from lockgate_taskmanager.spark.leaf import Form, LeafSpec
from lockgate_taskmanager.spark.raised import lasts, with_type
from lockgate_taskmanager.spark.sources.reading import UNASSIGNED_WAIT_MS, Reading
from lockgate_taskmanager.spark.user_code import close_quietly, may_be_ended
from lockgate_taskmanager.spark.valid_text import require_valid
from lockgate_taskmanager.task.program import (
    DataError,
    Exhausted,
    Idle,
    ProgramError,
    UserCodeFailed,
    UserError,
)

_ON_RECORDS = frozenset({"plan", "read", "stage"})
_FIRST_ROW_BYTES = 100  # until rows have been read


class ConnectorFailed(UserCodeFailed):
    """The author's source or sink raised; the same call may succeed after a restart."""


class Connector(Protocol):
    """The interface of `lockgate.connectors.CustomSource`."""

    idle_ms: int

    def open(self) -> None: ...
    def splits(self) -> Mapping[str, int | None]: ...
    def plan(self, split: str, start: int, limit: int) -> int | None: ...
    def read(self, split: str, start: int, end: int) -> Any: ...
    def close(self) -> None: ...


class CustomReader:
    """Calls an author's source. Opens it at the first read."""

    def __init__(self, source: PythonSource, schema: pa.Schema, where: str, by_split: bool = False) -> None:
        """by_split: the end of a split is reported even without records.

        Raises UserError when it cannot be unpickled.
        """
        self._by_split = by_split
        self._connector: Connector = _unpickled(source, where)
        self._schema = schema
        self._where = where
        self._splits: dict[str, SplitState] = {}
        self._turns: deque[str] = deque()  # splits that are not at their end, next one first
        self._ended: list[str] = []  # ended splits that no batch has reported yet
        self._complete = False
        self._is_open = False
        self._row_bytes = _FIRST_ROW_BYTES

    @property
    def complete(self) -> bool:
        return self._complete

    def spec(self) -> LeafSpec | None:
        return LeafSpec(Form.TABLE, table=self._schema)

    def assign(self, splits: Sequence[SplitState], complete: bool) -> None:
        for split in splits:
            if split.split in self._splits:
                continue  # assigned twice: it continues at its offset
            self._splits[split.split] = split
            if split.offset != split.end:
                self._turns.append(split.split)
        self._complete = self._complete or complete

    def splits(self) -> tuple[SplitState, ...]:
        return tuple(self._splits.values())

    def read(self, budget_bytes: int, now_ms: int) -> Reading | Idle | Exhausted:  # noqa: ARG002
        """One range of one split; the splits take turns."""
        if not self._turns:
            return Exhausted() if self._complete else Idle(UNASSIGNED_WAIT_MS)
        if not self._is_open:
            with blamed(self._where, "open"):
                self._connector.open()
            self._is_open = True
        limit = max(1, budget_bytes // self._row_bytes)
        for _ in range(len(self._turns)):
            split = self._splits[self._turns[0]]
            self._turns.rotate(-1)
            end = self._planned(split, limit)
            if end > split.offset:
                return self._range(split, end, limit)
        if self._by_split and self._ended:  # without records, but event time needs it
            return Reading(self._schema.empty_table(), 0, 0, full=False, ended=self._take_ends())
        if not self._turns:
            return Exhausted() if self._complete else Idle(UNASSIGNED_WAIT_MS)
        return Idle(max(1, self._connector.idle_ms))

    def backlog(self, now_ms: int) -> Collection[str]:  # noqa: ARG002
        """Unknown without planning a range, and each split is planned at its turn."""
        return ()

    def unread(self, now_ms: int) -> Backlog:  # noqa: ARG002
        """What an offset counts only its author knows, and so what is in a split without an end."""
        is_known = all(split.end != UNBOUNDED for split in self._splits.values())
        return Backlog(splits=len(self._turns)) if is_known else Backlog()

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            close_quietly(self._connector, self._where)

    def _planned(self, split: SplitState, limit: int) -> int:
        """End of the next range; the split's offset when it is empty. A split that has ended loses its turn."""
        with blamed(self._where, "plan"):
            end = self._connector.plan(split.split, split.offset, limit)
        if end is None:
            self._move(split, split.offset, split.offset)
            return split.offset
        if isinstance(end, bool) or not isinstance(end, int) or end < split.offset:
            raise DataError(
                f"{self._where}: plan({split.split!r}, {split.offset}, {limit}) returned {end!r}; it must return the"
                f" end of the range, an integer from {split.offset} on, or None when there will be no more data"
            )
        return end if split.end == UNBOUNDED else min(end, split.end)

    def _range(self, split: SplitState, end: int, limit: int) -> Reading:
        table = self._fitted(self._records(split, end), split.split)
        self._move(split, end, split.end)
        if table.num_rows:
            self._row_bytes = max(1, table.nbytes // table.num_rows)
        full = table.num_rows >= limit // 2
        going_on = "" if end == split.end else split.split
        return Reading(
            table,
            table.num_rows,
            table.nbytes,
            full,
            going_on,
            self._take_ends(),
            (SplitRange(split.split, split.offset, end),),
        )

    def _move(self, split: SplitState, offset: int, end: int) -> None:
        self._splits[split.split] = SplitState(split=split.split, offset=offset, end=end)
        if offset == end:
            self._turns.remove(split.split)
            self._ended.append(split.split)

    def _take_ends(self) -> tuple[str, ...]:
        ended = tuple(self._ended)
        self._ended.clear()
        return ended

    def _records(self, split: SplitState, end: int) -> pa.Table:
        with blamed(self._where, "read"):
            found = self._connector.read(split.split, split.offset, end)
        if isinstance(found, pa.Table):
            return found
        if isinstance(found, pd.DataFrame):
            with blamed(self._where, "read"):
                return pa.Table.from_pandas(found, preserve_index=False)
        if hasattr(found, "toArrow"):
            with explained(self._where, on_records=True):
                return to_arrow(found)
        raise DataError(
            f"{self._where}: read() returned a {type(found).__name__}; it must return a pyarrow Table or a DataFrame"
        )

    def _fitted(self, table: pa.Table, split: str) -> pa.Table:
        missing = [name for name in self._schema.names if name not in table.column_names]
        if missing:
            found = ", ".join(table.column_names)
            raise DataError(
                f"{self._where}: split {split!r} has no column '{missing[0]}', which the source's schema has; its"
                f" columns are: {found}"
            )
        try:
            fitted = table.select(self._schema.names).cast(self._schema)
        except (pa.ArrowException, ValueError) as error:
            raise DataError(f"{self._where}: split {split!r} does not fit the source's schema: {error}") from error
        return require_valid(fitted, f"{self._where}: split {split!r}")


def discover(source: PythonSource, known: Collection[str], where: str) -> tuple[tuple[SplitState, ...], bool]:
    """The splits beyond `known`; True when none will ever be added. Raises UserError, ConnectorFailed."""
    old = set(known)
    new = [SplitState(split=name, end=end) for name, end in _ends(source, where).items() if name not in old]
    return tuple(new), not source.continuous


def reopened(source: PythonSource, splits: Sequence[SplitState], where: str) -> tuple[SplitState, ...]:
    """Splits that another run has begun, with their ends of now. In a source that ends, one that it no longer has and
    that had no end is over. Raises UserError, ConnectorFailed.
    """
    gone = {split.split: split.offset for split in splits if split.end == UNBOUNDED and not source.continuous}
    now = gone | _ends(source, where)
    return tuple(ending(split, now.get(split.split, split.end)) for split in splits)


def _ends(source: PythonSource, where: str) -> dict[str, int]:
    """The end of each split. Raises UserError, ConnectorFailed."""
    connector = _unpickled(source, where)
    with blamed(where, "open"):
        connector.open()
    try:
        with blamed(where, "splits"):
            found = dict(connector.splits())
    finally:
        close_quietly(connector, where)
    for name, end in found.items():
        if not isinstance(name, str) or not name or (end is not None and (not isinstance(end, int) or end < 0)):
            raise UserError(
                f"{where}: splits() has {name!r}: {end!r}; it must map names to the offset of their end, or to None"
            )
    return {name: UNBOUNDED if end is None else end for name, end in found.items()}


@contextmanager
def blamed(where: str, method: str) -> Iterator[None]:
    """Turns exceptions of the author's code into ConnectorFailed, or DataError when it was processing records."""
    try:
        with may_be_ended():
            yield
    except ProgramError:
        raise
    except Exception as error:
        kind = DataError if method in _ON_RECORDS and lasts(type(error)) else ConnectorFailed
        raise kind(f"{where}: {method}() raised {with_type(error)}") from error


def _unpickled(source: PythonSource, where: str) -> Any:
    return loaded(source.source, where, "its source", ("splits", "plan", "read"))
