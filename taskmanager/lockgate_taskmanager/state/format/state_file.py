"""The format of stored keyed state: an Arrow IPC file with one record batch for each key group that has keys.

Where that would be too large there are several, one after the other (format "4", of an increment "5"), and the key
group of a batch is that of its first row; `lockgate.key_groups` is not there then.

Schema: the key columns, then `__hash` (int64, see `layout`), then one column per part (`<output>#count`, `#sum`,
`#min`, `#max`).
An increment has an additional column `__deleted` (bool): true for a deleted key, whose parts are NULL. Rows purged by
event time are not listed: see `lockgate.purged_until`.
One with differences has `__base` (int64) in front of that: for a `__payload` that is the difference from the form that
the snapshots before it hold, the mark of that form (see `difference`); NULL where it is whole.
Schema metadata: `lockgate.format` ("1", of an increment "2", with differences "3"), `lockgate.key_groups` (JSON list,
the key group of each record batch), `lockgate.max_parallelism`, `lockgate.owned` (JSON pair: first key group of the
subtask that wrote it, and the one behind its last), `lockgate.signature` (JSON: keys and aggregates that the columns
belong to), `lockgate.partial_schema` (base64 of the Arrow schema of the partial tables that the state folds), and with
windows `lockgate.watermark` (how far event time had come, the end of the input left out), `lockgate.purged_until` (rows
at or before this time are gone, also those that earlier pieces hold: `__pane`, of sessions `__last#max`) and, where
some key groups had come further than the watermark, `lockgate.ahead` (JSON list of triples: first key group, the one
behind the last, and how far; see `event_clock`), and `lockgate.gone` (the same of how long windows were kept: those
that end at or before the time + 1 are not any more, whatever lateness a later run has).

With tumbling and sliding windows `__pane` is the last of the key columns. Windows with a trigger have a last part
`__pending#count`, the records since the window last fired.

A file of an interval join has the rows of one side instead: their columns, `__hash` and `__event_time` (int64,
milliseconds); the partial schema is that of the rows as they come, and the times are there as with windows, of which
`lockgate.purged_until` goes by `__event_time`.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from lockgate_common import arrow_input
from lockgate_common.json_input import parse_json
from lockgate_proto.messages import KeyedAggregate
from lockgate_proto.release import own_version

from lockgate_taskmanager.state.about import About
from lockgate_taskmanager.state.columns import pieces
from lockgate_taskmanager.state.columns.arrays import require_values
from lockgate_taskmanager.state.columns.pieces import fitting
from lockgate_taskmanager.state.layout import EVENT_TIME, HASH, PANE
from lockgate_taskmanager.task.program import StateUnreadable
from lockgate_taskmanager.task.watermarks import MIN_WATERMARK

Array = Any  # numpy.ndarray
FORMAT = "1"
INCREMENT_FORMAT = "2"
DIFF_FORMAT = "3"
CUT_FORMAT = "4"
CUT_INCREMENT_FORMAT = "5"
_FULL_FORMATS = (FORMAT, CUT_FORMAT)
_FORMATS = (FORMAT, INCREMENT_FORMAT, DIFF_FORMAT, CUT_FORMAT, CUT_INCREMENT_FORMAT)
DELETED = "__deleted"
BASE = "__base"
_OWN_TYPES = {HASH: pa.int64(), EVENT_TIME: pa.int64(), DELETED: pa.bool_(), BASE: pa.int64()}  # behind the keys
_WITHOUT_NULLS = (HASH, EVENT_TIME, DELETED)
PAYLOAD = "__payload"  # of rows by key
_ROWS_AT_ONCE = 8_192
_BYTES_AT_ONCE = 4 << 20
_MAY_CHANGE = frozenset({"every_count", "every_ms"})  # of a window, as stored state means the same with any


@dataclass(frozen=True, slots=True)
class Stored:
    """The content of a file. batches: of the wanted key groups; where: names the file in messages."""

    schema: pa.Schema
    batches: tuple[pa.RecordBatch, ...]
    about: About
    is_increment: bool = False
    where: str = ""


def signature(operator: KeyedAggregate) -> str:
    """Identifies the state: equal signatures mean equal columns."""
    aggregates = [[aggregate.output, aggregate.function.name, aggregate.input] for aggregate in operator.aggregates]
    described: dict[str, Any] = {"keys": list(operator.keys), "aggregates": aggregates}
    if operator.window is not None and operator.window.kind is not None:  # how long windows are kept may change
        kind = operator.window.kind
        fields = {name: value for name, value in asdict(kind).items() if name not in _MAY_CHANGE}
        described["window"] = {"kind": type(kind).__name__, **fields, "event_time": operator.window.event_time}
    return json.dumps(described)


Take = Callable[[Array], pa.RecordBatch]


def write(hashes: Array, take: Take, about: About, *, is_increment: bool = False) -> pa.Buffer:
    """Serializes rows of state by key group. Holds in memory the file and the rows of one key group, or of small ones.

    hashes: of the rows; take: returns rows by position: key columns, `__hash`, parts; for an increment also DELETED,
    whose rows have NULL for every part, preceded by BASE if there are differences. It may raise pa.ArrowInvalid for
    more rows than fit into one batch.
    """
    groups = np.mod(hashes, about.max_parallelism).astype(np.int16 if about.max_parallelism <= 1 << 15 else np.int32)
    order = np.argsort(groups, kind="stable")  # 16 bits: a radix sort
    present, starts = np.unique(groups[order], return_index=True)
    wanted = [order[start:end] for start, end in pairwise([*starts.tolist(), len(groups)])]
    empty = take(np.zeros(0, np.int64))
    try:
        whole = {"lockgate.key_groups": json.dumps(present.tolist())}
        return _written(empty, _one_each(take, wanted), about, _format(empty, is_increment), whole)
    except _TooLargeForOneBatch:
        cut = CUT_INCREMENT_FORMAT if is_increment else CUT_FORMAT
        return _written(empty, (batch for rows in wanted for batch in fitting(take, rows)), about, cut, {})


def replacing(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Rows of an increment without deletions."""
    return rows.append_column(pa.field(DELETED, pa.bool_()), pa.array(np.zeros(rows.num_rows, np.bool_)))


