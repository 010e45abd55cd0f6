"""Answers queries of keyed state from completed checkpoints in storage. Thread-safe.

    metadata of the checkpoint -> part of the subtask that has the key's group -> rows of the key -> JSON

The stream is not asked: its stores change all the time, and no moment of one is a moment of another.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from lockgate_common import storage
from lockgate_common.checksums import checksum
from lockgate_common.clock import unix_ms
from lockgate_proto.codec import MalformedMessage, decode
from lockgate_proto.messages import (
    CheckpointMetadata,
    KeyedValue,
    OperatorKeys,
    OperatorState,
    QueryOutcome,
    StateAnswer,
    StateKind,
    StateQuery,
    VertexShape,
)

from lockgate_taskmanager.state.layout import HASH, PANE
from lockgate_taskmanager.state.query.held import Held
from lockgate_taskmanager.state.query.identity import QuerySpec
from lockgate_taskmanager.state.query.key_text import key_of, row_json
from lockgate_taskmanager.state.query.opened import OpenedFiles
from lockgate_taskmanager.state.query.spark_hash import hash_of
from lockgate_taskmanager.state.query.values import value_of
from lockgate_taskmanager.state.rows.row_store import RowSpec
from lockgate_taskmanager.task.program import ProgramError, StateUnreadable, StorageUnavailable, UserError

MOST_ANSWER_BYTES = 1 << 20
_MOST_METADATA_BYTES = 1 << 30
_FEW_METADATA = 4  # are kept, whatever their size
_MOST_METADATA, _METADATA_BYTES = 64, 8 << 20  # of their files; in memory they are five to nine times as large
_KEYED = (StateKind.KEYED_STATE, StateKind.ROCKSDB_STATE)
_PROBLEMS = (ProgramError, OSError, ValueError, LookupError, TypeError)


Parts = tuple[VertexShape, dict[int, OperatorState]]


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """The metadata of a checkpoint, its size in bytes, and the parts of operators that were asked for."""

    metadata: CheckpointMetadata
    size: int
    known: dict[str, Parts]

    def parts(self, operator_id: str) -> Parts:
        """The operator's keyed state by subtask. Raises UserError."""
        found = self.known.get(operator_id)
        if found is None:
            found = self.known[operator_id] = _parts(self.metadata, operator_id)
        return found


class SnapshotReader:
    """The queries that one task manager answers."""

    def __init__(self, opened: OpenedFiles, now_ms: Callable[[], int] = unix_ms) -> None:
        """now_ms: wall clock, by which state expires."""
        self._opened, self._now_ms = opened, now_ms
        self._guard = threading.Lock()  # of what follows
        self._metadata: OrderedDict[tuple[str, str], _Snapshot] = OrderedDict()
        self._checked: OrderedDict[str, None] = OrderedDict()

    def answer(self, query: StateQuery) -> StateAnswer:
        """The values of all keys, or why there are none."""
        try:
            snapshot = self._snapshot_at(query.pointer, query.checksum)
            values: list[KeyedValue] = []
            size = 0
            for keys in query.operators:
                found: dict[int, KeyedValue] = {}
                for place, value in self._values(query.pointer, snapshot, keys):
                    size += len(value.key) + len(value.value)
                    if size > MOST_ANSWER_BYTES:
                        raise UserError(
                            f"the answer has more than {MOST_ANSWER_BYTES} bytes; ask for fewer keys at a time"
                        )
                    found[place] = value
                values += (found[place] for place in range(len(keys.keys)))
            return StateAnswer(query.request, QueryOutcome.ANSWERED, tuple(values))
        except _PROBLEMS as error:
            return _problem(query, error)

    def prepare(self, query: StateQuery) -> StateAnswer:
        """Opens what the operators hold in all their subtasks. One that cannot be queried is left out: its queries say
        why. Refused where there is no room for it beside the snapshot before, which answers meanwhile.
        """
        try:
            snapshot = self._snapshot_at(query.pointer, query.checksum)
            parts = []
            for keys in query.operators:
                with contextlib.suppress(UserError):
                    parts += list(_named(query.pointer, *snapshot.parts(keys.operator_id)))
            if not self._opened.fits_beside([(state, name) for _, state, name, _ in parts]):
                problem = "there is no room for two snapshots of this size at a time"
                return StateAnswer(query.request, QueryOutcome.UNREADABLE_STATE, (), problem)
            for _ in range(2):  # once more, so that all of it has been used later than what was used meanwhile
                for subtask, state, _, shape in parts:
                    with contextlib.suppress(UserError):
                        self._open(query.pointer, subtask, state, shape)
            return StateAnswer(query.request, QueryOutcome.ANSWERED)
        except _PROBLEMS as error:
            return _problem(query, error)

    def is_ready(self, query: StateQuery) -> bool:
        """Whether all that the operators of a query hold is open, so that its answer does not wait for storage."""
        with self._guard:
            snapshot = self._metadata.get((query.pointer, query.checksum))
        if snapshot is None:
            return False
        try:
            parts = [_named(query.pointer, *snapshot.parts(keys.operator_id)) for keys in query.operators]
        except UserError:
            return True  # which the answer says
        return all(self._opened.has(state, name) for some in parts for _, state, name, _ in some)

    def close(self) -> None:
        """Releases memory and files."""
        self._opened.close()

    def _snapshot_at(self, pointer: str, wanted: str) -> _Snapshot:
        name = (pointer, wanted)
        with self._guard:
            found = self._metadata.get(name)
            if found is not None:
                self._metadata.move_to_end(name)
                return found
        location = storage.locate(pointer)
        data = storage.read_all(location, _MOST_METADATA_BYTES)
        if checksum(data, wanted) != wanted:
            raise StateUnreadable(f"{location.masked_uri} is not the file that its checkpoint was completed with")
        try:
            found = _Snapshot(decode(CheckpointMetadata, data.to_pybytes()), data.size, {})
        except MalformedMessage as error:
            raise StateUnreadable(f"{location.masked_uri} cannot be read: {error}") from error
        with self._guard:
            self._metadata[name] = found
            self._metadata.move_to_end(name)
            used = sum(kept.size for kept in self._metadata.values())
            while (count := len(self._metadata)) > _FEW_METADATA and (count > _MOST_METADATA or used > _METADATA_BYTES):
                used -= self._metadata.popitem(last=False)[1].size
        return found

    def _values(self, pointer: str, snapshot: _Snapshot, wanted: OperatorKeys) -> Iterator[tuple[int, KeyedValue]]:
        """The value of each key with its place in the request. Each part is opened once, for all of its keys."""
        shape, parts = snapshot.parts(wanted.operator_id)
        first = next(iter(parts))  # any part knows the columns
        known = _key_schema(*self._open(pointer, first, parts[first], shape))
        keys = [key_of(text, known) for text in wanted.keys]
        hashes = [hash_of([column[0] for column in key.columns]) for key in keys]
        places: dict[int, list[int]] = {first: []}
        for place, key_hash in enumerate(hashes):
            subtask = key_hash % shape.max_parallelism * shape.parallelism // shape.max_parallelism
            places.setdefault(subtask, []).append(place)
        for subtask, mine in places.items():
            part = parts.get(subtask)
            opened = self._open(pointer, subtask, part, shape) if part is not None and mine else None
            for place in mine:
                yield place, self._value(wanted.operator_id, opened, keys[place], hashes[place])

    def _value(
        self, operator_id: str, opened: tuple[QuerySpec, Held] | None, key: pa.RecordBatch, key_hash: int
    ) -> KeyedValue:
        value = None
        if opened is not None:
            spec, held = opened
            rows = held.rows_of(key, key_hash)
            value = None if rows is None else value_of(spec, held.about, rows, self._now_ms())
        named = json.dumps(row_json(key.schema.names, key.columns))
        return KeyedValue(operator_id, named, value is not None, "" if value is None else json.dumps(value))

    def _open(self, pointer: str, subtask: int, state: OperatorState, shape: VertexShape) -> tuple[QuerySpec, Held]:
        name = _name(pointer, state, subtask)
        spec, held = self._opened.open(state, name, shape.max_parallelism)
        if name not in self._checked:
            _check_hash(spec, held)
            with self._guard:
                self._checked[name] = None
                while len(self._checked) > 1024:
                    self._checked.popitem(last=False)
        return spec, held


