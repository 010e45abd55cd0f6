"""The history of a cluster's leaders, for display: nothing is decided by it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lockgate_proto.messages import LeadershipRecord

MOST_LEADERS = 20


def with_leader(
    known: Sequence[LeadershipRecord], leader: LeadershipRecord, detected_unix_us: int | None
) -> tuple[LeadershipRecord, ...]:
    """The history once `leader` leads, the newest last. Again with the same leader it is the same history.

    detected_unix_us: when it noticed the loss of the one before it. A leader that ends before it is recorded leaves a
    gap in the tokens; when the one before that gap ended is not known.
    """
    earlier = [record for record in known if record.token < leader.token]
    if earlier and earlier[-1].token == leader.token - 1:
        earlier[-1] = replace(earlier[-1], ended_unix_us=detected_unix_us or leader.granted_unix_us)
    return (*earlier, leader)[-MOST_LEADERS:]
