"""The leaf of a plan: how a micro-batch's records get into Spark.

A SlotLeaf is a file whose content is replaced for every micro-batch, so that one DataFrame, planned once, reads the
next batch each time it is executed. Spark notes a file's length when it plans and never reads beyond it; so the file is
huge (and sparse) while the plan is made. A TableLeaf passes the batch in a new DataFrame each time; it works when the
executors do not share this machine's files.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from lockgate_taskmanager.spark.csv_dialect import dialect_of
from lockgate_taskmanager.spark.framing import quoted_records
from lockgate_taskmanager.spark.malformed import Malformed
from lockgate_taskmanager.spark.passable import require_passable

DataFrame = Any  # pyspark.sql.DataFrame, classic or Connect
Session = Any
Content = Sequence[bytes] | Any  # lines, each piece ending in a newline, or a pyarrow.Table
PLANNED_LENGTH = 1 << 40  # bytes; far beyond any batch
UNREADABLE = "lockgate-planned"  # the error of jobs that read a TableLeaf while its plan is being made
_ROW_GROUP_BYTES = 16 << 20  # Spark reads up to 4,096 rows of a row group at once, however large they are
_RANGES = "partition INT, first BIGINT, last BIGINT"


class Form(Enum):
    """The form of a leaf's content: lines of bytes that Spark parses, or an Arrow table."""

    TEXT = "text"
    CSV = "csv"
    JSON = "json"
    RANGES = "ranges"  # lines `partition,first,last`: the rows (partition, first..last)
    TABLE = "table"


@dataclass(frozen=True, slots=True)
class LeafSpec:
    """The frame of a leaf.

    ddl: schema of CSV and JSON; table: schema of TABLE; options: of Spark's reader.
    """

    form: Form
    ddl: str = ""
    table: pa.Schema | None = None
    options: tuple[tuple[str, str], ...] = field(default=())


class Leaf(Protocol):
    """Feeds batches to a DataFrame. Used from one thread at a time."""

    @property
    def repeatable(self) -> bool:
        """True when a frame made once reads whatever content is loaded later."""
        ...

    @property
    def result_path(self) -> str:
        """A path for the results of a repeatable frame's jobs, in memory where the content is."""
        ...

    def prepare(self) -> None:
        """Call before `frame` when the frame is to be used for later loads. Until the first load no job can read it."""
        ...

    def nothing(self) -> Content:
        """Content without a record."""
        ...

    def load(self, content: Content) -> None:
        """Replaces the content. Raises OSError."""
        ...

    def frame(self) -> DataFrame:
        """The content as a DataFrame of one partition."""
        ...

    def malformed(self, frame: DataFrame) -> int:
        """Lines that could not be parsed when `frame`, derived from `frame()`, was executed last."""
        ...

    def close(self) -> None:
        """Drops the content."""
        ...


