"""Text, CSV and JSON lines: byte ranges of files that end at the ends of records, from many files at once.

Offsets are bytes. A batch is a list of pieces that each end in a newline; Spark splits them into records.
"""

from __future__ import annotations

import csv
import logging
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import pyarrow.fs as pafs
from lockgate_common.backlog import Backlog
from lockgate_common.clock import unix_ns
from lockgate_common.storage import Location
from lockgate_proto.messages import FileFormat, FileSource, SplitRange, SplitState

from lockgate_taskmanager.spark.csv_dialect import dialect_of
from lockgate_taskmanager.spark.framing import Framing, Lines, csv_options, quoted_records
from lockgate_taskmanager.spark.leaf import Form, LeafSpec
from lockgate_taskmanager.spark.limits import UNLIMITED, Limits
from lockgate_taskmanager.spark.malformed import Malformed
from lockgate_taskmanager.spark.sources.growth import Growth
from lockgate_taskmanager.spark.sources.listing import base_of, shrunk, subject, vanished
from lockgate_taskmanager.spark.sources.reading import UNASSIGNED_WAIT_MS, Reading
from lockgate_taskmanager.spark.sources.split_table import SplitTable
from lockgate_taskmanager.spark.valid_text import made_valid
from lockgate_taskmanager.task.program import Exhausted, Idle, UserError

LOG = logging.getLogger(__name__)
_LONGEST_RECORD_BYTES = 64 << 20  # with quoted newlines, where an extra quote joins everything after it into one record
_LONGEST_LINE_BYTES = 256 << 20  # a file without newlines, such as a binary one, would fill the memory
_SHOWN = 500  # characters of a header
_BOM = b"\xef\xbb\xbf"
_FORMS = {FileFormat.TEXT: Form.TEXT, FileFormat.CSV: Form.CSV, FileFormat.JSON_LINES: Form.JSON}
_LINE_BY_LINE = "files are read line by line"
_PATH = "the source has a path of its own"
_UNSUPPORTED = {
    "linesep": "lines must end in \\n or \\r\\n",
    "wholetext": _LINE_BY_LINE,
    "pathglobfilter": "use include",
    "recursivefilelookup": "folders are always read whole",
    "modifiedbefore": "every file is read",
    "modifiedafter": "every file is read",
    "inferschema": "give a schema",
    "compression": "compressed files cannot be read from an offset",
    "path": _PATH,
    "paths": _PATH,
    "__paths__": _PATH,
}


