"""Which way a process can reach another one: paths are cut without a sound, each direction for itself."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.world import Call, Process, World

LOOK_MS = 20.0
"""How often what is held up looks whether the path is open."""
ZOOKEEPER = "zookeeper"


class Paths:
    """Of one world. Names are those of hosts: a process that is started again has those of the one before."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._cut: Counter[tuple[str, str]] = Counter()

    def cut(self, source: str, target: str, duration_ms: float) -> None:
        """Nothing from `source` reaches `target` for a while. Cuts of one path may overlap."""
        self._world.note("network", f"{source} does not reach {target} for {duration_ms:.0f} ms")
        self._cut[source, target] += 1
        self._world.schedule(duration_ms, lambda: self._heal(source, target))

    def _heal(self, source: str, target: str) -> None:
        self._cut[source, target] -= 1
        self._cut += Counter()  # without the zeros

    def is_cut(self, source: str, target: str) -> bool:
        """Whether nothing gets there."""
        return bool(self._cut) and (source, target) in self._cut

    def is_apart(self, text: str, other: str) -> bool:
        """Whether no call between the two is answered."""
        return self.is_cut(text, other) or self.is_cut(other, text)

    def when_open(self, source: str, target: str, call: Callable[[], None]) -> None:
        """Calls as soon as `source` reaches `target`, perhaps now."""
        if self.is_cut(source, target):
            self._world.schedule(LOOK_MS, lambda: self.when_open(source, target, call))
        else:
            call()


class Direction:
    """One direction of a connection: in order, delayed, and held up while its path is cut, as TCP does."""

    def __init__(self, fifo: Callable[[Call, Process], None], world: World, ends: tuple[str, str], to: Process) -> None:
        """fifo: puts a call behind those before it. ends: names of the hosts, from and to. to: where the calls run."""
        self._fifo, self._world, self._ends, self._to = fifo, world, ends, to
        self._held: deque[tuple[Call, bool]] = deque()
        self._is_lost = False

    def put(self, call: Call, *, is_end: bool = False) -> None:
        """is_end: the news that the connection is over, which comes in any case."""
        self._fifo(lambda: self._arrive(call, is_end), self._to)

    def lose(self) -> None:
        """Nothing that is on its way arrives."""
        self._is_lost = True

    def _arrive(self, call: Call, is_end: bool) -> None:
        if self._held or self._world.paths.is_cut(*self._ends):
            self._held.append((call, is_end))
            if len(self._held) == 1:
                self._world.schedule(LOOK_MS, self._look)
        elif is_end or not self._is_lost:
            call()

    def _look(self) -> None:
        if self._world.paths.is_cut(*self._ends):
            self._world.schedule(LOOK_MS, self._look)
            return
        held, self._held = self._held, deque()
        for call, is_end in held:
            if is_end or not self._is_lost:
                self._to.later(0, call)
