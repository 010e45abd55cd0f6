"""Where records end in bytes: at each newline, or, in CSV with quoted newlines, at newlines outside quotes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lockgate_taskmanager.spark.csv_dialect import CsvDialect, dialect_of

Positions = Any  # numpy.ndarray
_NEWLINE, _RETURN = 10, 13
_BLANK = 32  # the highest character that Spark takes for one
_BOM = b"\xef\xbb\xbf"
_MASK = b"\x01"  # for escaped quotes and escapes
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
    """A newline inside quotes belongs to the value. An unclosed quote makes the rest of a file one record.

    As for Spark, a quote opens a value only where the value begins, and the quote that closes it is followed by the end
    of the value: with any other text behind it the value goes on to the next separator or newline, without quotes.
    """

    def __init__(self, dialect: CsvDialect) -> None:
        """dialect: with a quote."""
        self._skips_blanks = dialect.skips_blanks
        self._quote, self._separator, self._escape, second, self._comment = (
            text.encode()
            for text in (dialect.quote, dialect.separator, dialect.escape, dialect.second_escape, dialect.comment)
        )
        pairs = [second + self._escape] * bool(self._escape and second and second != self._quote)
        pairs += [self._escape + self._quote] * bool(self._escape and self._escape != self._quote)
        self._literal = re.compile(b"|".join(map(re.escape, pairs))) if pairs else None

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
        """Positions of the newlines that end a record."""
        if data.startswith(_BOM):
            return self.ends(data[len(_BOM) :]) + len(_BOM)
        newlines = np.flatnonzero(np.frombuffer(data, np.uint8) == _NEWLINE)
        if self._quote not in data:
            return newlines
        return newlines[np.searchsorted(self._sides(data, newlines), newlines) % 2 == 0]

    def _sides(self, data: bytes, newlines: Positions) -> Positions:
        """Positions of the quotes that open and close values, in turn: usually all of them."""
        if self._literal is not None and self._escape in data:
            data = self._literal.sub(lambda pair: _MASK * len(pair[0]), data)
        values = np.frombuffer(data, np.uint8)
        quotes = np.flatnonzero(_starts(values, self._quote))
        begins = self._begins(values)[quotes]
        is_inner = np.append(_starts(values, self._escape) | (values == _MASK[0]), False)
        goes_on = is_inner[quotes + len(self._quote)]
        comments = self._comments(values, quotes, newlines)
        is_doubling = self._escape == self._quote
        doubled = np.append(False, goes_on[1:-1:2]) & is_doubling
        is_usual = (begins[::2] | doubled).all() and (is_doubling or not goes_on[1::2].any())
        if comments is None and is_usual:
            return quotes
        comments = np.full(len(quotes), -1) if comments is None else comments
        return self._paired(quotes.tolist(), begins.tolist(), goes_on.tolist(), comments.tolist())

    def _paired(self, quotes: list[int], begins: list[bool], goes_on: list[bool], comments: list[int]) -> Positions:
        """The same, one by one. begins: whether a value may begin there; goes_on: whether one would not end there;
        comments: as `_comments` returns them.
        """
        sides: list[int] = []
        within, left_out = False, -1
        for quote, may_open, is_inner, comment in zip(quotes, begins, goes_on, comments, strict=True):
            if quote == left_out:
                left_out = -1
            elif within and is_inner:
                left_out = quote + len(self._quote)  # where a doubled one is
            elif within or (may_open and comment <= (sides[-1] if sides else -1)):
                sides.append(quote)
                within = not within
        return np.array(sides, np.int64)

    def _begins(self, values: Any) -> Any:
        """Whether a value may begin at each byte."""
        found = np.append(True, values == _NEWLINE)
        found[len(self._separator) :] |= _starts(values, self._separator)[: len(values) + 1 - len(self._separator)]
        if self._skips_blanks:
            is_solid = (values > _BLANK) | (values == _NEWLINE) | (values == _MASK[0])
            is_solid |= np.isin(values, list(self._separator))
            last = np.maximum.accumulate(np.where(is_solid, np.arange(len(values)), -1))
            found = found[np.append(-1, last) + 1]
        return found

    def _comments(self, values: Any, quotes: Positions, newlines: Positions) -> Positions | None:
        """Where the line of each quote starts if it looks like a comment, -1 for others; None without such lines."""
        if not self._comment:
            return None
        starts = np.append(0, newlines + 1)[np.searchsorted(newlines, quotes)]
        found = np.where(_starts(values, self._comment)[starts], starts, -1)
        return found if (found >= 0).any() else None


def _starts(values: Any, text: bytes) -> Any:
    """Whether the text starts at each byte; never for an empty one."""
    found = np.full(len(values), bool(text))
    for number, byte in enumerate(text):
        found[: len(values) - number] &= values[number:] == byte
        found[len(values) - number :] = False
    return found


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
    dialect = dialect_of(options)
    return QuotedRecords(dialect) if dialect.multi_line and dialect.quote else None