class SlotLeaf:
    """Rewrites one file for every batch. `path` is created and removed by the leaf."""

    def __init__(self, session: Session, spec: LeafSpec, path: str) -> None:
        self._session = session
        self._spec = spec
        self._malformed = _malformed(spec)
        self._path, self._hidden_path = path, f"{path}.planned"
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        self._open = True
        self._stretched = self._hidden = False

    @property
    def repeatable(self) -> bool:
        return True

    @property
    def result_path(self) -> str:
        return f"{self._path}.result"

    def prepare(self) -> None:
        self._show()
        os.ftruncate(self._file, 0)
        os.ftruncate(self._file, PLANNED_LENGTH)
        self._stretched = True

    def nothing(self) -> Content:
        return _nothing(self._spec)

    def load(self, content: Content) -> None:
        self._show()
        pieces = [_parquet(content)] if isinstance(content, pa.Table) else content
        try:
            length = self._written(pieces)
        except OSError as error:
            folder = os.path.dirname(self._path)
            raise OSError(
                error.errno,
                f"{error.strerror}: a micro-batch does not fit in {folder}; give the file system more room (in a"
                " container: --shm-size) or lower taskmanager.max_batch_bytes",
            ) from error
        os.ftruncate(self._file, length)  # reused pages are not allocated again

    def _written(self, pieces: Sequence[bytes]) -> int:
        """Their length in bytes, now at the start of the file."""
        position = 0
        for piece in pieces:
            view = memoryview(piece)
            while view.nbytes:
                written = os.pwrite(self._file, view, position)
                view = view[written:]
                position += written
        return position

    def frame(self) -> DataFrame:
        frame = self._listed()
        if self._stretched:
            # Spark has noted the length. A job that an author's function runs while it makes the plan must not read the
            # file: neither as one line of a tebibyte of zeros, which would take the JVM's memory and the JVM with it,
            # nor as an empty file, which would be the answer for all batches.
            os.ftruncate(self._file, 0)
            os.rename(self._path, self._hidden_path)
            self._stretched, self._hidden = False, True
        return frame

    def _show(self) -> None:
        if self._hidden:
            os.rename(self._hidden_path, self._path)
            self._hidden = False

    def _listed(self) -> DataFrame:
        spec, uri = self._spec, f"file://{self._path}"
        reader = self._session.read.options(**dict(spec.options))
        if spec.form is Form.TEXT:
            return reader.text(uri).coalesce(1)
        if self._malformed is not None:
            names = self._session.createDataFrame([], spec.ddl).columns
            return self._malformed.read(spec.ddl, names, self._parsed).coalesce(1)
        if spec.form is Form.RANGES:
            return _exploded(reader.schema(_RANGES).csv(uri).coalesce(1))
        return reader.schema(from_arrow_schema(spec.table)).parquet(uri).coalesce(1)

    def _parsed(self, ddl: str, options: dict[str, str]) -> DataFrame:
        reader = self._session.read.options(**{**dict(self._spec.options), **options}).schema(ddl)
        parse = reader.csv if self._spec.form is Form.CSV else reader.json
        return parse(f"file://{self._path}")

    def malformed(self, frame: DataFrame) -> int:
        return self._malformed.count(frame) if self._malformed is not None else 0

    def close(self) -> None:
        if self._open:
            self._open = False
            os.close(self._file)
            self._show()
            os.unlink(self._path)


