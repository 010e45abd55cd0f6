"""The cluster that examples run on, one after another, in a folder that is kept when something went wrong."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from lockgate_devtools.cluster import LocalCluster
from lockgate_devtools.cluster.work_folder import WorkFolder
from lockgate_devtools.drill.arena import wait_for_cluster
from lockgate_devtools.drill.model import Target
from lockgate_devtools.drill.processes import ProcessArena
from lockgate_proto.messages import ClusterStatus

from examples.frame.example import Example
from lockgate.client import Client
from lockgate.errors import UserError

Say = Callable[[str], None]

_BATCH_BYTES = 64 * 1024
_SETTLED_LIMIT_S = 120.0


class Stage:
    """`with Stage(say) as stage`: what is left of it ends with the block.

    Examples that want the same kind of cluster share one, and at most one runs at a time.
    """

    def __init__(self, say: Say) -> None:
        self._say = say
        self._held = contextlib.ExitStack()
        self._kind: dict[str, Any] | None = None  # of the cluster; None: nothing is held
        self._work: WorkFolder | None = None
        self._arena: ProcessArena | None = None
        self._names: list[str] = []

    def __enter__(self) -> Stage:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._clear()
        self._held.__exit__(kind, error, trace)

    def enter(self, name: str, example: Example) -> tuple[str, Path]:
        """A key and a fresh folder for a run of an example. Ends a cluster of another kind."""
        kind = {"taskmanager": {"max_batch_bytes": _BATCH_BYTES, "heartbeat_ms": 100}, **example.cluster}
        if kind != self._kind:
            self._end()
            self._kind = kind
        if self._work is None:
            self._work = self._held.enter_context(WorkFolder("lockgate-examples-", self._say))
        self._names.append(name)
        times = self._names.count(name)
        key = name if times == 1 else f"{name}-{times}"
        return key, self._work.path / key

    def arena(self) -> ProcessArena:
        """The cluster: whole, with every slot free. Started when it is asked for first. Raises UserError."""
        assert self._kind is not None
        assert self._work is not None
        if self._arena is None:
            self._say("starting a cluster ...")
            cluster = self._held.enter_context(LocalCluster(self._work.path / "cluster", **self._kind))
            client = Client(cluster.coordinators, cluster.zookeeper, credentials=cluster.credentials())
            self._arena = ProcessArena(self._held.enter_context(client), cluster, self._work.path)
            self._arena.survey(Target.LEADER)
        elif not self._is_settled(self._arena):
            raise UserError(f"the cluster is not whole and idle {_SETTLED_LIMIT_S:g} s after the example before")
        return self._arena

    def spoil(self) -> None:
        """Something went wrong here: the folder is kept, and later examples get another cluster."""
        if self._work is not None:
            self._work.keep()
        self._end()

    @staticmethod
    def _is_settled(arena: ProcessArena) -> bool:
        def is_idle(status: ClusterStatus) -> bool:
            return all(task_manager.free_slots == task_manager.slots for task_manager in status.task_managers)

        return arena.wait_complete(_SETTLED_LIMIT_S) and wait_for_cluster(arena.client, is_idle, _SETTLED_LIMIT_S)

    def _end(self) -> None:
        held, self._held = self._held, contextlib.ExitStack()
        self._clear()
        held.close()

    def _clear(self) -> None:
        self._kind = self._work = self._arena = None
        self._names.clear()