def write_groups(target: Path, batches: Iterable[pa.RecordBatch], schema: pa.Schema, about: About) -> None:
    """Writes a full snapshot to a file batch by batch, in the order of key groups."""
    metadata = described(about, CUT_FORMAT)
    with pa.ipc.new_file(str(target), schema.with_metadata(metadata)) as file:
        for batch in batches:
            if batch.num_rows:
                file.write_batch(batch.replace_schema_metadata(metadata))


def described(about: About, file_format: str) -> dict[str, str]:
    """The metadata of a file, without the key groups of its batches."""
    metadata = {
        "lockgate.format": file_format,
        "lockgate.max_parallelism": str(about.max_parallelism),
        "lockgate.owned": json.dumps([about.owned.start, about.owned.stop]),
        "lockgate.signature": about.signature,
        "lockgate.partial_schema": base64.b64encode(about.partial_schema.serialize()).decode(),
    }
    times = {"lockgate.watermark": about.watermark, "lockgate.purged_until": about.purged_until}
    metadata |= {name: str(time) for name, time in times.items() if time != MIN_WATERMARK}
    runs = {"lockgate.ahead": about.ahead, "lockgate.gone": about.gone}
    return metadata | {name: json.dumps(some) for name, some in runs.items() if some}


def about_of(
    metadata: Mapping[str, str], where: str, formats: Sequence[str], signature: str, max_parallelism: int
) -> About:
    """The header from the metadata. Raises StateUnreadable for other state, KeyError, ValueError, pa.ArrowException."""
    if metadata.get("lockgate.format") not in formats:
        raise StateUnreadable(
            f"the state file {where} has format {metadata.get('lockgate.format')}, and Lockgate {own_version()} reads "
            f"{' or '.join(formats)} there: use the version that wrote it, or one in between"
        )
    _check(metadata, where, signature, max_parallelism)
    partial_schema = arrow_input.read_schema(base64.b64decode(metadata["lockgate.partial_schema"]))
    first, behind = _numbers(parse_json(metadata.get("lockgate.owned", "[0, 0]")), 2)  # files of before do not say it
    if not 0 <= first <= behind <= max_parallelism:
        raise ValueError(f"there are no key groups from {first} to {behind}")
    owned = range(first, behind)
    watermark, purged_until = (
        _numbers([int(metadata.get(name, MIN_WATERMARK))], 1)[0]
        for name in ("lockgate.watermark", "lockgate.purged_until")
    )
    ahead, gone = (_runs(metadata.get(name, "[]")) for name in ("lockgate.ahead", "lockgate.gone"))
    return About(partial_schema, signature, max_parallelism, owned, watermark, purged_until, ahead, gone)


