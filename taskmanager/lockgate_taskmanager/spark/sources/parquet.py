"""Parquet files by row position. Offsets are rows."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence

import pyarrow as pa
import pyarrow.parquet as pq
from lockgate_common.backlog import Backlog
from lockgate_common.json_input import JsonError, parse_json
from lockgate_common.storage import Location
from lockgate_proto.messages import FileSource, SplitRange, SplitState

from lockgate_taskmanager.spark.leaf import Form, LeafSpec
from lockgate_taskmanager.spark.limits import UNLIMITED, Limits
from lockgate_taskmanager.spark.sources.listing import base_of, files_of, subject, unreadable_parquet, vanished
from lockgate_taskmanager.spark.sources.parquet_columns import partition_values, spark_schema
from lockgate_taskmanager.spark.sources.reading import UNASSIGNED_WAIT_MS, Reading
from lockgate_taskmanager.spark.sources.split_table import SplitTable
from lockgate_taskmanager.spark.valid_text import require_valid
from lockgate_taskmanager.task.program import Exhausted, Idle, UserError

_SPARK_SCHEMA, _COLLATIONS = b"org.apache.spark.sql.parquet.row.metadata", "__COLLATIONS"


class ParquetSource:
    """Reads row ranges. The schema is the declared one, or else that of the first file.

    When a restored source finds that the first file has other columns or types than the files it is reading, the schema
    is that of the first of these: the first file was added since.
    """

    def __init__(
        self, source: FileSource, declared: pa.Schema | None, by_split: bool = False, limits: Limits = UNLIMITED
    ) -> None:
        self._by_split = by_split
        self._source, self._limits = source, limits
        self._schema = declared
        self._base: Location | None = None
        self.table = SplitTable()
        self._ready: deque[str] = deque()
        self._unread_rows = 0
        self._complete = False
        self._file: tuple[str, pq.ParquetFile] | None = None
        self._group: tuple[str, int, pa.Table] | None = None  # file, row group, its rows

    @property
    def complete(self) -> bool:
        return self._complete

    def spec(self) -> LeafSpec | None:
        self._base = base_of(self._source, bool(self.table), self._limits)
        if self._schema is None:
            self._schema = self._derived_schema()
        if self._schema is None:
            if self._ready:
                location = self._base.child(self._ready[0])
                raise vanished(location)
            return None
        return LeafSpec(Form.TABLE, table=self._schema)

    def assign(self, splits: Sequence[SplitState], complete: bool) -> None:
        for split in splits:
            if split.split in self.table:
                continue  # assigned twice
            self.table[split.split] = split
            if split.offset < split.end:
                self._ready.append(split.split)
                self._unread_rows += split.end - split.offset
        self._complete = self._complete or complete

    def splits(self) -> tuple[SplitState, ...]:
        return tuple(self.table.values())

    def is_at_rest(self, split: SplitState) -> bool:
        return split.offset >= split.end

    def read(self, budget_bytes: int, now_ms: int) -> Reading | Idle | Exhausted:  # noqa: ARG002
        tables: list[pa.Table] = []
        ranges: list[SplitRange] = []
        size = 0
        going_on = ""
        ended: tuple[str, ...] = ()
        while self._ready and size < budget_bytes:
            name = self._ready[0]
            offset = self.table[name].offset
            table, used = self._slice(self.table[name], budget_bytes - size)
            tables.append(table)
            ranges.append(SplitRange(name, offset, self.table[name].offset))
            size += used
            if self._by_split:
                is_done = self.table[name].offset >= self.table[name].end
                going_on, ended = ("", (name,)) if is_done else (name, ())
                self._ready.rotate(0 if is_done else -1)
                break
        if tables:
            table = pa.concat_tables(tables)
            full, more = bool(self._ready), not self._complete
            return Reading(
                table, table.num_rows, size, full, going_on, ended, tuple(ranges), may_pause=not full and more
            )
        return Exhausted() if self._complete else Idle(UNASSIGNED_WAIT_MS)

    def backlog(self, now_ms: int) -> Collection[str]:  # noqa: ARG002
        return tuple(self._ready)

    def unread(self, now_ms: int) -> Backlog:  # noqa: ARG002
        return Backlog(records=self._unread_rows, splits=len(self._ready))

    def close(self) -> None:
        if self._file:
            self._file[1].close()
        self._file = self._group = None

    def _derived_schema(self) -> pa.Schema | None:
        """The first file's schema; None while there is no file."""
        names = [file.name for file in files_of(self._source, bool(self.table), self._limits)]
        first = self._schema_of_first(names)
        mine = self._schema_of_first([name for name in names if name in self.table])
        if first is None or mine is None:
            return first
        is_older = all(field.name in mine.names and mine.field(field.name).type == field.type for field in first)
        return first if is_older else mine

    def _schema_of_first(self, names: Sequence[str]) -> pa.Schema | None:
        for name in names:
            try:
                found = self._opened(name)
            except UserError:
                if not self._source.continuous:
                    raise
            else:
                _require_plain_order(name, found.schema_arrow)
                _require_no_partitions(name, found.schema_arrow)
                _require_distinct(name, found.schema_arrow.names)
                return spark_schema(found, name)
        return None  # continuous: the existing files are still being written

    def _slice(self, split: SplitState, budget_bytes: int) -> tuple[pa.Table, int]:
        """Rows of one row group from the offset on; moves the offset."""
        file = self._opened(split.split)
        if file.metadata.num_rows < split.end:
            raise UserError(f"the source file {split.split} has shrunk to {file.metadata.num_rows} rows; restore it")
        index, first = _row_group_at(file, split.offset)
        if self._group is None or self._group[:2] != (split.split, index):
            self._group = (split.split, index, self._fitted(split.split, file.read_row_group(index)))
        rows = self._group[2]
        row_bytes = max(1, rows.nbytes // max(1, rows.num_rows))
        count = max(1, budget_bytes // row_bytes)
        count = min(count, first + rows.num_rows - split.offset, split.end - split.offset)
        moved = SplitState(split=split.split, offset=split.offset + count, end=split.end)
        self.table[split.split] = moved
        self._unread_rows -= count
        if moved.offset >= moved.end:
            self._ready.popleft()
        return rows.slice(split.offset - first, count), count * row_bytes

    def _opened(self, name: str) -> pq.ParquetFile:
        if self._file is None or self._file[0] != name:
            self.close()
            assert self._base is not None, "spec() comes first"
            location = self._base.child(name)
            checked = self._limits.opened(location, f"{subject(self._source)}: its file {name}")
            try:
                self._file = (name, _file(checked))
            except FileNotFoundError as error:
                raise vanished(location) from error
            except (OSError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                raise unreadable_parquet(location, error) from error
        return self._file[1]

    def _fitted(self, name: str, table: pa.Table) -> pa.Table:
        assert self._schema is not None, "spec() comes first"
        in_path = partition_values(name)
        exact: dict[str, list[int]] = {}
        folded: dict[str, list[int]] = {}  # ignoring case, as Spark does
        for place, column_name in enumerate(table.column_names):
            exact.setdefault(column_name, []).append(place)
            folded.setdefault(column_name.casefold(), []).append(place)
        columns = []
        for wanted in self._schema.names:
            found = exact.get(wanted) or folded.get(wanted.casefold(), [])
            if len(found) > 1:
                raise _ambiguous(name, wanted)
            if found:
                columns.append(table.column(found[0]))
            elif wanted in in_path:
                columns.append(pa.chunked_array([pa.repeat(pa.scalar(in_path[wanted], pa.string()), table.num_rows)]))
            else:
                raise UserError(f"the source file {name} has no column '{wanted}', which the schema of the source has")
        try:
            fitted = pa.table(columns, names=self._schema.names).cast(self._schema)
        except (pa.ArrowException, ValueError) as error:
            raise UserError(f"the source file {name} does not fit the schema of the source: {error}") from error
        return require_valid(fitted, f"the source file {name}")


def _file(location: Location) -> pq.ParquetFile:
    # With nanoseconds, the default for INT96, years 1 and 9999 cannot be represented
    return pq.ParquetFile(location.fs.open_input_file(location.path), coerce_int96_timestamp_unit="us")


def _require_plain_order(name: str, schema: pa.Schema) -> None:
    """Raises UserError for text that Spark would compare by a collation, according to the file's metadata."""
    found = _collation((schema.metadata or {}).get(_SPARK_SCHEMA, b"{}"))
    if found is not None:
        raise UserError(
            f"the source file {name}: column '{found[0]}' has the collation {found[1]};"
            " Lockgate compares text byte by byte: if that is correct, declare it as STRING with schema="
        )


def _collation(noted: bytes) -> tuple[str, str] | None:
    """The first column with one, and its name. None, too, for metadata that is not Spark's: Spark ignores it then."""
    try:
        for field in parse_json(noted).get("fields", ()):
            for collation in field.get("metadata", {}).get(_COLLATIONS, {}).values():
                return str(field["name"]), str(collation)
    except (JsonError, AttributeError, KeyError, TypeError):
        pass
    return None


def _require_no_partitions(name: str, schema: pa.Schema) -> None:
    """Raises UserError for columns that exist only in the path: Spark infers their types from all files."""
    found = [partition_value for partition_value in partition_values(name) if partition_value not in schema.names]
    if found:
        raise UserError(
            f"the source file {name} is in a folder that encodes the column '{found[0]}': give the source a"
            f" schema= with all columns to read, which may include '{found[0]}'"
        )


def _require_distinct(name: str, columns: Sequence[str]) -> None:
    """Raises UserError for columns that Spark would take for one another."""
    seen: set[str] = set()
    for column in columns:
        if column.casefold() in seen:
            raise _ambiguous(name, column)
        seen.add(column.casefold())


def _ambiguous(name: str, column: str) -> UserError:
    return UserError(
        f"the source file {name} has more than one column '{column}' (in any case): give the source a schema= without"
        " it, or write the file with other names"
    )


def _row_group_at(file: pq.ParquetFile, row: int) -> tuple[int, int]:
    """The row group that holds a row, and the group's first row."""
    first = 0
    for index in range(file.metadata.num_row_groups):
        count = file.metadata.row_group(index).num_rows
        if row < first + count:
            return index, first
        first += count
    raise UserError(f"there is no row {row} in a file of {first} rows")
