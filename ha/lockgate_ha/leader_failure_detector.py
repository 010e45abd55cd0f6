"""LeaderFailureDetector: a standby's suspicion of the leader, and how it is confirmed. Pure; a part of the election.

```
   NONE --suspect--------> RAISED --Probe--> PROBING ---silent--> CHALLENGED --no answer--> CONFIRMED
    ^                                          | |  refused: CONFIRMED at once    |             |
    +------- the port accepts -----------------+ +--------------------------------+             |
    +------- the challenge is answered -------------------------------------------+-------------+
```

The port of a dead process refuses a connection at once. A host that is down, or cut off, is silent: then the leader is
challenged through ZooKeeper, and answers if it can still write there (DECISIONS.md, 15). The clock of a standby only
determines when to claim: the grant itself is refused unless the challenge is still unanswered.
"""

from __future__ import annotations

from enum import Enum

from lockgate_common.addresses import ProbeAnswer
from lockgate_proto.messages import LeaderRecord

from lockgate_ha.election_messages import Challenge, Effect, Probe, WakeAt
from lockgate_ha.election_timing import ElectionTiming


class Grounds(Enum):
    """Why a leader counts as lost, as text."""

    NOT_LEADER = "the process at the leader's address reported that it is not the leader"
    REFUSED = "nothing listens at the leader's address"
    SILENT = "the leader accepts connections but does not answer"
    UNANSWERED = "the leader did not prove that it is alive"


class LeaderFailureDetector:
    """For one leader at a time, identified by its token.

    token: of the suspected leader, None for none; unix_us: when it was first suspected; grounds: set once confirmed
    """

    def __init__(self, timing: ElectionTiming) -> None:
        self._timing = timing
        self.token: int | None = None
        self.unix_us = 0
        self.grounds: Grounds | None = None
        self._probes_port = True
        self._probing: int | None = None  # token of the leader whose port is being probed
        self._challenge_at_ms: int | None = None  # when it is to be challenged
        self._verdict_at_ms: int | None = None  # when a posted challenge counts as unanswered
        self._spared_until_ms = 0

    @property
    def confirmed(self) -> bool:
        """The leader is lost."""
        return self.grounds is not None

    @property
    def rests_on_challenge(self) -> bool:
        """Confirmed because no answer came; a late answer revokes it."""
        return self.grounds is Grounds.UNANSWERED

    @property
    def is_open(self) -> bool:
        """A leader is suspected, and nothing is confirmed."""
        return self.token is not None and not self.confirmed

    @property
    def can_be_answered(self) -> bool:
        """A challenge was posted, and the confirmation depends on its remaining unanswered."""
        return self._verdict_at_ms is not None or self.rests_on_challenge

    def suspect(self, token: int, unix_us: int, probes_port: bool = True) -> None:
        """The leader of `token` was lost at `unix_us`. Earlier evidence is kept.

        probes_port: False if its port proves nothing, because this process listens there.
        """
        if self.token != token:
            self.drop()
            self.token, self.unix_us, self._probes_port = token, unix_us, probes_port

    def confirm(self, token: int, unix_us: int, grounds: Grounds) -> None:
        """The leader of `token` is lost. `unix_us` is used unless it was suspected before, and so are the grounds."""
        self.suspect(token, unix_us)
        self.grounds = self.grounds or grounds
        self._challenge_at_ms = self._verdict_at_ms = None

    def drop(self) -> None:
        """There is no suspicion."""
        self.token = self.grounds = None
        self._challenge_at_ms = self._verdict_at_ms = None

    def forget(self) -> None:
        """As `drop`, and ignores the answer to a running probe."""
        self.drop()
        self._probing = None

    def next_step(self, leader: LeaderRecord, generation: int, now_ms: int) -> list[Effect]:
        """The next step against `leader`, which is the suspected one; None when the suspicion is confirmed."""
        if self.confirmed:
            return []
        if self._verdict_at_ms is None:
            return self._probe_or_challenge(leader, generation, now_ms)
        if now_ms < self._verdict_at_ms:
            return [WakeAt(self._verdict_at_ms)]
        self.confirm(leader.token, self.unix_us, Grounds.UNANSWERED)
        return []

    def _probe_or_challenge(self, leader: LeaderRecord, generation: int, now_ms: int) -> list[Effect]:
        effects: list[Effect] = []
        if self._probing != leader.token and self._challenge_at_ms is None:
            self._probing = leader.token
            self._challenge_at_ms = now_ms
            if self._probes_port:
                self._challenge_at_ms += self._timing.probe_timeout_ms
                effects.append(Probe(leader.token, leader.address))
        if self._challenge_at_ms is None:
            return effects
        if now_ms < self._challenge_at_ms:
            effects.append(WakeAt(self._challenge_at_ms))
        elif now_ms >= self._spared_until_ms:
            self._challenge_at_ms = None
            effects.append(Challenge(generation, leader.token))
        return effects

    def probed(self, token: int, answer: ProbeAnswer, now_ms: int) -> None:
        """The result of probing the port of the leader of `token`."""
        if token != self._probing:
            return
        self._probing = None
        if not self.is_open or self.token != token:
            return
        if answer is ProbeAnswer.REFUSED:
            self.confirm(token, self.unix_us, Grounds.REFUSED)
        elif answer is ProbeAnswer.ACCEPTED:
            self.drop()  # alive, or frozen: its session decides
        elif now_ms < self._spared_until_ms:
            self.drop()  # it has just answered a challenge
        elif self._verdict_at_ms is None:
            self._challenge_at_ms = now_ms

    def challenged(self, token: int, posted: bool, now_ms: int) -> None:
        """The challenge to the leader of `token` exists in ZooKeeper; or it could not be created."""
        if not self.is_open or self.token != token:
            return
        if posted:
            self._verdict_at_ms = now_ms + self._timing.challenge_ms
        else:
            self.drop()  # the reporter will report again

    def clear(self, now_ms: int) -> None:
        """The challenge was answered: the leader is alive, though it cannot be reached from here."""
        self._spared_until_ms = now_ms + self._timing.spare_ms
        if self.is_open or self.rests_on_challenge:
            if not self._probes_port:
                self._probing = None
            self.drop()
        self._verdict_at_ms = None
