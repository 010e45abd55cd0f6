"""Rows of one side of an interval join that wait for partners, wherever they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
from lockgate_proto.messages import JoinSide

from taskmanager.state.event_clock import Restored
from taskmanager.state.layout import EVENT_TIME, HASH
from taskmanager.task.watermarks import MIN_WATERMARK

Array = Any  # numpy.ndarray


class WaitingRows(Protocol):
    """Rows of one side, found by the hash of their keys and by time. Used from the subtask's own thread.

    Keys are told apart by their hash alone: who asks compares the keys of what is found.
    """

    def add(self, rows: pa.RecordBatch, hashes: Array, times: Array) -> None:
        """Rows with the hashes of their keys and their times in milliseconds. Costs by them, not by what waits."""
        ...

    def near(self, hashes: Array, first: Array, last: Array) -> Iterator[tuple[Array, pa.RecordBatch]]:
        """Who asks (a position in the arrays) and a row with this hash and a time in [first, last]; in portions.

        last - first is the span less 1 ms. Rows that are forgotten may be among them. Costs by what is asked for and
        by candidates.
        """
        ...

    def forget(self, until: int) -> None:
        """Rows with a time at or before `until` are not asked for any more."""
        ...

    def purge(self, until: int) -> None:
        """Right after a restore: rows with a time at or before `until` are gone, whoever asks."""
        ...


@dataclass(frozen=True, slots=True)
class RestoredSide:
    """What came back. schema: of the rows as they come; told: what each subtask says that had stored a part of it.

    purged_until: rows at or before this time are not to be found any more, but may be among `rows`.
    """

    side: JoinSide
    schema: pa.Schema
    rows: WaitingRows
    told: Sequence[Restored]
    purged_until: int = MIN_WATERMARK


def columns_of(schema: pa.Schema) -> pa.Schema:
    """The rows' own columns of those that they come with."""
    return pa.schema([field for field in schema if field.name not in (HASH, EVENT_TIME)])
