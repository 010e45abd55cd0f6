"""Task managers of the last attempts that have not registered with a new leader: looks whether they can still come.

A process that has ended refuses connections at its exchange port. Then no job needs to wait for it. Any other answer
proves nothing: it may be on its way, or cut off. Actor thread only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from functools import partial

from lockgate_common.addresses import ProbeAnswer
from lockgate_common.clock import monotonic_ms
from lockgate_common.ports import probe_tcp

from lockgate_coordinator.runtime.actor import Actor
from lockgate_coordinator.runtime.workers import KeyedWorkers

log = logging.getLogger(__name__)

_AGAIN_MS = 50
"""After the first probe, and twice as long after each further one: a process that dies with the leader closes its port
within milliseconds. Others may be away for as long as new ones come, and a thousand of them would keep a core busy.
"""
_LONGEST_MS = 1_000


class AbsentTaskManagers:
    """Those of one term."""

    def __init__(
        self, actor: Actor, probes: KeyedWorkers, awaited: Callable[[str], bool], ended: Callable[[str], None]
    ) -> None:
        """awaited: whether a job still waits for a task manager; ended: called once for each that cannot come any
        more.
        """
        self._actor = actor
        self._probes = probes
        self._awaited = awaited
        self._ended = ended
        self._probed_now: set[str] = set()

    def look_for(self, addresses: Iterable[tuple[str, str]]) -> None:
        """Probes them for as long as they are awaited. addresses: (task manager id, exchange address)."""
        for name, address in addresses:
            if name not in self._probed_now:
                self._probed_now.add(name)
                self._probe(name, address, _AGAIN_MS)

    def _probe(self, name: str, address: str, again_ms: int) -> None:
        """Repeatedly. again_ms: until the next probe."""
        if not self._awaited(name):
            self._probed_now.remove(name)
            return
        probe = self._probes.submit(name, lambda: probe_tcp(address))
        probe.add_done_callback(lambda found: self._actor.tell(partial(self._probed, name, address, again_ms, found)))

    def _probed(self, name: str, address: str, again_ms: int, found: Future[ProbeAnswer]) -> None:
        if found.exception() is None and found.result() is ProbeAnswer.REFUSED:
            self._probed_now.remove(name)
            if self._awaited(name):
                log.info("task manager %s of an earlier leader has ended: nothing listens at %s", name, address)
                self._ended(name)
        else:
            following_ms = min(2 * again_ms, _LONGEST_MS)
            self._actor.at(monotonic_ms() + again_ms, partial(self._probe, name, address, following_ms))
