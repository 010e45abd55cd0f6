"""The snapshot format of a source's splits.

Most splits of a watched folder were read long ago. Splits at rest are written to files that later snapshots share, like
the increments of keyed state; changed splits are inside the snapshot and take precedence over the files. Files that are
not much larger than the next one are merged with it, so that there are few.

A snapshot refers only to files of checkpoints that are certainly complete (`SnapshotOrder.base_id`). The first snapshot
of an attempt, and savepoints, write everything again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from lockgate_proto.codec import encode
from lockgate_proto.messages import OperatorState, SourceState, SplitState, StateHandle, StateKind

from lockgate_taskmanager.spark.sources.catching_up import CatchingUp
from lockgate_taskmanager.spark.sources.read_ahead import ReadAhead
from lockgate_taskmanager.spark.sources.reading import Source
from lockgate_taskmanager.spark.sources.split_table import HasManySplits, SplitTable
from lockgate_taskmanager.state.backend import SnapshotWriter, inline_handle
from lockgate_taskmanager.task.program import SnapshotOrder

APART_FROM = 500
"""The number of splits at rest that justifies a file; fewer stay inside the snapshot."""

_REMEMBERED = 64

Marked = Callable[[Sequence[SplitState]], tuple[SplitState, ...]]
"""Adds the event time of each split."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A file and its splits."""

    handle: StateHandle
    splits: tuple[SplitState, ...]


@dataclass(frozen=True, slots=True)
class _Layer:
    """The files of a checkpoint. version: of the table at its time; fresh: names that are in the newest file."""

    version: int
    pieces: tuple[Piece, ...]
    fresh: tuple[str, ...] = ()


class SplitLog:
    """For one source subtask. `freeze` is called from the subtask's thread, its result is stored from another."""

    def __init__(self, operator_id: str, source: Source, marked: Marked, has_files: bool) -> None:
        """has_files: the backend can store pieces apart from the snapshot."""
        self._operator_id = operator_id
        self._source = source
        self._marked = marked
        self._many = source if has_files and isinstance(source, HasManySplits) else None
        self._layers: dict[int, _Layer] = {}
        self._in_files: set[str] = set()
        self._lock = threading.Lock()

    def freeze(self, order: SnapshotOrder) -> FrozenSplits:
        """A copy of the splits for a snapshot; with many splits its cost depends on the changed ones."""
        if self._many is None:
            return self._frozen(self._marked(self._source.splits()), ())
        table = self._many.table
        base = None if order.is_savepoint else self._adopted(order.base_id, table)
        if base is None and not order.is_savepoint:
            for name in table:
                table.changed.setdefault(name, table.changes)  # no known file contains it
        names = list(table if order.is_savepoint else table.changed)
        resting = [name for name in names if self._many.is_at_rest(table[name])]
        if len(resting) < APART_FROM:
            resting = []
        apart = set(resting)
        inside = self._marked([table[name] for name in names if name not in apart])
        marked = tuple(
            replace(split_state, rested=True) if split_state.split in self._in_files else split_state
            for split_state in inside
        )
        if not order.is_savepoint:
            self._in_files |= apart
        return self._frozen(
            marked, self._marked([table[name] for name in resting]), base, table.changes, order.is_savepoint
        )

    def stored(self, checkpoint_id: int, layer: _Layer) -> None:
        """A checkpoint's part was stored; the checkpoint may turn out to be complete."""
        with self._lock:
            self._layers[checkpoint_id] = layer
            while len(self._layers) > _REMEMBERED:
                del self._layers[min(self._layers)]

    def _adopted(self, base_id: int, table: SplitTable) -> _Layer | None:
        """The files that the snapshot may build on; splits in them that have not changed since are no longer fresh."""
        with self._lock:
            for number in [layer for layer in self._layers if layer < base_id]:
                del self._layers[number]
            base = self._layers.get(base_id)
            if base is None:
                return None
            self._layers[base_id] = replace(base, fresh=())
        for name in base.fresh:
            if table.changed.get(name, base.version + 1) <= base.version:
                del table.changed[name]
        return base

    def _frozen(
        self,
        inside: tuple[SplitState, ...],
        apart: tuple[SplitState, ...],
        base: _Layer | None = None,
        version: int = 0,
        is_savepoint: bool = False,
    ) -> FrozenSplits:
        complete = self._source.complete
        log = None if self._many is None or is_savepoint else self
        return FrozenSplits(self._operator_id, inside, apart, complete, base.pieces if base else (), version, log)


def split_log(operator_id: str, source: Source, marked: Marked, has_files: bool) -> SplitLog:
    """The log of a source. One that reads ahead has its splits where they are marked as read."""
    if isinstance(source, CatchingUp):
        source = source.inner  # has all of them before the first snapshot
    if not isinstance(source, ReadAhead):
        return SplitLog(operator_id, source, marked, has_files)
    return SplitLog(operator_id, source.inner, lambda splits: marked(source.stored(splits)), has_files)


@dataclass(frozen=True, slots=True)
class FrozenSplits:
    """The result of `freeze`.

    inside: splits stored in the snapshot itself; apart: in a file; pieces: files that it builds on.
    log: is notified of the files, for later snapshots; None for a snapshot that nothing builds on.
    """

    operator_id: str
    inside: tuple[SplitState, ...]
    apart: tuple[SplitState, ...]
    complete: bool
    pieces: tuple[Piece, ...]
    version: int
    log: SplitLog | None

    def persist(self, checkpoint_id: int, writer: SnapshotWriter) -> OperatorState:
        """Stores it. Raises OSError."""
        pieces = self._pieces(writer)
        if self.log is not None:
            self.log.stored(checkpoint_id, _Layer(self.version, pieces, tuple(split.split for split in self.apart)))
        state = SourceState(splits=self.inside, complete=self.complete)
        files = tuple(piece.handle for piece in pieces)
        return OperatorState(self.operator_id, StateKind.SOURCE_STATE, inline_handle(encode(state)), files=files)

    def _pieces(self, writer: SnapshotWriter) -> tuple[Piece, ...]:
        """The files that it builds on, and the new one, which includes merged ones."""
        kept = [replace(piece, handle=writer.take_over(piece.handle)) for piece in self.pieces]
        if not self.apart:
            return tuple(kept)
        merged = [self.apart]
        size = len(self.apart)
        while kept and len(kept[-1].splits) <= 2 * size:
            merged.append(kept.pop().splits)
            size += len(merged[-1])
        newest = {split.split: split for splits in reversed(merged) for split in splits}
        splits = tuple(newest.values())
        data = pa.py_buffer(encode(SourceState(splits=splits)))
        name = f"{self.operator_id}-splits"
        return (*kept, Piece(writer.store(name, data, is_shared=self.log is not None), splits))