def read(data: pa.Buffer, where: str, *, signature: str, max_parallelism: int, wanted: range) -> Stored:
    """Reads the key groups in `wanted`. Raises StateUnreadable for an invalid file, or for other state."""
    try:
        file = arrow_input.open_file(data)
        metadata = {k.decode(): v.decode() for k, v in (file.schema.metadata or {}).items()}
        about = about_of(metadata, where, _FORMATS, signature, max_parallelism)
        _check_types(file.schema, about.partial_schema)
        key_groups = metadata.get("lockgate.key_groups")
        if key_groups is not None:
            groups = _numbers(parse_json(key_groups), file.num_record_batches)
            batches = tuple(arrow_input.batch(file, i) for i, group in enumerate(groups) if group in wanted)
        else:
            every = (arrow_input.batch(file, i) for i in range(file.num_record_batches))
            batches = tuple(batch for batch in every if _group_of(batch, max_parallelism) in wanted)
        own = file.schema.names[file.schema.get_field_index(HASH) :]
        needed = [name for name in _WITHOUT_NULLS if name in own]
        for batch in batches:
            require_values(batch, *needed)
    except (pa.ArrowException, KeyError, ValueError, IndexError, TypeError, OSError) as error:
        raise StateUnreadable(f"the state file {where} cannot be read as keyed state: {error}") from error
    is_increment = metadata["lockgate.format"] not in _FULL_FORMATS
    return Stored(file.schema.remove_metadata(), batches, about, is_increment, where)


def mark(data: pa.Buffer, where: str) -> str:
    """The signature of a file. Raises StateUnreadable for an invalid file."""
    try:
        metadata = arrow_input.open_file(data).schema.metadata or {}
        return str(metadata[b"lockgate.signature"].decode())
    except (pa.ArrowException, KeyError, ValueError, OSError) as error:
        raise StateUnreadable(f"the state file {where} cannot be read as keyed state: {error}") from error


@dataclass(frozen=True, slots=True)
class StoredRows:
    """The rows of several stored pieces, as batches, because one array cannot hold more than 2 GiB of text.

    keys: batches with the key columns; hashes: of all rows, one batch after the other; parts: the other columns.
    """

    keys: tuple[pa.RecordBatch, ...]
    hashes: Array
    parts: tuple[pa.RecordBatch, ...]


def joined(snapshots: Sequence[Stored], keys: int) -> StoredRows:
    """All rows of some pieces. keys: number of key columns."""
    return rows_of([batch for snapshot in snapshots for batch in snapshot.batches if batch.num_rows], keys)


def rows_of(batches: Sequence[pa.RecordBatch], keys: int) -> StoredRows:
    """The same for batches in the stored form."""
    hashes = [batch.column(keys).to_numpy(zero_copy_only=False) for batch in batches]
    return StoredRows(
        tuple(batch.select(range(keys)) for batch in batches),
        np.concatenate([np.zeros(0, np.int64), *hashes]),
        tuple(batch.select(range(keys + 1, batch.num_columns)) for batch in batches),
    )


class _TooLargeForOneBatch(Exception):
    """The rows of a key group must be split into several batches."""


