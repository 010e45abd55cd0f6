"""Requests that a server does not grant."""

from __future__ import annotations

from grpc import StatusCode

RETRY_METADATA = "lockgate-retry-ms"
UNKNOWN_CALLER = "the credentials of this call are missing, wrong or no longer valid"


class Refused(Exception):
    """A request that cannot be granted. code: the status of the call."""

    trailing: tuple[tuple[str, str], ...] = ()
    """Trailing metadata of the answer."""

    def __init__(self, code: StatusCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class TooMuch(Refused):
    """More than one client may have. retry_ms: after which it may try again, and after which a client of ours does."""

    def __init__(self, message: str, retry_ms: int) -> None:
        super().__init__(StatusCode.RESOURCE_EXHAUSTED, f"{message}; try again in {retry_ms / 1000:.1f} s")
        self.retry_ms = retry_ms
        self.trailing = ((RETRY_METADATA, str(retry_ms)),)


def unknown_caller() -> Refused:
    """The answer to wrong or missing credentials: one sentence, which tells nothing of what is wrong with them."""
    return Refused(StatusCode.UNAUTHENTICATED, UNKNOWN_CALLER)
