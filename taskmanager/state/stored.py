"""The format of stored keyed state: an Arrow IPC file with one record batch for each key group that has keys.

Schema: the key columns, then `__hash` (int64, see `layout`), then one column per part (`<output>#count`, `#sum`,
`#min`, `#max`).
Schema metadata: `lockgate.format` ("1"), `lockgate.key_groups` (JSON list, the key group of each record batch),
`lockgate.max_parallelism`, `lockgate.signature` (JSON: keys and aggregates that the columns belong to),
`lockgate.partial_schema` (base64 of the Arrow schema of the partial tables that the state folds).
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from lockgate_proto.messages import KeyedAggregate

from taskmanager.state.columns import FrozenColumn
from taskmanager.state.layout import HASH
from taskmanager.task.program import StateUnreadable

Array = Any  # numpy.ndarray
FORMAT = "1"


@dataclass(frozen=True, slots=True)
class Stored:
    """What was read back: the record batches of the wanted key groups."""

    schema: pa.Schema
    partial_schema: pa.Schema
    batches: tuple[pa.RecordBatch, ...]


def signature(operator: KeyedAggregate) -> str:
    """Says what state belongs to: equal signatures, equal columns."""
    aggregates = [[one.output, one.function.name, one.input] for one in operator.aggregates]
    return json.dumps({"keys": list(operator.keys), "aggregates": aggregates})


def write(
    chunks: Sequence[pa.RecordBatch],
    hashes: Array,
    columns: Sequence[tuple[str, FrozenColumn]],
    *,
    key_schema: pa.Schema,
    partial_schema: pa.Schema,
    signature: str,
    max_parallelism: int,
) -> pa.Buffer:
    """Serializes frozen state, sorted by key group. Arrow and numpy kernels only, so other threads run meanwhile."""
    groups = np.mod(hashes, max_parallelism).astype(np.int16 if max_parallelism <= 1 << 15 else np.int32)
    order = np.argsort(groups, kind="stable")  # 16 bits: a radix sort
    arrays = [pa.chunked_array([c.column(i) for c in chunks], f.type) for i, f in enumerate(key_schema)]
    arrays += [pa.array(hashes), *(column.to_arrow() for _, column in columns)]
    table = pa.table(arrays, names=[*key_schema.names, HASH, *(name for name, _ in columns)])
    present, starts = np.unique(groups[order], return_index=True)
    described = {
        "lockgate.format": FORMAT,
        "lockgate.key_groups": json.dumps(present.tolist()),
        "lockgate.max_parallelism": str(max_parallelism),
        "lockgate.signature": signature,
        "lockgate.partial_schema": base64.b64encode(partial_schema.serialize()).decode(),
    }
    table = table.take(pa.array(order)).combine_chunks().replace_schema_metadata(described)
    sink = pa.BufferOutputStream()
    bounds = [*starts.tolist(), len(groups)]
    with pa.ipc.new_file(sink, table.schema) as file:
        for start, end in pairwise(bounds):
            file.write_table(table.slice(start, end - start))
    return sink.getvalue()


def read(data: pa.Buffer, where: str, *, signature: str, max_parallelism: int, wanted: range) -> Stored:
    """Reads the key groups in `wanted`. Raises StateUnreadable when the bytes are no such file or another's."""
    try:
        file = pa.ipc.open_file(data)
        about = {k.decode(): v.decode() for k, v in (file.schema.metadata or {}).items()}
        _check(about, where, signature, max_parallelism)
        partial_schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(about["lockgate.partial_schema"])))
        groups = json.loads(about["lockgate.key_groups"])
        chosen = [i for i, group in enumerate(groups) if group in wanted]
        batches = tuple(file.get_batch(i) for i in chosen)
    except (pa.ArrowException, KeyError, ValueError, IndexError, OSError) as error:
        raise StateUnreadable(f"the state file {where} cannot be read as keyed state: {error}") from error
    return Stored(file.schema.remove_metadata(), partial_schema, batches)


def joined(snapshots: Sequence[Stored], keys: int) -> tuple[pa.RecordBatch, Array, list[pa.Array]]:
    """Keys, hash of each, and the other columns of several stored pieces together."""
    batches = [batch for one in snapshots for batch in one.batches]
    table = pa.Table.from_batches(batches, snapshots[0].schema).combine_chunks()
    whole = table.to_batches()
    batch = whole[0] if whole else pa.RecordBatch.from_pylist([], table.schema)
    hashes = batch.column(keys).to_numpy(zero_copy_only=False)
    return batch.select(table.column_names[:keys]), hashes, list(batch.columns[keys + 1 :])


def _check(about: dict[str, str], where: str, signature: str, max_parallelism: int) -> None:
    if about.get("lockgate.format") != FORMAT:
        raise StateUnreadable(f"the state file {where} has format {about.get('lockgate.format')}, expected {FORMAT}")
    if about["lockgate.signature"] != signature:
        raise StateUnreadable(
            f"the state file {where} belongs to another aggregate: it has {about['lockgate.signature']},"
            f" the job now has {signature}; keep keys and aggregates as they were, or start from nothing"
        )
    if int(about["lockgate.max_parallelism"]) != max_parallelism:
        raise StateUnreadable(
            f"the state file {where} has {about['lockgate.max_parallelism']} key groups, the job has {max_parallelism};"
            " max_parallelism cannot change"
        )
