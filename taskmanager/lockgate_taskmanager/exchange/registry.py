"""GateRegistry: the input gates of this process, found by the subtask they belong to."""

from __future__ import annotations

import threading

from lockgate_proto.messages import AttemptId, SubtaskId

from lockgate_taskmanager.exchange.errors import ChannelRefused
from lockgate_taskmanager.exchange.gate import InputGate


class GateRegistry:
    """Thread safe. A sender may be deployed before its receiver, so a lookup waits for a while."""

    def __init__(self) -> None:
        self._gates: dict[SubtaskId, InputGate] = {}
        self._newest: dict[tuple[str, str], int] = {}
        self._changed = threading.Condition()
        self._closed = False

    def register(self, subtask: SubtaskId, gate: InputGate) -> None:
        """Opens the subtask for channels."""
        assert subtask.attempt is not None
        run = (subtask.attempt.job_key, subtask.attempt.run_id)
        with self._changed:
            self._gates[subtask] = gate
            self._newest[run] = max(self._newest.get(run, 0), subtask.attempt.attempt)
            self._changed.notify_all()

    def unregister(self, subtask: SubtaskId) -> None:
        """No further channel will be opened to the subtask. Unknown subtasks are ignored."""
        with self._changed:
            self._gates.pop(subtask, None)

    def forget(self, attempt: AttemptId) -> None:
        """Forgets the run, if this is still its newest attempt."""
        run = (attempt.job_key, attempt.run_id)
        with self._changed:
            if self._newest.get(run) == attempt.attempt:
                del self._newest[run]

    def get(self, subtask: SubtaskId) -> InputGate | None:
        """The gate, if it is registered now."""
        with self._changed:
            return self._gates.get(subtask)

    def wait_for(self, subtask: SubtaskId, timeout_s: float) -> InputGate:
        """The gate; waits for a deployment that is about to arrive. Raises ChannelRefused."""
        assert subtask.attempt is not None
        attempt = subtask.attempt
        run = (attempt.job_key, attempt.run_id)

        def is_decided() -> bool:
            return self._closed or subtask in self._gates or self._newest.get(run, 0) > attempt.attempt

        with self._changed:
            self._changed.wait_for(is_decided, timeout_s)
            gate = self._gates.get(subtask)
            if gate is not None:
                return gate
            name = f"{subtask.vertex_id}[{subtask.subtask}] of job {attempt.job_key!r}, attempt {attempt.attempt},"
            newest = self._newest.get(run, 0)
            if newest > attempt.attempt:
                raise ChannelRefused(f"{name} has been replaced by attempt {newest}")
            raise ChannelRefused(f"{name} is not running here" + ("" if self._closed else f" after {timeout_s:g} s"))

    def close(self) -> None:
        """Ends every wait."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
