"""One grant for the workers: fences their writes, and ends with the term. Used on workers only, which may block."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from lockgate_common.recurring_log import RecurringLog
from lockgate_ha.errors import Fenced, OutcomeUnknown, StoreUnavailable
from lockgate_ha.grant import LeadershipGrant

from lockgate_coordinator.runtime.errors import Stopped
from lockgate_coordinator.runtime.meters import Meters

log = logging.getLogger(__name__)

SETTLE_MS = 2_000  # for one read-back of an unknown outcome; repeated until it is known or the term is over
_RETRY_S = 0.2

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class TermFence:
    """The grant for writes, and whether the term is over.

    step_down: called with the reason when ZooKeeper reports a later grant. trouble: the log of what the term tries
    again. meters: of the process.
    """

    grant: LeadershipGrant
    over: threading.Event
    step_down: Callable[[str], None]
    trouble: RecurringLog = field(default_factory=RecurringLog)
    meters: Meters = field(default_factory=Meters)

    def write(self, write: Callable[[], None]) -> None:
        """Writes and waits for a known outcome. Raises Conflict, StoreUnavailable, RecordTooLarge, Stopped."""
        unknown = False
        while not self.over.is_set():
            try:
                with self.meters.writes.timed():
                    write()
                return
            except Fenced as error:
                self.meters.fenced_writes.add()
                log.warning("ZooKeeper refuses a write: %s", error)
                self.step_down(str(error))
                raise Stopped(f"this coordinator no longer leads: {error}") from error
            except OutcomeUnknown as error:
                unknown = True
                self.trouble.warning(log, "write", "a write has an unknown outcome and is read back: %s", error)
            except StoreUnavailable:
                if not unknown:
                    raise
            self.over.wait(_RETRY_S)
        raise Stopped("this coordinator no longer leads")

    def read(self, read: Callable[[], _T]) -> _T:
        """Reads, with retries until ZooKeeper answers. Raises Stopped."""
        while not self.over.is_set():
            try:
                with self.meters.reads.timed():
                    return read()
            except StoreUnavailable as error:
                self.trouble.warning(log, "read", "ZooKeeper does not answer, trying again: %s", error)
            self.over.wait(_RETRY_S)
        raise Stopped("this coordinator no longer leads")
