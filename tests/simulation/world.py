"""The simulated world: one clock, one heap of events, processes that crash, freeze and go on. No threads, no sleep."""

from __future__ import annotations

import heapq
import itertools
import random
import zlib
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from tests.simulation.paths import Paths

if TYPE_CHECKING:
    from tests.simulation.causes import Causes

UNIX_OFFSET_MS = 1_700_000_000_000
MAX_EVENTS = 1_000_000
MAX_A_SECOND = 50_000
"""Events of a simulated second: five times the most that fresh schedules had without a hot loop."""
Call = Callable[[], None]


class Crash(BaseException):
    """Unwinds whatever a process is doing at the moment of its death. Not an Exception, so no handler catches it."""


class Violation(AssertionError):
    """An invariant does not hold, or the run did not get anywhere."""


class Process:
    """Something that can die or freeze. Calls scheduled for it are dropped when it is dead, kept while it is frozen."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.is_alive = True
        self.is_frozen = False
        self.frozen_at = self.thawed_at = 0.0  # the last time
        self.backlog: deque[Call] = deque()

    def later(self, delay_ms: float, call: Call) -> None:
        """Runs `call` in this process after a delay."""
        self.world.schedule(delay_ms, call, self)

    def crash(self) -> None:
        """SIGKILL. Subclasses add what the others notice."""
        self.is_alive = False
        self.backlog.clear()

    def freeze(self) -> None:
        """SIGSTOP."""
        if not self.is_frozen:
            self.frozen_at = self.world.now
        self.is_frozen = True

    def thaw(self) -> None:
        """SIGCONT: what has piled up is handled at once, in order."""
        self.is_frozen, self.thawed_at = False, self.world.now
        waiting, self.backlog = self.backlog, deque()
        for call in waiting:
            self.later(0, call)


class World:
    """Clock, randomness and event heap of one run. `seed` decides everything."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.paths = Paths(self)
        self.now = 0.0
        self.events = 0
        self._second, self._before = 0, 0  # of the clock, and how many events there were before it
        self.current: Process | None = None
        self.most_events, self.most_a_second = MAX_EVENTS, MAX_A_SECOND
        self.is_over = False
        self.is_hindered = False  # a process has died, or stood still
        self.defective = ""  # key of a job over which the coordinator makes a mistake, again and again
        self.violation = ""
        self.story: deque[tuple[float, str, str]] = deque(maxlen=20_000)
        self.digest = 0
        self.causes: Causes | None = None  # while the processes are installed
        self._heap: list[tuple[float, int, Process | None, Call]] = []
        self._order = itertools.count()

    @property
    def now_ms(self) -> int:
        """What every machine sees as the monotonic clock."""
        return 1_000_000 + int(self.now)

    def unix_us(self) -> int:
        """Wall clock, for display fields."""
        return (UNIX_OFFSET_MS + int(self.now)) * 1_000

    def delay(self, least: float, most: float) -> float:
        """A random delay in milliseconds."""
        return self.random.uniform(least, most)

    def chance(self, probability: float) -> bool:
        """True with that probability."""
        return probability > 0 and self.random.random() < probability

    def note(self, who: str, what: str) -> None:
        """For the story of a failed run, and for comparing two runs."""
        self.story.append((self.now, who, what))
        self.digest = zlib.crc32(f"{self.now:.3f} {who} {what}".encode(), self.digest)

    def schedule(self, delay_ms: float, call: Call, process: Process | None = None) -> None:
        """Runs `call` after a delay, in `process` when one is named."""
        heapq.heappush(self._heap, (self.now + max(0.0, delay_ms), next(self._order), process, call))

    def run(self, until_ms: float) -> None:
        """Runs events until the time is reached, the run is over or nothing is left to happen."""
        while not self.is_over and self._heap and self._heap[0][0] <= until_ms:
            self._step()
            self._count()
        if not self.is_over:
            self.now = max(self.now, until_ms)

    def wait(self, duration_ms: float) -> None:
        """Lets everybody else go on, other threads of the same process too. Raises Crash when it died meanwhile."""
        waiting = self.current
        self.run(self.now + duration_ms)
        self.current = waiting
        if self.is_over or (waiting is not None and not waiting.is_alive):
            raise Crash

    def stall(self, process: Process, duration_ms: float) -> None:
        """Freezes `process` in the middle of what it is doing while everybody else goes on. Raises Crash likewise."""
        self.is_hindered = True
        was_frozen = process.is_frozen
        process.freeze()
        self.wait(duration_ms)
        if not was_frozen:
            process.thaw()

    def violate(self, text: str) -> NoReturn:
        """Ends the run: an invariant does not hold. The first violation counts, whoever swallows the exception."""
        self.violation = self.violation or text
        self.note("ORACLE", text)
        self.is_over = True
        raise Violation(text)

    def _count(self) -> None:
        second = int(self.now // 1000)
        if second != self._second:
            self._second, self._before = second, self.events
        if self.events > self.most_events or self.events - self._before > self.most_a_second:
            self.violate(f"{self.events} events, {self.events - self._before} of them in this second: a hot loop?")

    def _step(self) -> None:
        self.now, _, process, call = heapq.heappop(self._heap)
        self.events += 1
        if process is None:
            self.current = None
            call()
            return
        if not process.is_alive:
            return
        if process.is_frozen:
            process.backlog.append(call)
            return
        self.current = process
        try:
            call()
        except Crash:
            if process.is_alive and not self.is_over:
                process.crash()
        finally:
            self.current = None

    def tell(self, lines: int = 200) -> str:
        """The end of the story."""
        return "\n".join(f"{at:9.1f} {who:14} {what}" for at, who, what in list(self.story)[-lines:])


class Fifo:
    """Deliveries in order, each after a random delay: one direction of a connection, or a queue of work."""

    def __init__(self, world: World, least: float, most: float) -> None:
        self._world, self._least, self._most = world, least, most
        self._last = 0.0

    def put(self, call: Call, process: Process | None) -> None:
        """Behind everything that was put in before."""
        at = max(self._last, self._world.now + self._world.delay(self._least, self._most))
        self._last = at
        self._world.schedule(at - self._world.now, call, process)


def short(message: Any) -> str:
    """A message for the story: its name and the numbers in it that matter."""
    name = type(message).__name__
    parts = [name]
    subtask = getattr(message, "subtask", None)
    attempt = getattr(message, "attempt", None) or getattr(subtask, "attempt", None)
    if attempt is not None:
        parts.append(f"{attempt.job_key}@{attempt.attempt}")
    if subtask is not None:
        parts.append(f"{subtask.vertex_id}[{subtask.subtask}]")
    for field in ("checkpoint_id", "restored_checkpoint_id", "phase", "reason", "error", "complete"):
        value = getattr(message, field, None)
        if value:
            parts.append(f"{field}={getattr(value, 'name', value)}")
    return " ".join(parts)
