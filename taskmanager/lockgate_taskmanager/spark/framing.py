"""Where records end in bytes: at each newline, or, in CSV with quoted newlines, at newlines outside quotes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Positions = Any  # numpy.ndarray
_NEWLINE, _RETURN = 10, 13
_BLOCK_BYTES = 1 << 20  # what is in a processor's cache


class Framing(Protocol):
    """Finds the ends of records. Its input starts at the beginning of a record."""

    def end(self, data: bytes) -> int:
        """Length of the complete records in the data; 0 when there is none."""
        ...

    def count(self, piece: bytes) -> int:
        """Records in a piece that consists of complete records."""
        ...

    def first_end(self, piece: bytes) -> int:
        """Length of the first record including its end; of the whole piece when it has none."""
        ...

    def plain(self, piece: bytes) -> bytes:
        """The piece in the form that Spark's reader expects."""
        ...


class Lines:
    """A record is a line."""

    def end(self, data: bytes) -> int:
        return data.rfind(b"\n") + 1

    def count(self, piece: bytes) -> int:
        """Takes a third of the time of `piece.count`, and other threads run meanwhile."""
        values = np.frombuffer(piece, np.uint8)
        blocks = (values[start : start + _BLOCK_BYTES] for start in range(0, len(values), _BLOCK_BYTES))
        return sum(int(np.count_nonzero(block == _NEWLINE)) for block in blocks)

    def first_end(self, piece: bytes) -> int:
        return piece.find(b"\n") + 1 or len(piece)

    def plain(self, piece: bytes) -> bytes:
        """Spark recognizes both line endings."""
        return piece


class QuotedRecords:
    """A newline inside quotes belongs to the value. An unclosed quote makes the rest of a file one record."""

    def __init__(self, quote: str, escape: str) -> None:
        """The quote and escape characters of the CSV dialect; they may be the same."""
        self._quote = ord(quote)
        self._escaped = re.compile(re.escape(escape.encode()) + b".", re.DOTALL) if escape not in ("", quote) else None

    def end(self, data: bytes) -> int:
        ends = self.ends(data)
        return int(ends[-1]) + 1 if len(ends) else 0

    def count(self, piece: bytes) -> int:
        return len(self.ends(piece))

    def first_end(self, piece: bytes) -> int:
        ends = self.ends(piece)
        return int(ends[0]) + 1 if len(ends) else len(piece)

    def plain(self, piece: bytes) -> bytes:
        """Spark is given one record separator, so all record ends become that; newlines in values are kept."""
        if b"\r\n" not in piece:
            return piece
        ends = self.ends(piece)
        values = np.frombuffer(piece, np.uint8)
        ends = ends[ends > 0]
        return np.delete(values, ends[values[ends - 1] == _RETURN] - 1).tobytes()

    def split(self, text: bytes) -> pa.Array:
        """The records as strings, without their line ends."""
        bounds = np.concatenate(([0], self.ends(text) + 1)).astype(np.int64)
        buffers = [None, pa.py_buffer(bounds), pa.py_buffer(text)]
        records = pa.Array.from_buffers(pa.large_string(), len(bounds) - 1, buffers)
        return pc.replace_substring_regex(records, r"\n\z", "")

    def ends(self, data: bytes) -> Positions:
        """Positions of the newlines that end a record: those preceded by an even number of quotes."""
        if self._escaped is not None:
            data = self._escaped.sub(b"  ", data)
        values = np.frombuffer(data, np.uint8)
        newlines = np.flatnonzero(values == _NEWLINE)
        quotes = np.flatnonzero(values == self._quote)
        return newlines[np.searchsorted(quotes, newlines) % 2 == 0]


def csv_options(options: Mapping[str, str]) -> dict[str, str]:
    """Spark's options with the ones that its reader also needs: NUL is no escape, and no option sets the line
    ending.
    """
    known = {name.lower(): value for name, value in options.items()}
    added = {"columnPruning": "false"}  # otherwise the fields of a line are not counted when few columns are used
    if known.get("escape") and known["escape"] == known.get("quote", '"'):
        added["charToEscapeQuoteEscaping"] = known["escape"]
    if quoted_records(options):
        added["lineSep"] = "\n"
    return {**{name: value for name, value in added.items() if name.lower() not in known}, **options}


def quoted_records(options: Mapping[str, str]) -> QuotedRecords | None:
    """The framing for CSV with these options of Spark's reader; None when every line is a record."""
    known = {name.lower(): value for name, value in options.items()}
    quote = known.get("quote", '"')
    if known.get("multiline", "false").lower() != "true" or not quote:
        return None
    return QuotedRecords(quote, known.get("escape", "\\"))
