"""What an error of the client is in HTTP."""

from __future__ import annotations

from lockgate_common.http.callers import UNKNOWN
from lockgate_common.http.refusal import HttpRefusal

from lockgate.client import ClientError, ClusterUnreachable, InvalidJob, KeyTaken, NotAllowed, UnknownJob
from lockgate.client.errors import NotAuthenticated, NotPossible

_STATUSES: tuple[tuple[type[ClientError], int], ...] = (  # the first that fits
    (NotAuthenticated, 401),
    (NotAllowed, 403),
    (UnknownJob, 404),
    (KeyTaken, 409),
    (NotPossible, 409),
    (InvalidJob, 400),
    (ClusterUnreachable, 503),
    (ClientError, 502),
)


def refusal_of(error: ClientError) -> HttpRefusal:
    """Its status and sentence. What a command line would do about credentials is of no use here."""
    status = next(status for kind, status in _STATUSES if isinstance(error, kind))
    if isinstance(error, InvalidJob):
        return HttpRefusal(status, "; ".join(error.problems))
    return HttpRefusal(status, UNKNOWN if status == 401 else str(error))
