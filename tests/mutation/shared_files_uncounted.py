"""What a checkpoint shares with others goes when it goes, whoever else refers to it."""

from __future__ import annotations

from lockgate_coordinator.checkpoint.completed import SharedFiles

_remove = SharedFiles.remove


def _all_of_them(self: SharedFiles, checkpoint_id: int) -> tuple[str, ...]:
    files = self._of.get(checkpoint_id, frozenset())
    _remove(self, checkpoint_id)
    return tuple(sorted(files))


SharedFiles.remove = _all_of_them  # type: ignore[method-assign]