class TableLeaf:
    """Passes every batch by createDataFrame; Spark splits text into lines."""

    def __init__(self, session: Session, spec: LeafSpec) -> None:
        self._session = session
        self._spec = spec
        self._malformed = _malformed(spec)
        self._content: Content = ()
        self._planned = False

    @property
    def repeatable(self) -> bool:
        return False

    @property
    def result_path(self) -> str:
        raise AssertionError("its frame is made for every batch")

    def prepare(self) -> None:
        self.load(self.nothing())
        self._planned = True

    def nothing(self) -> Content:
        return _nothing(self._spec)

    def load(self, content: Content) -> None:
        self._content = content
        self._planned = False

    def frame(self) -> DataFrame:
        spec = self._spec
        if isinstance(self._content, pa.Table):
            return self._guarded(frame_of(self._session, self._content).coalesce(1))
        lines = self._guarded(self._lines())
        if spec.form is Form.TEXT:
            return lines
        if spec.form is Form.RANGES:
            return _exploded(lines.select(sf.from_csv("value", sf.lit(_RANGES)).alias("r")).select("r.*"))
        parse = sf.from_csv if spec.form is Form.CSV else sf.from_json
        filled = lines.where(sf.rlike("value", sf.lit("[^\\x00-\\x20]")))
        if spec.form is Form.CSV and (comment := dialect_of(dict(spec.options)).comment):
            filled = filled.where(~sf.startswith("value", sf.lit(comment)))  # from_csv would make it a row of NULL

        def parsed(ddl: str, options: dict[str, str]) -> DataFrame:
            record = parse("value", sf.lit(ddl), {**dict(spec.options), **options})
            return filled.select(record.alias("r")).select("r.*")

        assert self._malformed is not None
        names = self._session.createDataFrame([], spec.ddl).columns
        return self._malformed.read(spec.ddl, names, parsed)

    def _guarded(self, frame: DataFrame) -> DataFrame:
        """The frame; while the plan is being made one that fails when it is read, see SlotLeaf."""
        if not self._planned:
            return frame
        row = self._session.range(1).where(f"CAST(raise_error('{UNREADABLE}') AS BOOLEAN)")
        if self._spec.form is not Form.TABLE:
            return row.selectExpr("CAST(id AS STRING) AS value").coalesce(1)  # no spaces, which are dropped
        return row.select(
            *[sf.lit(None).cast(field.dataType).alias(field.name) for field in frame.schema.fields]
        ).coalesce(1)

    def malformed(self, frame: DataFrame) -> int:
        return self._malformed.count(frame) if self._malformed is not None else 0

    def _lines(self) -> DataFrame:
        """The text of each record, as one column `value`."""
        text = b"".join(self._content)
        quoted = quoted_records(dict(self._spec.options)) if self._spec.form is Form.CSV else None
        if quoted:
            records = pa.table({"value": quoted.split(text).cast(pa.string())})
            return self._session.createDataFrame(records, schema="value STRING").coalesce(1)
        last = b"\r\n" if text.endswith(b"\r\n") else b"\n"  # it ends the last record, and begins no other
        whole = pa.table({"value": pa.array([text.removesuffix(last).decode()] if text else [], pa.string())})
        lines = self._session.createDataFrame(whole, schema="value STRING").coalesce(1)  # it may be empty
        return lines.selectExpr("explode(split(value, '\\r\\n|\\n|\\r')) AS value")

    def close(self) -> None:
        self._content = ()


def passable_schema(frame: DataFrame, where: str) -> pa.Schema:
    """The schema of `frame.toArrow()`, every column nullable. Raises UserError for columns that cannot leave Spark.

    where: the operator, in front of messages.
    """
    require_passable(frame.schema, where)
    schema = to_arrow_schema(frame.schema, error_on_duplicated_field_names_in_struct=True, timezone="UTC")
    # Every column may be NULL: the schemas of other inputs of a union are not known here
    return pa.schema([pa.field(field_.name, field_.type) for field_ in schema])


def frame_of(session: Session, table: pa.Table) -> DataFrame:
    """A DataFrame of the table's rows, with the types that they had when they left a Spark job.

    The schema is passed explicitly: otherwise Spark takes TIMESTAMP_NTZ for TIMESTAMP, which is another instant.
    """
    whole = _whole(table.combine_chunks())  # many small chunks make createDataFrame very slow
    return session.createDataFrame(whole, schema=from_arrow_schema(table.schema))


def _whole(table: pa.Table) -> pa.Table:
    """Copies nested rows of a slice into arrays of their own: PySpark fails on slices with NULL in them."""
    nested = [position for position, field_ in enumerate(table.schema) if pa.types.is_nested(field_.type)]
    every = pa.array(range(table.num_rows), pa.int64())
    for position in nested:
        table = table.set_column(position, table.schema.field(position), table.column(position).take(every))
    return table


def _malformed(spec: LeafSpec) -> Malformed | None:
    return Malformed(dict(spec.options)) if spec.form in (Form.CSV, Form.JSON) else None


def _nothing(spec: LeafSpec) -> Content:
    return spec.table.empty_table() if spec.table is not None else ()


def _exploded(ranges: DataFrame) -> DataFrame:
    return ranges.selectExpr("partition", "explode(sequence(first, last)) AS sequence")


def _parquet(table: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    pq.write_table(
        table,
        sink,
        row_group_size=max(1, table.num_rows * _ROW_GROUP_BYTES // max(1, table.nbytes)),
        compression="none",
        use_dictionary=False,
        write_statistics=False,
        store_schema=False,
    )
    return sink.getvalue()