def _name(pointer: str, state: OperatorState, subtask: int) -> str:
    """Of the state in one subtask."""
    return f"{pointer}#{state.operator_id}-{subtask}"


def _named(
    pointer: str, shape: VertexShape, parts: dict[int, OperatorState]
) -> Iterator[tuple[int, OperatorState, str, VertexShape]]:
    """An operator's parts: subtask, state, name, shape."""
    for subtask, state in parts.items():
        yield subtask, state, _name(pointer, state, subtask), shape


def _problem(query: StateQuery, error: Exception) -> StateAnswer:
    if isinstance(error, UserError):
        return StateAnswer(query.request, QueryOutcome.NOT_ANSWERABLE, (), str(error))
    if isinstance(error, StorageUnavailable) or (isinstance(error, OSError) and not storage.is_lasting(error)):
        return StateAnswer(query.request, QueryOutcome.TRY_AGAIN, (), f"{error}; try again")
    is_gone = isinstance(error, FileNotFoundError) or isinstance(error.__cause__, FileNotFoundError)
    outcome = QueryOutcome.CHECKPOINT_GONE if is_gone else QueryOutcome.UNREADABLE_STATE
    return StateAnswer(query.request, outcome, (), str(error))


def _parts(metadata: CheckpointMetadata, operator_id: str) -> Parts:
    """The operator's keyed state by subtask. Raises UserError."""
    shape = next((vertex for vertex in metadata.vertices if operator_id in vertex.operator_ids), None)
    parts: dict[int, OperatorState] = {}
    keyed: set[str] = set()
    for subtask in metadata.subtasks:
        for state in subtask.operators:
            if state.kind in _KEYED:
                keyed.add(state.operator_id)
                if state.operator_id == operator_id:
                    parts[subtask.subtask] = state
    if shape is not None and parts:
        return shape, parts
    others = f"those that have it are {', '.join(sorted(keyed))}" if keyed else "none of this job has"
    if shape is None:
        raise UserError(f"the checkpoint has no operator {operator_id!r}; of its operators with state by key, {others}")
    raise UserError(f"operator {operator_id!r} has no state by key in this checkpoint; {others}")


def _key_schema(spec: QuerySpec, held: Held) -> pa.Schema:
    """The key columns, from the schema of what comes in."""
    schema = held.about.partial_schema
    names = spec.within(schema).keys if isinstance(spec, RowSpec) else spec.aggregation.keys
    return pa.schema([pa.field(name, schema.field(name).type) for name in names])


def _check_hash(spec: QuerySpec, held: Held) -> None:
    """Raises UserError where keys are hashed otherwise than here: a key that is there would not be found."""
    row = held.sample()  # the hash of a NULL is the seed, and proves nothing
    if row is None:
        return
    count = row.schema.get_field_index(HASH)
    names = [name for name in row.schema.names[:count] if name != PANE or isinstance(spec, RowSpec)]
    if hash_of([row.column(name)[0] for name in names]) != row.column(HASH)[0].as_py():
        raise UserError(f"the keys of operator {spec.operator_id} cannot be queried: Spark hashes them in another way")
