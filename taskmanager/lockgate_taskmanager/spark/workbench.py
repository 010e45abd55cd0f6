"""The Spark session and plans that a subtask keeps between micro-batches and between attempts.

Making a plan takes 100 ms and more, so a redeployed subtask takes over a workbench that an earlier attempt, or a
warm-up, made for its vertex and released.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from lockgate_taskmanager.spark.leaf import Leaf, LeafSpec, Session
from lockgate_taskmanager.spark.plan import Build, Plan, TimesOf
from lockgate_taskmanager.spark.session import release

LOG = logging.getLogger(__name__)
MakeLeaf = Callable[[Session, LeafSpec], Leaf]
Key = tuple[Any, ...]


class Workbench:
    """A separate Spark session (so that views named `input` do not collide) and the plans made in it."""

    def __init__(self, session: Session, make_leaf: MakeLeaf) -> None:
        self.session = session
        self.has_served = False  # used by an attempt, and not only by warm-ups; set by the cache
        self._make_leaf = make_leaf
        self._plans: dict[str, tuple[tuple[LeafSpec, object], Plan]] = {}

    def plan(
        self,
        name: str,
        spec: LeafSpec,
        build: Build,
        where: str,
        times: TimesOf | None = None,
        sql: str = "",
        *,
        about: object = None,
    ) -> Plan:
        """The plan called `name` over a leaf like `spec`; made when there is none. Other arguments as for Plan.

        about: what else it has been built for; it is made again when that is another.
        """
        known = self._plans.get(name)
        if known is not None and known[0] == (spec, about):
            return known[1]
        leaf = self._make_leaf(self.session, spec)
        try:
            plan = Plan(leaf, build, where, times, sql)
        except BaseException:
            leaf.close()
            raise
        if known is not None:
            known[1].close()
        self._plans[name] = ((spec, about), plan)
        return plan

    def close(self) -> None:
        """Removes the plans' slots and releases the session."""
        for _, plan in self._plans.values():
            plan.close()
        self._plans.clear()
        release(self.session)


class WorkbenchCache:
    """Check-out and check-in of workbenches. A vertex's workbenches serve any of its subtasks: their plans are the
    same.

    Idle workbenches are kept by run and not by number: keeping some vertices of a run helps little, since an attempt
    waits for the slowest. A run is identified by the key without its last part, the vertex.
    """

    def __init__(self, make: Callable[[], Workbench], runs: int) -> None:
        """runs: the most recently used runs whose idle workbenches are kept; as many again that only warm-ups have
        used.
        """
        self._make = make
        self._runs = runs
        self._idle: deque[tuple[Key, Workbench]] = deque()  # least recently used first
        self._in_use: dict[tuple[Key, int], int] = {}
        self._changed = threading.Condition()
        self._closed = False

    def check_out(self, key: Key, subtask: int, wait_s: float, is_warmup: bool = False) -> Workbench:
        """A workbench of `key`, the vertex of a run. Waits for one that another attempt of `subtask` still uses.

        When there is none after that, a new one is made.
        """
        owner = (key, subtask)
        with self._changed:
            self._changed.wait_for(lambda: self._find(key) is not None or not self._in_use.get(owner), wait_s)
            self._in_use[owner] = self._in_use.get(owner, 0) + 1
            found = self._find(key)
            if found is not None:
                self._idle.remove((key, found))
                found.has_served = found.has_served or not is_warmup
                return found
        try:
            made = self._make()
        except BaseException:
            self._let_go(owner)
            raise
        made.has_served = not is_warmup
        return made

    def check_in(self, key: Key, subtask: int, bench: Workbench) -> None:
        """Returns a workbench; those of the least recently used runs beyond the limit are closed."""
        with self._changed:
            self._idle.append((key, bench))
            surplus = self._evict(0 if self._closed else self._runs)
        self._let_go((key, subtask))
        for excess in surplus:
            excess.close()

    def close(self) -> None:
        """Closes idle workbenches; the others when they are returned."""
        with self._changed:
            self._closed = True
            idle = [bench for _, bench in self._idle]
            self._idle.clear()
        for bench in idle:
            bench.close()

    def _evict(self, limit: int) -> list[Workbench]:
        """Closes the surplus. Warm-ups only compete with each other, however many jobs they run."""
        newest: dict[bool, set[Key]] = {True: set(), False: set()}
        kept: deque[tuple[Key, Workbench]] = deque()
        surplus = []
        for key, bench in reversed(self._idle):
            run, runs = key[:-1], newest[bench.has_served]
            if run in runs or len(runs) < limit:
                runs.add(run)
                kept.appendleft((key, bench))
            else:
                surplus.append(bench)
        self._idle = kept
        return surplus

    def _find(self, key: Key) -> Workbench | None:
        """The most recently used one."""
        return next((bench for known, bench in reversed(self._idle) if known == key), None)

    def _let_go(self, owner: tuple[Key, int]) -> None:
        with self._changed:
            self._in_use[owner] -= 1
            if not self._in_use[owner]:
                del self._in_use[owner]
            self._changed.notify_all()
