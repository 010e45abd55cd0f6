"""The audit log: one line for each call that changes a job, with who made it and how it ended."""

from __future__ import annotations

import logging

from lockgate_common.roles import Principal

from lockgate_coordinator.runtime.access import changes

audit = logging.getLogger("lockgate.audit")


class AuditedCall:
    """method: its path; peer: as gRPC names it. What a caller chose is shown escaped: a line stays one."""

    def __init__(self, method: str, caller: Principal, peer: str) -> None:
        self._method, self._caller, self._peer = method, caller.name, peer
        self.job_key = ""
        self.trusted = ""  # the snapshot that a job may start from without the cluster's seal

    def end(self, outcome: str) -> None:
        """outcome: `OK`, or the name of another status code. Nothing is written of a call that changes nothing."""
        if changes(self._method):
            name, job = self._method.rpartition("/")[2], ascii(self.job_key)
            if self.trusted:
                job += f" trust-snapshot={self.trusted!a}"
            shown = (job, ascii(self._caller), self._peer)
            audit.info("%s job=%s by=%s from=%s: %s", name, *shown, outcome)
