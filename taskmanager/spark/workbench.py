"""What a subtask keeps in Spark between micro-batches and between attempts: a session and its plans.

Making a plan takes 100 ms and more, so a redeployed subtask takes over a workbench that the attempt before it, or a
rehearsal, has made for its vertex and let go of.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from taskmanager.spark.leaf import Leaf, LeafSpec, Session
from taskmanager.spark.plan import Build, Highest, Plan
from taskmanager.spark.session import release

LOG = logging.getLogger(__name__)
MakeLeaf = Callable[[Session, LeafSpec], Leaf]
Key = tuple[Any, ...]


class Workbench:
    """A Spark session of its own (so that views named `input` do not meet) and the plans made in it."""

    def __init__(self, session: Session, make_leaf: MakeLeaf) -> None:
        self.session = session
        self.has_served = False  # an attempt, and not only rehearsals; the cache's note
        self._make_leaf = make_leaf
        self._plans: dict[str, tuple[LeafSpec, Plan]] = {}

    def plan(self, name: str, spec: LeafSpec, build: Build, where: str, highest: Highest | None = None) -> Plan:
        """The plan called `name` over a leaf like `spec`; made when there is none. The rest as for Plan."""
        known = self._plans.get(name)
        if known is not None and known[0] == spec:
            return known[1]
        leaf = self._make_leaf(self.session, spec)
        try:
            plan = Plan(leaf, build, where, highest)
        except BaseException:
            leaf.close()
            raise
        if known is not None:
            known[1].close()
        self._plans[name] = (spec, plan)
        return plan

    def close(self) -> None:
        """Removes the plans' slots and gives the session back."""
        for _, plan in self._plans.values():
            plan.close()
        self._plans.clear()
        release(self.session)


class WorkbenchCache:
    """Check-out and check-in of workbenches. A vertex's serve any of its subtasks: their plans are the same.

    What nobody uses is kept by runs and not by number: of some of a run's vertices it would be of little use, since an
    attempt waits for the slowest. A run is all of the key but its last part, the vertex.
    """

    def __init__(self, make: Callable[[], Workbench], runs: int) -> None:
        """runs: those used last whose idle workbenches are kept; as many again that only rehearsals have used."""
        self._make = make
        self._runs = runs
        self._idle: deque[tuple[Key, Workbench]] = deque()  # least recently used first
        self._in_use: dict[tuple[Key, int], int] = {}
        self._changed = threading.Condition()
        self._closed = False

    def check_out(self, key: Key, subtask: int, wait_s: float, is_rehearsal: bool = False) -> Workbench:
        """A workbench of `key`, the vertex of a run. What another attempt of `subtask` still uses is waited for.

        When there is none then, a new one is made.
        """
        owner = (key, subtask)
        with self._changed:
            self._changed.wait_for(lambda: self._find(key) is not None or not self._in_use.get(owner), wait_s)
            self._in_use[owner] = self._in_use.get(owner, 0) + 1
            found = self._find(key)
            if found is not None:
                self._idle.remove((key, found))
                found.has_served = found.has_served or not is_rehearsal
                return found
        try:
            made = self._make()
        except BaseException:
            self._let_go(owner)
            raise
        made.has_served = not is_rehearsal
        return made

    def check_in(self, key: Key, subtask: int, bench: Workbench) -> None:
        """Gives a workbench back; those of the least recently used runs beyond the limit are closed."""
        with self._changed:
            self._idle.append((key, bench))
            surplus = self._evict(0 if self._closed else self._runs)
        self._let_go((key, subtask))
        for one in surplus:
            one.close()

    def close(self) -> None:
        """Closes the idle ones; the others when they are given back."""
        with self._changed:
            self._closed = True
            idle = [bench for _, bench in self._idle]
            self._idle.clear()
        for bench in idle:
            bench.close()

    def _evict(self, limit: int) -> list[Workbench]:
        """Removes the surplus. Rehearsals only compete with each other, however many jobs they perform."""
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
        """The one used last."""
        return next((bench for known, bench in reversed(self._idle) if known == key), None)

    def _let_go(self, owner: tuple[Key, int]) -> None:
        with self._changed:
            self._in_use[owner] -= 1
            if not self._in_use[owner]:
                del self._in_use[owner]
            self._changed.notify_all()
