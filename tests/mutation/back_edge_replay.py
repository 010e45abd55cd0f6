"""A restored head of a loop does not take up what its snapshot has logged of its back edges."""

from __future__ import annotations

from dataclasses import replace

from lockgate_proto.messages import SubtaskState
from lockgate_taskmanager.runtime.in_flight import InFlight
from lockgate_taskmanager.runtime.output_set import OutputSet

_restore = InFlight.restore


def _without_logs(self: InFlight, state: SubtaskState | None, outputs: OutputSet) -> None:
    if state is not None:
        state = replace(state, channels=tuple(channel for channel in state.channels if not channel.feedback))
    _restore(self, state, outputs)


InFlight.restore = _without_logs  # type: ignore[method-assign]