def _one_each(take: Take, groups: Sequence[Array]) -> Iterator[pa.RecordBatch]:
    """The rows of each key group. Those of small ones are taken together: each call costs as much as hundreds of rows.

    As many as rows like the last ones allow; the first one alone.
    """
    position, limit = 0, 0
    while position < len(groups):
        stop = position + 1
        rows = len(groups[position])
        while stop < len(groups) and rows + len(groups[stop]) <= limit:
            rows += len(groups[stop])
            stop += 1
        some = groups[position:stop]
        together = _in_one(take, some[0] if len(some) == 1 else np.concatenate(some))
        start = 0
        for group in some:
            yield together.slice(start, len(group))
            start += len(group)
        position, limit = stop, min(_ROWS_AT_ONCE, _BYTES_AT_ONCE * rows // max(1, together.nbytes))


def _in_one(take: Take, rows: Array) -> pa.RecordBatch:
    try:
        found = take(rows)
    except pa.ArrowInvalid as error:
        raise _TooLargeForOneBatch from error
    if found.nbytes > pieces.LARGEST_BATCH_BYTES and len(rows) > 1:
        raise _TooLargeForOneBatch
    return found


def _format(empty: pa.RecordBatch, is_increment: bool) -> str:
    if not is_increment:
        return FORMAT
    return DIFF_FORMAT if BASE in empty.schema.names else INCREMENT_FORMAT


def _written(
    empty: pa.RecordBatch, batches: Iterable[pa.RecordBatch], about: About, file_format: str, more: dict[str, str]
) -> pa.Buffer:
    schema = empty.schema.with_metadata(described(about, file_format) | more)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema) as file:
        for batch in batches:
            file.write_batch(batch.replace_schema_metadata(schema.metadata))
    return sink.getvalue()


def _numbers(found: Any, count: int) -> list[int]:
    """A list of `count` integers of 64 bits. Raises ValueError for anything else."""
    is_list = isinstance(found, list) and len(found) == count
    if not is_list or not all(type(number) is int and -(1 << 63) <= number < 1 << 63 for number in found):
        raise ValueError(f"it should list {count} whole numbers")
    return list(found)


def _runs(text: str) -> tuple[tuple[int, int, int], ...]:
    """Triples of first, behind, time. Raises ValueError."""
    found = parse_json(text)
    if not isinstance(found, list):
        raise ValueError("it should list runs of key groups")
    return tuple((first, behind, time) for first, behind, time in (_numbers(run, 3) for run in found))


def _check_types(schema: pa.Schema, partial: pa.Schema) -> None:
    """Raises ValueError for a key column or one of the format's own that has another type, KeyError without a hash.

    partial: of the tables that the state folds, which has the columns of the keys, or of all rows.
    """
    behind = schema.get_field_index(HASH)
    if behind < 0:
        raise KeyError(HASH)
    keys = {PANE: pa.int64()} | dict(zip(partial.names, partial.types, strict=True))
    for place, field in enumerate(schema):
        wanted = (keys if place < behind else _OWN_TYPES).get(field.name, field.type)
        if field.type != wanted:
            raise ValueError(f"its column '{field.name}' has the type {field.type} instead of {wanted}")


def _group_of(batch: pa.RecordBatch, max_parallelism: int) -> int:
    """The key group of a batch, which is the same for all its rows."""
    return int(batch.column(HASH)[0].as_py()) % max_parallelism


def _check(metadata: Mapping[str, str], where: str, signature: str, max_parallelism: int) -> None:
    if metadata["lockgate.signature"] != signature:
        raise StateUnreadable(
            f"the state file {where} belongs to another aggregate: it has {metadata['lockgate.signature']},"
            f" the job now has {signature}; keep keys, aggregates, window and bounds of a join as they were,"
            " or let the operator begin without state: with another id, .uid('...') in Python, and"
            " --allow-unmatched-state"
        )
    if int(metadata["lockgate.max_parallelism"]) != max_parallelism:
        raise StateUnreadable(
            f"the state file {where} has {metadata['lockgate.max_parallelism']} key groups, the job has "
            f"{max_parallelism}; max_parallelism cannot change"
        )
