"""The format of stored keyed state: an Arrow IPC file with one record batch for each key group that has keys.

Schema: the key columns, then `__hash` (int64, see `layout`), then one column per part (`<output>#count`, `#sum`,
`#min`, `#max`).
An increment has one column more, `__deleted` (bool): true for a key that is gone, whose parts are NULL then. What event
time has purged is not told row by row: see `lockgate.purged_until`.
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

With tumbling and sliding windows `__pane` is the last of the key columns.

A file of an interval join has the rows of one side instead: their columns, `__hash` and `__event_time` (int64,
milliseconds); the partial schema is that of the rows as they come, and the times are there as with windows, of which
`lockgate.purged_until` goes by `__event_time`.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from lockgate_proto.messages import KeyedAggregate

from taskmanager.state.event_clock import Ahead, EventClock
from taskmanager.state.layout import HASH
from taskmanager.task.program import StateUnreadable
from taskmanager.task.watermarks import MIN_WATERMARK

Array = Any  # numpy.ndarray
FORMAT = "1"
INCREMENT_FORMAT = "2"
DIFF_FORMAT = "3"
DELETED = "__deleted"
BASE = "__base"


@dataclass(frozen=True, slots=True)
class Stored:
    """What was read back: the record batches of the wanted key groups.

    owned: see About; empty in older files; where: names the file in messages.
    """

    schema: pa.Schema
    partial_schema: pa.Schema
    batches: tuple[pa.RecordBatch, ...]
    is_increment: bool = False
    owned: range = range(0)
    watermark: int = MIN_WATERMARK
    purged_until: int = MIN_WATERMARK
    where: str = ""
    ahead: tuple[Ahead, ...] = ()
    gone: tuple[Ahead, ...] = ()


def signature(operator: KeyedAggregate) -> str:
    """Says what state belongs to: equal signatures, equal columns."""
    aggregates = [[one.output, one.function.name, one.input] for one in operator.aggregates]
    described: dict[str, Any] = {"keys": list(operator.keys), "aggregates": aggregates}
    if operator.window is not None and operator.window.kind is not None:  # how long windows are kept may change
        kind = operator.window.kind
        described["window"] = {"kind": type(kind).__name__, **asdict(kind), "event_time": operator.window.event_time}
    return json.dumps(described)


@dataclass(frozen=True, slots=True)
class About:
    """What a file says of itself. partial_schema: of the partial tables that the state folds.

    owned: key groups of the subtask that wrote it, with or without keys; watermark: of windows, how far event time had
    come, the end of the input left out; purged_until: rows with an event time at or before it are gone;
    ahead: key groups for which event time had come further; gone: until when windows are not kept any more, by key
    groups.
    """

    partial_schema: pa.Schema
    signature: str
    max_parallelism: int
    owned: range = range(0)
    watermark: int | None = None
    purged_until: int | None = None
    ahead: tuple[Ahead, ...] = ()
    gone: tuple[Ahead, ...] = ()


def about_windows(
    operator: KeyedAggregate,
    schema: pa.Schema,
    max_parallelism: int,
    owned: range,
    clock: EventClock,
    purged_until: int,
) -> About:
    """Of windows. schema: of the partial tables; clock: how far event time has come; the rest: see About."""
    told = signature(operator)
    return About(schema, told, max_parallelism, owned, clock.before_end, purged_until, clock.ahead, clock.gone)


def write(table: pa.Table, about: About, *, is_increment: bool = False) -> pa.Buffer:
    """Serializes rows of state, sorted by key group. Arrow and numpy kernels only, so other threads run meanwhile.

    table: key columns, `__hash`, parts; of an increment also DELETED, whose rows have NULL for every part, and in front
    of it BASE where there are differences.
    """
    hashes = table.column(HASH).to_numpy()
    groups = np.mod(hashes, about.max_parallelism).astype(np.int16 if about.max_parallelism <= 1 << 15 else np.int32)
    order = np.argsort(groups, kind="stable")  # 16 bits: a radix sort
    present, starts = np.unique(groups[order], return_index=True)
    increment_format = DIFF_FORMAT if BASE in table.column_names else INCREMENT_FORMAT
    said = described(about, increment_format if is_increment else FORMAT)
    said["lockgate.key_groups"] = json.dumps(present.tolist())
    table = table.take(pa.array(order)).combine_chunks().replace_schema_metadata(said)
    sink = pa.BufferOutputStream()
    bounds = [*starts.tolist(), len(groups)]
    with pa.ipc.new_file(sink, table.schema) as file:
        for start, end in pairwise(bounds):
            file.write_table(table.slice(start, end - start))
    return sink.getvalue()


def replacing(rows: pa.Table) -> pa.Table:
    """Rows of an increment none of which says that a key is gone."""
    return rows.append_column(pa.field(DELETED, pa.bool_()), pa.array(np.zeros(rows.num_rows, np.bool_)))


def write_groups(target: Path, groups: Iterable[pa.RecordBatch], schema: pa.Schema, about: About) -> None:
    """Writes a full snapshot to a file, a key group at a time: one batch for each of `about.owned`, empty or not."""
    said = described(about, FORMAT)
    said["lockgate.key_groups"] = json.dumps(list(about.owned))
    with pa.ipc.new_file(str(target), schema.with_metadata(said)) as file:
        for batch in groups:
            file.write_batch(batch.replace_schema_metadata(said))


def described(about: About, file_format: str) -> dict[str, str]:
    """What a file says of itself, but for the key groups of its batches."""
    said = {
        "lockgate.format": file_format,
        "lockgate.max_parallelism": str(about.max_parallelism),
        "lockgate.owned": json.dumps([about.owned.start, about.owned.stop]),
        "lockgate.signature": about.signature,
        "lockgate.partial_schema": base64.b64encode(about.partial_schema.serialize()).decode(),
    }
    times = {"lockgate.watermark": about.watermark, "lockgate.purged_until": about.purged_until}
    said |= {name: str(time) for name, time in times.items() if time is not None}
    runs = {"lockgate.ahead": about.ahead, "lockgate.gone": about.gone}
    return said | {name: json.dumps(some) for name, some in runs.items() if some}


def about_of(
    said: Mapping[str, str], where: str, formats: Sequence[str], signature: str, max_parallelism: int
) -> About:
    """The other way round. Raises StateUnreadable when it is another's, KeyError, ValueError, pa.ArrowException."""
    if said.get("lockgate.format") not in formats:
        raise StateUnreadable(
            f"the state file {where} has format {said.get('lockgate.format')}, expected {' or '.join(formats)}"
        )
    _check(said, where, signature, max_parallelism)
    partial_schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(said["lockgate.partial_schema"])))
    owned = range(*json.loads(said.get("lockgate.owned", "[0, 0]")))  # files of before do not say it
    times = (said.get(name) for name in ("lockgate.watermark", "lockgate.purged_until"))
    watermark, purged_until = (None if time is None else int(time) for time in times)
    ahead, gone = (
        tuple((first, behind, time) for first, behind, time in json.loads(said.get(name, "[]")))
        for name in ("lockgate.ahead", "lockgate.gone")
    )
    return About(partial_schema, signature, max_parallelism, owned, watermark, purged_until, ahead, gone)


