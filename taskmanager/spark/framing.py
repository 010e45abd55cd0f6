"""Where records end in bytes: at each newline, or, in CSV with quoted newlines, at those outside quotes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Positions = Any  # numpy.ndarray
_NEWLINE, _RETURN = 10, 13


class Framing(Protocol):
    """Finds the ends of records. What it is given begins with a record."""

    def end(self, data: bytes) -> int:
        """Bytes of the whole records in the data; 0 when there is none."""
        ...

    def count(self, piece: bytes) -> int:
        """Records in a piece of whole ones."""
        ...

    def first_end(self, piece: bytes) -> int:
        """Bytes of the first record with its end; all of them when it has none."""
        ...

    def plain(self, piece: bytes) -> bytes:
        """The piece as Spark's reader gets it."""
        ...


class Lines:
    """A record is a line."""

    def end(self, data: bytes) -> int:
        """See Framing."""
        return data.rfind(b"\n") + 1

    def count(self, piece: bytes) -> int:
        """See Framing."""
        return piece.count(b"\n")

    def first_end(self, piece: bytes) -> int:
        """See Framing."""
        return piece.find(b"\n") + 1 or len(piece)

    def plain(self, piece: bytes) -> bytes:
        """See Framing. Spark knows both ends of lines."""
        return piece


class QuotedRecords:
    """A newline inside quotes belongs to the value. A quote that never ends makes the rest of a file one record."""

    def __init__(self, quote: str, escape: str) -> None:
        """Characters of the CSV dialect; they may be the same."""
        self._quote = ord(quote)
        self._escaped = re.compile(re.escape(escape.encode()) + b".", re.DOTALL) if escape not in ("", quote) else None

    def end(self, data: bytes) -> int:
        """See Framing."""
        ends = self._ends(data)
        return int(ends[-1]) + 1 if len(ends) else 0

    def count(self, piece: bytes) -> int:
        """See Framing."""
        return len(self._ends(piece))

    def first_end(self, piece: bytes) -> int:
        """See Framing."""
        ends = self._ends(piece)
        return int(ends[0]) + 1 if len(ends) else len(piece)

    def plain(self, piece: bytes) -> bytes:
        """See Framing. Spark is told one end of records, so the others become it; those in values stay."""
        if b"\r\n" not in piece:
            return piece
        ends = self._ends(piece)
        values = np.frombuffer(piece, np.uint8)
        ends = ends[ends > 0]
        return np.delete(values, ends[values[ends - 1] == _RETURN] - 1).tobytes()

    def split(self, text: bytes) -> pa.Array:
        """The records as strings, without their ends."""
        bounds = np.concatenate(([0], self._ends(text) + 1)).astype(np.int64)
        buffers = [None, pa.py_buffer(bounds), pa.py_buffer(text)]
        records = pa.Array.from_buffers(pa.large_string(), len(bounds) - 1, buffers)
        return pc.replace_substring_regex(records, r"\n\z", "")

    def _ends(self, data: bytes) -> Positions:
        """Positions of the newlines that end a record: an even number of quotes comes before them."""
        if self._escaped is not None:
            data = self._escaped.sub(b"  ", data)
        values = np.frombuffer(data, np.uint8)
        newlines = np.flatnonzero(values == _NEWLINE)
        quotes = np.flatnonzero(values == self._quote)
        return newlines[np.searchsorted(quotes, newlines) % 2 == 0]


def csv_options(options: Mapping[str, str]) -> dict[str, str]:
    """Spark's options with what its reader needs besides: a NUL is no escape, and no value says how lines end."""
    known = {name.lower(): value for name, value in options.items()}
    added = {"columnPruning": "false"}  # or the fields of a line are not counted where few columns are used
    if known.get("escape") and known["escape"] == known.get("quote", '"'):
        added["charToEscapeQuoteEscaping"] = known["escape"]
    if quoted_records(options):
        added["lineSep"] = "\n"
    return {**{name: value for name, value in added.items() if name.lower() not in known}, **options}


def quoted_records(options: Mapping[str, str]) -> QuotedRecords | None:
    """The framing of CSV that is read with these options of Spark's reader; None where a record is a line."""
    known = {name.lower(): value for name, value in options.items()}
    quote = known.get("quote", '"')
    if known.get("multiline", "false").lower() != "true" or not quote:
        return None
    return QuotedRecords(quote, known.get("escape", "\\"))
