"""A snapshot of a source holds only what has changed since the checkpoint that it builds on, and not its files."""

from __future__ import annotations

from lockgate_taskmanager.spark.split_log import FrozenSplits, Piece
from lockgate_taskmanager.state.backend import SnapshotWriter

_pieces = FrozenSplits._pieces


def _only_new(self: FrozenSplits, writer: SnapshotWriter) -> tuple[Piece, ...]:
    return _pieces(self, writer) if self.apart else ()


FrozenSplits._pieces = _only_new  # type: ignore[method-assign]
