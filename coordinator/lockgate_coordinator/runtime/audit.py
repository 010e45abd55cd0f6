"""The audit log: one line for each call that changes a job, with its caller and outcome."""

from __future__ import annotations

import logging

from lockgate_common.roles import Principal

from lockgate_coordinator.runtime.access import changes

audit = logging.getLogger("lockgate.audit")


class AuditedCall:
    """method: its path; peer: as gRPC names it. Text from the caller is escaped, so that a line stays one line."""

    def __init__(self, method: str, caller: Principal, peer: str) -> None:
        self._method, self._caller, self._peer = method, caller.name, peer
        self.job_key = ""
        self.trusted = ""  # the snapshot that a job may start from without the cluster's seal

    def end(self, outcome: str) -> None:
        """Logs the call if it changes a job. outcome: `OK`, or the name of another status code."""
        if changes(self._method):
            name, job = self._method.rpartition("/")[2], ascii(self.job_key)
            if self.trusted:
                job += f" trust-snapshot={self.trusted!a}"
            audit.info("%s job=%s by=%s from=%s: %s", name, job, ascii(self._caller), self._peer, outcome)
