"""A leader that adopts an attempt knows only the splits in the snapshot, and assigns later ones a second time."""

from __future__ import annotations

from lockgate_coordinator.job.splits import SplitAssigner

SplitAssigner.adopt = lambda _self, _progress: None  # type: ignore[method-assign]