class LineSource:
    """Reads byte ranges of files of lines."""

    def __init__(
        self, source: FileSource, columns: Sequence[str], by_split: bool = False, limits: Limits = UNLIMITED
    ) -> None:
        """columns: of the declared schema, which a CSV header is checked against. Raises UserError."""
        self._source, self._limits = source, limits
        self._by_split = by_split
        self._options = _checked_options(source)
        dialect = dialect_of(self._options, f"the source {source.path}: ") if source.format == FileFormat.CSV else None
        kept = Malformed(self._options, f"the source {source.path}: ").column  # which is in no file
        self._columns = tuple(name for name in columns if name.lower() != kept.lower())
        self._options.pop("header", None)
        self._dialect, self._header = dialect, dialect is not None and dialect.header
        quoted = quoted_records(self._options) if dialect is not None else None
        self._framing: Framing = quoted or Lines()
        self._longest = _LONGEST_RECORD_BYTES if quoted else _LONGEST_LINE_BYTES
        self._base: Location | None = None
        self.table = SplitTable()
        self._sizes: dict[str, int] = {}  # readable bytes of each split
        self._ready: deque[str] = deque()
        self._unread_bytes = 0  # of the files whose sizes are known
        self._unseen = 0  # files whose sizes are not known yet
        self._complete = False
        self._refresh_at_ms: int | None = None
        self._growth = Growth(source.poll_interval_ms or 1000)
        self._open: tuple[str, Any, int] | None = None  # name, file, size

    @property
    def complete(self) -> bool:
        return self._complete

    def spec(self) -> LeafSpec | None:
        self._base = base_of(self._source, bool(self.table), self._limits)
        form = _FORMS[self._source.format]
        options = csv_options(self._options) if form is Form.CSV else self._options
        return LeafSpec(form, ddl=self._source.schema, options=tuple(sorted(options.items())))

    def assign(self, splits: Sequence[SplitState], complete: bool) -> None:
        for split in splits:
            if split.split in self.table:
                continue  # assigned twice
            self.table[split.split] = split
            if split.end >= 0:
                self._sizes[split.split] = split.end
                if split.offset < split.end:
                    self._ready.append(split.split)
                    self._unread_bytes += split.end - split.offset
            else:
                self._growth.add(split.split)
                self._unseen += 1
        self._refresh_at_ms = None  # unbounded ones are checked in the next read
        self._complete = self._complete or complete

    def splits(self) -> tuple[SplitState, ...]:
        return tuple(self.table.values())

    def is_at_rest(self, split: SplitState) -> bool:
        """A split that may grow has to have been checked."""
        if split.end >= 0:
            return split.offset >= split.end
        return split.offset == self._sizes.get(split.split)

    def read(self, budget_bytes: int, now_ms: int) -> Reading | Idle | Exhausted:
        self._refresh(now_ms)
        pieces: list[bytes] = []
        ranges: list[SplitRange] = []
        size = 0
        going_on = ""
        ended: list[str] = []
        while self._ready and (size < budget_bytes or not pieces):  # many files may contain only a header
            split = self.table[self._ready[0]]
            limit = budget_bytes - size if pieces else budget_bytes
            if self._by_split and ended and (split.end < 0 or split.end - split.offset > limit):
                break
            piece, used = self._read_piece(split, limit)
            if piece:
                pieces.append(piece)
                ranges.append(SplitRange(split.split, split.offset, split.offset + used))
            size += used
            if split.end < 0 or self.table[split.split].offset < split.end:
                if self._by_split and not piece:
                    continue  # a line that is still being written, or only a header: other splits need not wait for it
                going_on = split.split
                if self._by_split:
                    self._let_others_read(going_on)
                    break
            else:
                ended.append(split.split)
        if pieces or (self._by_split and ended):
            rows = sum(map(self._framing.count, pieces))
            content = [self._framing.plain(piece) for piece in made_valid(pieces)]
            full, more = bool(self._ready), not self._is_read_whole
            return Reading(
                content, rows, size, full, going_on, tuple(ended), tuple(ranges), may_pause=not full and more
            )
        if self._is_read_whole:
            return Exhausted()
        return Idle(UNASSIGNED_WAIT_MS if self._refresh_at_ms is None else max(1, self._refresh_at_ms - now_ms))

    @property
    def _is_read_whole(self) -> bool:
        return not self._ready and self._complete and all(split.end >= 0 for split in self.table.values())

    def backlog(self, now_ms: int) -> Collection[str]:  # noqa: ARG002
        return tuple(self._ready)

    def unread(self, now_ms: int) -> Backlog:  # noqa: ARG002
        return Backlog(bytes=None if self._unseen else self._unread_bytes, splits=len(self._ready) + self._unseen)

    def close(self) -> None:
        if self._open:
            self._open[1].close()
            self._open = None

    def _let_others_read(self, name: str) -> None:
        """Moves it to the end of the queue."""
        if len(self._ready) > 1 and self._ready[0] == name:
            self._ready.rotate(-1)

    def _read_piece(self, split: SplitState, limit: int) -> tuple[bytes, int]:
        """Reads from the first ready split and moves its offset; returns the piece, and how far the offset moved."""
        name, start, size = split.split, split.offset, self._sizes[split.split]
        limit = max(limit, 1)
        while True:
            data = self._bytes(name, start, min(limit, size - start))
            last = start + len(data) >= size
            if last and split.end >= 0:
                piece = data if data.endswith(b"\n") else data + b"\n"
                if (closed := self._framing.end(piece)) < len(piece):
                    raise self._endless(name, start + closed, len(data) - closed)
                return self._advanced(split, piece, len(data), done=True)
            cut = self._framing.end(data)
            if start == 0 and self._header and self._front(data[:cut]) == cut:
                cut = 0  # the header has not been read yet
            if cut or last:
                return self._advanced(split, data[:cut], cut, done=last)
            if limit > self._longest:
                raise self._endless(name, start, limit)
            limit *= 2  # a record longer than the budget

    def _endless(self, name: str, start: int, length: int) -> UserError:
        """The error for a record without an end."""
        why = (
            "the file is not text, or has no newlines: exclude it with include"
            if isinstance(self._framing, Lines)
            else "a quote in it is not closed, or the options quote and escape do not match the file"
        )
        return UserError(
            f"the source file {name} has a record at byte {start} that does not end within {length} bytes: {why}"
        )

    def _advanced(self, split: SplitState, piece: bytes, used: int, done: bool) -> tuple[bytes, int]:
        offset = split.offset + used
        seen = split.seen if split.seen > offset else 0
        self.table[split.split] = SplitState(split=split.split, offset=offset, end=split.end, seen=seen)
        self._unread_bytes -= used
        if done:
            self._ready.popleft()
            self.close()
        if split.offset == 0 and piece:
            piece = piece.removeprefix(_BOM)
            if self._header and (piece := piece[self._front(piece) :]):
                end = self._framing.first_end(piece)
                self._check_header(split.split, piece[:end])
                piece = piece[end:]
        return piece, used

    def _front(self, piece: bytes) -> int:
        """Length of the blank lines and comments in front of a header, which Spark skips as well."""
        comment = self._dialect.comment.encode() if self._dialect is not None else b""
        at = len(_BOM) if piece.startswith(_BOM) else 0
        while at < len(piece):
            end = piece.find(b"\n", at) + 1 or len(piece)
            line = piece[at:end]
            if line.strip() and not (comment and line.startswith(comment)):
                return at
            at = end
        return at

    def _bytes(self, name: str, start: int, count: int) -> bytes:
        assert self._base is not None, "spec() comes first"
        location = self._base.child(name)
        try:
            if self._open is None or self._open[0] != name:
                self.close()
                checked = self._limits.opened(location, f"{subject(self._source)}: its file {name}")
                file = checked.fs.open_input_file(checked.path)
                self._open = (name, file, file.size())
            _, file, size = self._open
            if size < start + count:
                raise UserError(
                    f"the source file {location.uri} has shrunk to {size} bytes; it was {self._sizes[name]} bytes,"
                    f" read up to {start}: restore it, or start a new job"
                )
            data: bytes = file.read_at(count, start)
        except FileNotFoundError as error:
            raise vanished(location) from error
        except PermissionError as error:
            raise UserError(
                f"the source file {location.uri} cannot be read: give the task managers' user read permission"
            ) from error
        if len(data) < count:
            raise UserError(f"the source file {location.uri} has shrunk while it was read; restore it")
        return data

    def _refresh(self, now_ms: int) -> None:
        """Continuous mode: checks which of the files that are due have grown, once per poll interval."""
        if self._ready or self._base is None or (self._refresh_at_ms is not None and now_ms < self._refresh_at_ms):
            return
        growing = [self.table[name] for name in self._growth.due(now_ms)]
        if not growing and self._refresh_at_ms is None:
            return
        pause_ms = (self._source.poll_interval_ms or 1000) if not self._growth.is_due(now_ms) else 1
        self._refresh_at_ms = now_ms + pause_ms
        locations = [self._base.child(split.split) for split in growing]
        infos = self._base.fs.get_file_info([location.path for location in locations])
        for split, location, info in zip(growing, locations, infos, strict=True):
            if info.type == pafs.FileType.NotFound:
                if split.offset < split.seen:
                    raise vanished(location)
                if not split.offset and split.split not in self._sizes:
                    LOG.warning("the source file %s was removed before any content was seen", location.uri)
                self._set_size(split, split.offset)
                self._growth.looked(split.split, False, now_ms)
                continue  # empty, or read completely and then removed
            if info.size < max(split.offset, split.seen):
                raise shrunk(location, info.size, split)
            grown = info.size > max(self._sizes.get(split.split, 0), split.offset)
            self._set_size(split, info.size)
            self._growth.looked(split.split, grown, now_ms, _quiet_ms(info) if split.offset else 0)
            if grown:
                self._ready.append(split.split)

    def _set_size(self, split: SplitState, size: int) -> None:
        """The size of a file that may grow."""
        known = self._sizes.get(split.split)
        self._unseen -= known is None
        self._unread_bytes += size - (split.offset if known is None else known)
        self._sizes[split.split] = size
        seen = size if size > split.offset else 0
        if seen != split.seen:
            self.table[split.split] = replace(split, seen=seen)  # what is lost while the job is down is noticed

    def _check_header(self, name: str, line: bytes) -> None:
        assert self._dialect is not None, "only CSV has headers"
        separator, quote = self._dialect.separator, self._dialect.quote or None
        text = line.decode("utf-8", "replace").rstrip("\r\n")
        rows = csv.reader(text.splitlines(True), delimiter=separator[0], quotechar=quote, skipinitialspace=True)
        try:
            found = next(rows, []) if len(separator) == 1 else text.split(separator)
        except csv.Error:
            found = [text]  # a field that is longer than any name
        names = [text.strip().lower() for text in found]
        if names != [column.lower() for column in self._columns]:
            raise UserError(
                f"the header of {name} is {', '.join(found)[:_SHOWN]}, but the schema says {', '.join(self._columns)};"
                " they must name the same columns in the same order"
            )


def _quiet_ms(info: pafs.FileInfo) -> int:
    """How long ago a file was last written; only a file that was read before can count as complete."""
    return 0 if info.mtime_ns is None else (unix_ns() - info.mtime_ns) // 1_000_000


def _checked_options(source: FileSource) -> dict[str, str]:
    unsupported = _UNSUPPORTED if source.format == FileFormat.CSV else {**_UNSUPPORTED, "multiline": _LINE_BY_LINE}
    for name, value in source.options.items():
        reason = unsupported.get(name.lower())
        if reason and value.lower() not in ("false", "\n"):
            raise UserError(f"the option {name} of the source {source.path} is not supported: {reason}")
        if name.lower() in ("encoding", "charset") and value.upper().replace("-", "") != "UTF8":
            raise UserError(f"the source {source.path} has encoding {value}; only UTF-8 can be read")
    kept = {name: value for name, value in source.options.items() if name.lower() not in unsupported}
    return {("header" if name.lower() == "header" else name): value for name, value in kept.items()}
