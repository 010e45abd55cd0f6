"""ElectionTiming: the timeouts of an election."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ElectionTiming:
    """All in milliseconds.

    rank_delay_ms: additional delay of a claim per place in line
    not_leading_grace_ms: age of a leader's term below which "I do not lead" from its process is not believed
    penalty_ms, penalty_max_ms: how long a coordinator that lost leadership lets others go first; doubles each time
    stable_ms: a term this long makes the penalty start again from the beginning
    retry_ms: pause before a failed request to a connected ZooKeeper is made again
    probe_timeout_ms: a leader whose address has not answered for this long is challenged through ZooKeeper
    challenge_ms: the time to answer it; tens of milliseconds when both are healthy
    spare_ms: a leader that has answered is not challenged again during this time
    """

    rank_delay_ms: int = 150
    not_leading_grace_ms: int = 1_000
    penalty_ms: int = 500
    penalty_max_ms: int = 30_000
    stable_ms: int = 60_000
    retry_ms: int = 100
    probe_timeout_ms: int = 50
    challenge_ms: int = 150
    spare_ms: int = 2_000
