"""Sizes and times of a subtask's newest stored snapshot."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from lockgate_proto.messages import OperatorState

from lockgate_taskmanager.task.effects import Acknowledge


@dataclass(frozen=True, slots=True)
class SnapshotFigures:
    """state_bytes: by operator id, with what earlier checkpoints have written and this one refers to."""

    sync_s: float
    upload_s: float
    alignment_s: float
    state_bytes: tuple[tuple[str, int], ...]


def figures_of(done: Acknowledge) -> SnapshotFigures:
    """Those of a snapshot that is about to be acknowledged."""
    sizes = Counter[str]()
    for operator in done.state.operators:  # one that joins has two
        sizes[operator.operator_id] += _size(operator)
    return SnapshotFigures(done.sync_us / 1e6, done.async_ms / 1e3, done.alignment_ms / 1e3, tuple(sizes.items()))


def _size(operator: OperatorState) -> int:
    handles = (operator.handle, *operator.increments, *operator.files)
    return sum(handle.size_bytes or len(handle.inline) for handle in handles if handle is not None)
