"""Guards every rpc: authenticates callers, checks requests, and turns exceptions into gRPC statuses."""

from __future__ import annotations

import logging
from typing import Any

from grpc import StatusCode
from lockgate_common.masking import masked
from lockgate_common.proof import Peer
from lockgate_common.roles import OWNER
from lockgate_common.security import Credentials, Metadata
from lockgate_common.serving.refusals import Refused, unknown_caller
from lockgate_common.token import authorization_of
from lockgate_ha.errors import CorruptRecord, NewerRecord, RecordTooLarge, StoreError
from lockgate_proto.codec import MalformedMessage

from lockgate_coordinator.runtime.access import is_free
from lockgate_coordinator.runtime.callers import Admission, Callers
from lockgate_coordinator.runtime.errors import Busy, NotLeading, Stopped, StorageError
from lockgate_coordinator.runtime.job_keys import check_named

log = logging.getLogger(__name__)

LEADER_METADATA = "lockgate-leader"
INSTANCE_METADATA = "lockgate-instance"
_MAX_DETAILS = 6_000  # on the wire: each byte that is not printable ASCII takes three
WRITING = ("Submit", "Cancel", "TriggerSavepoint", "Stop", "DisposeSavepoint", "Rescale", "Release")
"""The methods that change jobs. A job runs code as the cluster's user (even in SQL), and has access to its files."""


class Guard:
    """Authenticates callers before the request is read."""

    def __init__(self, credentials: Credentials, me: Peer, callers: Callers, *, everything: bool) -> None:
        """everything: the port can be reached from other machines, so listing the methods needs credentials, too."""
        self._credentials = credentials
        self._me = me
        self._callers = callers
        self._everything = everything

    def at_once(self, method: str, metadata: Metadata) -> Admission | None:
        """The admission of a caller that knows the secret, or needs no credentials; else None. Does not block."""
        answer = self._credentials.answer(self._me, method, metadata)
        if answer is not None:
            return Admission(OWNER, answer)
        return Admission() if self.is_free(method) and not authorization_of(metadata) else None

    def admit(self, method: str, metadata: Metadata) -> Admission:
        """The admission of any caller. Blocks. Raises Refused for an unknown caller of a guarded method."""
        known = self.at_once(method, metadata) or self._callers.admission(self._me, method, metadata)
        if known is None and not self.is_free(method):
            raise unknown_caller()
        return known or Admission()

    def is_free(self, method: str) -> bool:
        """True for methods without credentials: the leader, health and, on this machine, the list of methods."""
        return is_free(method, everything=self._everything)


def check_request(request: Any) -> None:
    """Checks the fields that all requests have in common. Raises Refused."""
    key = getattr(request, "job_key", "")
    check_named(key)


def _short(details: str) -> str:
    """The details, truncated: a status is sent in headers, and peers reject more than 8 KiB of these."""
    details, room = masked(details), _MAX_DETAILS
    for at, character in enumerate(details):
        room -= 1 if " " <= character <= "~" else 3 * len(character.encode(errors="replace"))
        if room < 0:
            return f"{details[:at]} ... (there is more)"
    return details


def status(error: Exception, method: str) -> tuple[StatusCode, str, tuple[tuple[str, str], ...]]:
    """Code, details and trailing metadata for an exception. Internal errors are logged."""
    trailing: tuple[tuple[str, str], ...] = ()
    match error:
        case NotLeading(leader=leader):
            if leader:
                trailing = ((LEADER_METADATA, leader),)
            code = StatusCode.FAILED_PRECONDITION
        case Refused(code=code, trailing=trailing):
            pass
        case Busy() | Stopped():
            code = StatusCode.UNAVAILABLE
        case MalformedMessage() | RecordTooLarge():
            code = StatusCode.INVALID_ARGUMENT
        case NewerRecord():
            code = StatusCode.FAILED_PRECONDITION
        case CorruptRecord():
            code = StatusCode.DATA_LOSS
        case StoreError():
            code = StatusCode.UNAVAILABLE
        case StorageError():
            code = StatusCode.UNAVAILABLE if error.retryable else StatusCode.DATA_LOSS
        case _:
            log.error("%s failed", method, exc_info=error)
            code, error = StatusCode.INTERNAL, Exception(f"internal error: {type(error).__name__}: {error}")
    return code, _short(str(error)), trailing
