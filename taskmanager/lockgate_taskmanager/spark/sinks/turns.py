"""Serializes calls of author code that makes rows visible: one at a time for each subtask, and never an older attempt
after a newer one.

A task manager does not wait for an attempt to end before it starts the next one, and a call blocked in a database
cannot be interrupted. So within one process the next attempt's call waits for it. Between processes only the author's
own database can enforce the order: the code gets the attempt's number for that.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from lockgate_taskmanager.spark.sinks.transaction import SinkContext
from lockgate_taskmanager.task.program import Canceled, Unavailable

log = logging.getLogger(__name__)

PATIENCE_S = 60.0
"""How long the next attempt waits for a call of the previous one; then it fails, and reports what it waited for."""
_REMEMBERED = 1_000  # operators whose newest attempt is known
_SAY_AFTER_S = 5.0


@dataclass(frozen=True, slots=True)
class _Call:
    attempt: int
    subtask: int
    since: float


@dataclass(slots=True)
class _Operator:
    """newest: the highest attempt that has called; running: its calls and those of older attempts."""

    newest: int = 0
    running: list[_Call] = field(default_factory=list)


class Turns:
    """For one process. Thread-safe."""

    def __init__(self, patience_s: float = PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._changed = threading.Condition()
        self._operators: dict[tuple[str, str, str], _Operator] = {}

    @contextmanager
    def take(self, context: SinkContext, require_live: Callable[[], None] = lambda: None) -> Iterator[None]:
        """The block calls the author's code. Raises Canceled for an attempt that was replaced, Unavailable.

        require_live: called while it waits; what it raises ends the wait.
        """
        operator, call = self._begin(context, require_live)
        try:
            yield
        finally:
            with self._changed:
                operator.running.remove(call)
                self._changed.notify_all()

    def _begin(self, context: SinkContext, require_live: Callable[[], None]) -> tuple[_Operator, _Call]:
        started = time.monotonic()
        is_logged = False
        with self._changed:
            operator = self._operator(context)
            while True:
                if context.attempt < operator.newest:
                    raise Canceled(f"attempt {operator.newest} has replaced attempt {context.attempt}")
                operator.newest = context.attempt
                other = next((call for call in operator.running if _keeps_waiting(call, context)), None)
                now = time.monotonic()
                if other is None:
                    call = _Call(context.attempt, context.subtask, now)
                    operator.running.append(call)
                    return operator, call
                text = (
                    f"{context.where}: a call of attempt {other.attempt} has run for {now - other.since:.0f} s;"
                    f" attempt {context.attempt} waits for it"
                )
                if now - started >= self._patience_s:
                    raise Unavailable(f"{text} no longer; the called code needs its own timeout")
                if now - started >= _SAY_AFTER_S and not is_logged:
                    is_logged = True
                    log.warning("%s", text)
                require_live()
                self._changed.wait(1.0)

    def _operator(self, context: SinkContext) -> _Operator:
        key = (context.job_key, context.run_id, context.operator_id)
        found = self._operators.pop(key, None) or _Operator()
        self._operators[key] = found  # newest last
        for other in [name for name, known in self._operators.items() if not known.running and name != key]:
            if len(self._operators) <= _REMEMBERED:
                break
            del self._operators[other]
        return found


def _keeps_waiting(call: _Call, context: SinkContext) -> bool:
    """Subtasks of one attempt may call concurrently; an older attempt's rows may be this attempt's now."""
    if call.attempt == context.attempt:
        return call.subtask == context.subtask
    return context.stands_in_for(call.subtask)


TURNS = Turns()
"""The instance of this process."""
