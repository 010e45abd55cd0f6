"""What a job key may look like, and a request id.

Every request that names a job is held to it before anything is looked up.
"""

from __future__ import annotations

import re

from grpc import StatusCode

from lockgate_coordinator.graph.bounds import quoted
from lockgate_coordinator.runtime.errors import Refused

_JOB_KEY = re.compile(r"[A-Za-z0-9._-]{1,128}")
_LONGEST = 128
_MOST_QUOTED = 60


def check_new(key: str) -> None:
    """Raises Refused for what cannot name a new job."""
    if not _JOB_KEY.fullmatch(key) or key in (".", ".."):
        raise Refused(
            StatusCode.INVALID_ARGUMENT,
            f"{quoted(key, _MOST_QUOTED)} is not a job key; use 1 to 128 of A-Z a-z 0-9 . _ -",
        )


def check_named(key: str) -> None:
    """Raises Refused for what is too long to name any job.

    Its characters are not looked at: what somebody left below the jobs in ZooKeeper is a job that has failed, whatever
    its name, and has to be cancelled by that.
    """
    if len(key) > _LONGEST:
        raise Refused(
            StatusCode.INVALID_ARGUMENT,
            f"{quoted(key, _MOST_QUOTED)} is not a job key: it has {len(key)} characters, the most is {_LONGEST}",
        )


def check_request_id(request_id: str) -> None:
    """Raises Refused for what cannot name a request; none at all is fine."""
    if request_id and not _JOB_KEY.fullmatch(request_id):
        text = f"{quoted(request_id, _MOST_QUOTED)} is not a request id; use 1 to 128 of A-Z a-z 0-9 . _ -"
        raise Refused(StatusCode.INVALID_ARGUMENT, text)
