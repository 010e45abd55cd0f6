"""A restored subtask does not take up what was in flight to it, or from it, when its snapshot was taken."""

from __future__ import annotations

from dataclasses import replace

from lockgate_proto.messages import SubtaskState
from lockgate_taskmanager.runtime.in_flight import InFlight
from lockgate_taskmanager.runtime.output_set import OutputSet

_restore = InFlight.restore


def _logs_only(self: InFlight, state: SubtaskState | None, outputs: OutputSet) -> None:
    if state is not None:
        state = replace(state, channels=tuple(channel for channel in state.channels if channel.feedback))
    _restore(self, state, outputs)


InFlight.restore = _logs_only  # type: ignore[method-assign]
