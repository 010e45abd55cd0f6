"""What stands before every rpc: who may call, requests that cannot be read, and exceptions as gRPC statuses."""

from __future__ import annotations

import logging
from typing import Any

import grpc
from lockgate_proto.codec import MalformedMessage
from lockgate_proto.rpc import full_name
from lockgate_proto.security import Credentials

from coordinator.runtime.errors import Busy, NotLeading, Refused, Stopped, StorageError
from coordinator.runtime.job_keys import check_named
from ha.errors import CorruptRecord, RecordTooLarge, StoreError

log = logging.getLogger(__name__)

LEADER_METADATA = "lockgate-leader"
_MAX_DETAILS = 6_000  # as it is sent: each byte that is not printable ASCII takes three
_INTERNAL = (f"/{full_name('ControlService')}/", f"/{full_name('FollowService')}/")
_HEALTH = "/grpc.health.v1.Health/"
WRITING = ("Submit", "Cancel", "TriggerSavepoint", "Stop", "DisposeSavepoint", "Rescale", "Release")
_WRITES = tuple(f"/{full_name('JobService')}/{name}" for name in WRITING)
"""A job runs code as the cluster's user (SQL can, too), reads and writes that user's files, and can be lost."""
SECRET_NEEDED = (
    "the cluster's secret is missing or wrong; send the call metadata `authorization: Bearer <content of the secret "
    "file>`. The file is ~/.config/lockgate/secret of the cluster's user, or where LOCKGATE_SECRET_FILE says"
)


class Guard:
    """Checks the secret where a method asks for it."""

    def __init__(self, credentials: Credentials, *, everything: bool) -> None:
        """everything: the port can be reached from other machines, so that only health checks are free."""
        self._credentials = credentials
        self._everything = everything

    def admit(self, method: str, metadata: tuple[tuple[str, str | bytes], ...]) -> None:
        """Raises Refused for a caller that may not call this method."""
        always = method.startswith(_INTERNAL) or method in _WRITES
        secured = always or (self._everything and not method.startswith(_HEALTH))
        if secured and not self._credentials.admits(metadata):
            raise Refused("UNAUTHENTICATED", SECRET_NEEDED)


def check_request(request: Any) -> None:
    """What is asked of every request before it is looked at. Raises Refused."""
    key = getattr(request, "job_key", "")
    check_named(key)


def _short(details: str) -> str:
    """A status travels in headers, of which peers take 8 KiB: one that is longer would break the call instead."""
    room = _MAX_DETAILS
    for at, character in enumerate(details):
        room -= 1 if " " <= character <= "~" else 3 * len(character.encode(errors="replace"))
        if room < 0:
            return f"{details[:at]} ... (there is more)"
    return details


def status(error: Exception, method: str) -> tuple[grpc.StatusCode, str, tuple[tuple[str, str], ...]]:
    """Code, details and trailing metadata of a call that ends by what was raised. Faults of our own are logged."""
    trailing: tuple[tuple[str, str], ...] = ()
    match error:
        case NotLeading(leader=leader):
            if leader:
                trailing = ((LEADER_METADATA, leader),)
            code = grpc.StatusCode.FAILED_PRECONDITION
        case Refused(code=name):
            code = grpc.StatusCode[name]
        case Busy() | Stopped():
            code = grpc.StatusCode.UNAVAILABLE
        case MalformedMessage() | RecordTooLarge():
            code = grpc.StatusCode.INVALID_ARGUMENT
        case CorruptRecord():
            code = grpc.StatusCode.DATA_LOSS
        case StoreError():
            code = grpc.StatusCode.UNAVAILABLE
        case StorageError():
            code = grpc.StatusCode.UNAVAILABLE if error.retryable else grpc.StatusCode.DATA_LOSS
        case _:
            log.error("%s failed", method, exc_info=error)
            code, error = grpc.StatusCode.INTERNAL, Exception(f"internal fault: {type(error).__name__}: {error}")
    return code, _short(str(error)), trailing
