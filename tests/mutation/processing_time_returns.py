"""A restored subtask begins at its clock's time, wherever the processing time of the snapshot was."""

from __future__ import annotations

from lockgate_taskmanager.state.processing_clock import ProcessingClock


def _from_zero(clock: ProcessingClock, least_ms: int = 0) -> None:
    del least_ms
    _original(clock)


_original = ProcessingClock.__init__
ProcessingClock.__init__ = _from_zero  # type: ignore[method-assign]
