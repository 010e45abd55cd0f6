"""What a subtask keeps in Spark between micro-batches and between attempts: a session and its plans.

Making a plan takes 100 ms and more, so a redeployed subtask takes over the workbench of the attempt before it, if
that one has let go of it.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from taskmanager.spark.leaf import Leaf, LeafSpec, Session
from taskmanager.spark.plan import Build, Plan

LOG = logging.getLogger(__name__)
MakeLeaf = Callable[[Session, LeafSpec], Leaf]
Key = tuple[Any, ...]


class Workbench:
    """A Spark session of its own (so that views named `input` do not meet) and the plans made in it."""

    def __init__(self, session: Session, make_leaf: MakeLeaf) -> None:
        self.session = session
        self._make_leaf = make_leaf
        self._plans: dict[str, tuple[LeafSpec, Plan]] = {}

    def plan(self, name: str, spec: LeafSpec, build: Build, where: str) -> Plan:
        """The plan called `name` over a leaf like `spec`; made when there is none. Raises UserError."""
        known = self._plans.get(name)
        if known is not None and known[0] == spec:
            return known[1]
        leaf = self._make_leaf(self.session, spec)
        try:
            plan = Plan(leaf, build, where)
        except BaseException:
            leaf.close()
            raise
        if known is not None:
            known[1].close()
        self._plans[name] = (spec, plan)
        return plan

    def close(self) -> None:
        """Removes the plans' slots."""
        for _, plan in self._plans.values():
            plan.close()
        self._plans.clear()


class WorkbenchCache:
    """Check-out and check-in of workbenches, one for each subtask of a job run."""

    def __init__(self, make: Callable[[], Workbench], limit: int) -> None:
        """limit: workbenches kept that nobody uses."""
        self._make = make
        self._limit = limit
        self._idle: OrderedDict[Key, Workbench] = OrderedDict()
        self._in_use: dict[Key, int] = {}
        self._changed = threading.Condition()
        self._closed = False

    def check_out(self, key: Key, wait_s: float) -> Workbench:
        """The workbench of `key`. One that another attempt still uses is waited for; then a new one is made."""
        with self._changed:
            self._changed.wait_for(lambda: key in self._idle or not self._in_use.get(key), wait_s)
            self._in_use[key] = self._in_use.get(key, 0) + 1
            found = self._idle.pop(key, None)
        if found is not None:
            return found
        try:
            return self._make()
        except BaseException:
            self._let_go(key)
            raise

    def check_in(self, key: Key, bench: Workbench) -> None:
        """Gives a workbench back; the least recently used ones beyond the limit are closed."""
        surplus = []
        with self._changed:
            replaced = self._idle.pop(key, None)
            if replaced is not None:
                surplus.append(replaced)
            self._idle[key] = bench
            while len(self._idle) > (0 if self._closed else self._limit):
                surplus.append(self._idle.popitem(last=False)[1])
        self._let_go(key)
        for one in surplus:
            one.close()

    def close(self) -> None:
        """Closes the idle ones; the others when they are given back."""
        with self._changed:
            self._closed = True
            idle = list(self._idle.values())
            self._idle.clear()
        for bench in idle:
            bench.close()

    def _let_go(self, key: Key) -> None:
        with self._changed:
            self._in_use[key] -= 1
            if not self._in_use[key]:
                del self._in_use[key]
            self._changed.notify_all()