def read(data: pa.Buffer, where: str, *, signature: str, max_parallelism: int, wanted: range) -> Stored:
    """Reads the key groups in `wanted`. Raises StateUnreadable when the bytes are no such file or another's."""
    try:
        file = pa.ipc.open_file(data)
        said = {k.decode(): v.decode() for k, v in (file.schema.metadata or {}).items()}
        about = about_of(said, where, (FORMAT, INCREMENT_FORMAT, DIFF_FORMAT), signature, max_parallelism)
        groups = json.loads(said["lockgate.key_groups"])
        batches = tuple(file.get_batch(i) for i, group in enumerate(groups) if group in wanted)
    except (pa.ArrowException, KeyError, ValueError, IndexError, OSError) as error:
        raise StateUnreadable(f"the state file {where} cannot be read as keyed state: {error}") from error
    is_increment = said["lockgate.format"] != FORMAT
    times = (MIN_WATERMARK if time is None else time for time in (about.watermark, about.purged_until))
    watermark, purged_until = times
    schema = file.schema.remove_metadata()
    partial_schema, owned = about.partial_schema, about.owned
    return Stored(
        schema,
        partial_schema,
        batches,
        is_increment,
        owned,
        watermark,
        purged_until,
        where=where,
        ahead=about.ahead,
        gone=about.gone,
    )


def mark(data: pa.Buffer, where: str) -> str:
    """The signature of a file: what its state belongs to. Raises StateUnreadable when the bytes are no such file."""
    try:
        said = pa.ipc.open_file(data).schema.metadata or {}
        return str(said[b"lockgate.signature"].decode())
    except (pa.ArrowException, KeyError, ValueError, OSError) as error:
        raise StateUnreadable(f"the state file {where} cannot be read as keyed state: {error}") from error


def joined(snapshots: Sequence[Stored], keys: int) -> tuple[pa.RecordBatch, Array, list[pa.Array]]:
    """Keys, hash of each, and the other columns of several stored pieces together."""
    batches = [batch for one in snapshots for batch in one.batches]
    table = pa.Table.from_batches(batches, snapshots[0].schema).combine_chunks()
    whole = table.to_batches()
    batch = whole[0] if whole else pa.RecordBatch.from_pylist([], table.schema)
    hashes = batch.column(keys).to_numpy(zero_copy_only=False)
    return batch.select(table.column_names[:keys]), hashes, list(batch.columns[keys + 1 :])


def _check(said: Mapping[str, str], where: str, signature: str, max_parallelism: int) -> None:
    if said["lockgate.signature"] != signature:
        raise StateUnreadable(
            f"the state file {where} belongs to another aggregate: it has {said['lockgate.signature']},"
            f" the job now has {signature}; keep what state belongs to as it was (keys, aggregates, window, bounds of a"
            " join), or let the operator begin without state: with another id, .uid('...') in Python, and"
            " --allow-unmatched-state"
        )
    if int(said["lockgate.max_parallelism"]) != max_parallelism:
        raise StateUnreadable(
            f"the state file {where} has {said['lockgate.max_parallelism']} key groups, the job has {max_parallelism};"
            " max_parallelism cannot change"
        )
