"""Waiting for ZooKeeper while a process starts."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

log = logging.getLogger(__name__)

_TELL_EVERY_S = 3.0
_LOOK_MS = 100


class NoZooKeeper(Exception):
    """No server answered in time, or the cluster in it is not for this process. The message says what to do."""


def wait_for_zookeeper(
    answered: Callable[[int], bool],
    hosts: str,
    limit_ms: int,
    is_stopping: Callable[[], bool],
    refusal: Callable[[], str] = lambda: "",
    trouble: Callable[[], str] = lambda: "",
) -> bool:
    """True once ZooKeeper has answered, False when the process is asked to stop first. Raises NoZooKeeper.

    answered: waits for an answer, for at most the given milliseconds. hosts: where it is asked, for people.
    refusal: why waiting does not help, "" as long as it may. trouble: why nothing answers, "" if unknown; may be slow.
    """
    began, limit_s, logged_s = time.monotonic(), limit_ms / 1000, 0.0
    while not answered(_LOOK_MS):
        waited_s = time.monotonic() - began
        if is_stopping():
            return False
        if why := refusal():
            raise NoZooKeeper(why)
        if waited_s >= limit_s:
            what_to_do = "start it (`lockgate zookeeper`) or check the address"
            raise NoZooKeeper(trouble() or f"no ZooKeeper answered at {hosts} for {limit_s:.0f} s; {what_to_do}")
        if waited_s - logged_s >= _TELL_EVERY_S:
            logged_s = waited_s
            why = trouble()
            log.warning("waiting for ZooKeeper at %s, %.0f of %.0f s%s", hosts, waited_s, limit_s, why and f": {why}")
    return True
