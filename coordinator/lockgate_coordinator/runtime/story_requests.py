"""StoryRequests: collects the story of a job from this leader and its task managers.

The lines stay in the processes that wrote them until a client asks: nothing is sent while the job runs. Actor thread
only.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from lockgate_common.clock import monotonic_ms
from lockgate_proto.messages import StoryAnswer, StoryLine, StoryRequest

from lockgate_coordinator.runtime.actor import Actor, Timer
from lockgate_coordinator.runtime.errors import Stopped

WAIT_MS = 2_000
MOST_LINES = 4_000
"""The most lines from all task managers together; each sends its newest ones."""
LEAST_LINES = 50


@dataclass(frozen=True, slots=True)
class StoryParts:
    """The lines of each process, in order, and remarks on missing ones, as sentences."""

    parts: tuple[Sequence[StoryLine], ...]
    remarks: tuple[str, ...]


@dataclass(slots=True)
class _Asked:
    """A story for which some task managers have not answered yet."""

    answer: Future[StoryParts]
    parts: list[Sequence[StoryLine]]
    remarks: list[str]
    missing: set[str]
    lines: int
    timer: Timer | None = None


class StoryRequests:
    """The story requests of one term. send: to a task manager; False when it is not registered."""

    def __init__(self, actor: Actor, send: Callable[[str, StoryRequest], bool]) -> None:
        self._actor = actor
        self._send = send
        # A task manager may answer a later leader with what an earlier one asked: numbers of terms must not meet.
        self._numbers = itertools.count(secrets.randbits(62))
        self._asked: dict[int, _Asked] = {}

    def ask(
        self, job_key: str, run_id: str, task_managers: Iterable[str], own: Sequence[StoryLine], remarks: Sequence[str]
    ) -> Future[StoryParts]:
        """Collects a job's story. task_managers: those to ask; own: the leader's lines. Fails with Stopped."""
        number, names = next(self._numbers), sorted(task_managers)
        lines = max(LEAST_LINES, MOST_LINES // max(1, len(names)))
        asked = _Asked(Future(), [own], list(remarks), set(), lines)
        self._asked[number] = asked
        for name in names:
            if self._send(name, StoryRequest(number, job_key, run_id, lines)):
                asked.missing.add(name)
        if asked.missing:
            asked.timer = self._actor.at(monotonic_ms() + WAIT_MS, lambda: self._finish(number))
        else:
            self._finish(number)
        return asked.answer

    def answer(self, task_manager_id: str, answer: StoryAnswer) -> None:
        """Handles a task manager's answer. Late and unexpected ones are dropped."""
        asked = self._asked.get(answer.request)
        if asked is None or task_manager_id not in asked.missing:
            return
        asked.missing.discard(task_manager_id)
        asked.parts.append(answer.lines[-asked.lines :])
        if answer.cut:
            asked.remarks.append(f"Older lines of task manager {task_manager_id} are not shown.")
        if not asked.missing:
            self._finish(answer.request)

    def close(self) -> None:
        """The term is over."""
        for asked in self._asked.values():
            if asked.timer is not None:
                asked.timer.cancel()
            asked.answer.set_exception(Stopped("this coordinator no longer leads; ask the new leader"))
        self._asked.clear()

    def _finish(self, number: int) -> None:
        asked = self._asked.pop(number, None)
        if asked is None:
            return
        if asked.timer is not None:
            asked.timer.cancel()
        for name in sorted(asked.missing):
            asked.remarks.append(f"Task manager {name} did not answer within {WAIT_MS} ms: its lines are missing.")
        asked.answer.set_result(StoryParts(tuple(asked.parts), tuple(asked.remarks)))
