"""The audit log: for each call that changes a job a line before it does so, and one with its outcome.

The first one is there for a process that dies in between. A call that was refused before has only the second.
"""

from __future__ import annotations

import logging

from lockgate_common.logs import AUDIT
from lockgate_common.roles import Principal

from lockgate_coordinator.runtime.access import changes

audit = logging.getLogger(AUDIT)


class AuditedCall:
    """method: its path; peer: as gRPC names it. Text from the caller is escaped, so that a line stays one line."""

    def __init__(self, method: str, caller: Principal, peer: str) -> None:
        self._changes = changes(method)
        self._method, self._caller, self._peer = method, caller.name, peer
        self._job_key = ""
        self._trusted = ""

    def begin(self, job_key: str, trusted: str = "") -> None:
        """Logs what is asked for, before anything is done. trusted: a snapshot that needs no seal of the cluster."""
        self._job_key, self._trusted = job_key, trusted
        self._line("asked")

    def end(self, outcome: str) -> None:
        """Logs how the call has ended: `OK`, or the name of another status code."""
        self._line(outcome)

    def _line(self, text: str) -> None:
        if not self._changes:
            return
        name, job = self._method.rpartition("/")[2], ascii(self._job_key)
        if self._trusted:
            job += f" trust-snapshot={self._trusted!a}"
        audit.info("%s job=%s by=%s from=%s: %s", name, job, ascii(self._caller), self._peer, text)
