"""Validates job keys and request ids.

Every job key in a request is checked before it is looked up.
"""

from __future__ import annotations

import re

from grpc import StatusCode
from lockgate_common.serving.refusals import Refused

from lockgate_coordinator.graph.bounds import quoted

_JOB_KEY = re.compile(r"[A-Za-z0-9._-]{1,128}")
_LONGEST = 128
_MOST_QUOTED = 60


def check_new(key: str) -> None:
    """Raises Refused for a key that cannot name a new job."""
    if not _JOB_KEY.fullmatch(key) or key in (".", ".."):
        raise Refused(
            StatusCode.INVALID_ARGUMENT,
            f"{quoted(key, _MOST_QUOTED)} is not a job key; use 1 to 128 of A-Z a-z 0-9 . _ -",
        )


def check_named(key: str) -> None:
    """Raises Refused for a key that is too long to name any job.

    The characters are not checked: any node below the jobs in ZooKeeper counts as a failed job, whatever its name, and
    must be cancelled by that name.
    """
    if len(key) > _LONGEST:
        raise Refused(
            StatusCode.INVALID_ARGUMENT,
            f"{quoted(key, _MOST_QUOTED)} is not a job key: it has {len(key)} characters, the limit is {_LONGEST}",
        )


def check_request_id(request_id: str) -> None:
    """Raises Refused for an invalid request id; it may be empty."""
    if request_id and not _JOB_KEY.fullmatch(request_id):
        text = f"{quoted(request_id, _MOST_QUOTED)} is not a request id; use 1 to 128 of A-Z a-z 0-9 . _ -"
        raise Refused(StatusCode.INVALID_ARGUMENT, text)
