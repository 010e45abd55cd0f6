"""Suspicion: what a standby holds against the leader in office, and how it is proved. Pure; a part of `ha.election`.

```
   NONE --raise_against--> RAISED --Probe--> KNOCKING --silent--> CHALLENGED --no answer--> CONFIRMED
    ^                                          | |  refused: CONFIRMED at once    |             |
    +------- the port accepts -----------------+ +--------------------------------+             |
    +------- the challenge is answered -------------------------------------------+-------------+
```

A dead process refuses a knock at its port at once. A host that is gone, or cut off, stays silent: then the leader is
asked by way of ZooKeeper, where the leader that can still write there answers (DECISIONS.md, 15). The clock of a
standby only says when to claim: the grant itself is refused unless the challenge still stands unanswered.
"""

from __future__ import annotations

from enum import Enum

from lockgate_proto.messages import LeaderRecord

from ha.election_messages import Challenge, Effect, Probe, ProbeAnswer, WakeAt
from ha.election_timing import ElectionTiming


class Grounds(Enum):
    """Why a leader counts as gone, in words."""

    SAID_SO = "the leader said that it does not lead"
    REFUSED = "nothing listens at the leader's address any more"
    SILENT = "the leader takes connections and answers none"
    UNANSWERED = "the leader did not prove that it lives"


class Suspicion:
    """Of one leader at a time, named by its token.

    token: of the suspected leader, None for nobody; unix_us: when it was first suspected; grounds: set once it is gone
    """

    def __init__(self, timing: ElectionTiming) -> None:
        self._timing = timing
        self.token: int | None = None
        self.unix_us = 0
        self.grounds: Grounds | None = None
        self._knocks = True
        self._probing: int | None = None  # token of the leader whose port is being knocked at
        self._challenge_at_ms: int | None = None  # when it is to be challenged
        self._verdict_at_ms: int | None = None  # when a challenge that was posted counts as not answered
        self._spared_until_ms = 0

    @property
    def confirmed(self) -> bool:
        """The leader is gone."""
        return self.grounds is not None

    @property
    def rests_on_challenge(self) -> bool:
        """Confirmed because nobody answered, which an answer takes back."""
        return self.grounds is Grounds.UNANSWERED

    @property
    def is_open(self) -> bool:
        """Somebody is suspected, and nothing is proved."""
        return self.token is not None and not self.confirmed

    @property
    def can_be_answered(self) -> bool:
        """A challenge was posted, and everything rests on its not being answered."""
        return self._verdict_at_ms is not None or self.rests_on_challenge

    def raise_against(self, token: int, unix_us: int, knocks: bool = True) -> None:
        """The leader of `token` was lost from sight at `unix_us`. What is held against it already stays.

        knocks: False where its port says nothing of it, because this process listens there.
        """
        if self.token != token:
            self.drop()
            self.token, self.unix_us, self._knocks = token, unix_us, knocks

    def confirm(self, token: int, unix_us: int, grounds: Grounds) -> None:
        """The leader of `token` is gone. `unix_us` counts unless it was suspected before, as do the grounds."""
        self.raise_against(token, unix_us)
        self.grounds = self.grounds or grounds
        self._challenge_at_ms = self._verdict_at_ms = None

    def drop(self) -> None:
        """Nothing is held against anybody."""
        self.token = self.grounds = None
        self._challenge_at_ms = self._verdict_at_ms = None

    def forget(self) -> None:
        """As `drop`, and the answer to a knock that is under way is no longer of interest."""
        self.drop()
        self._probing = None

    def pursue(self, leader: LeaderRecord, generation: int, now_ms: int) -> list[Effect]:
        """The next step against `leader`, which is the suspected one; none when the suspicion is confirmed."""
        if self.confirmed:
            return []
        if self._verdict_at_ms is None:
            return self._question(leader, generation, now_ms)
        if now_ms < self._verdict_at_ms:
            return [WakeAt(self._verdict_at_ms)]
        self.confirm(leader.token, self.unix_us, Grounds.UNANSWERED)
        return []

    def _question(self, leader: LeaderRecord, generation: int, now_ms: int) -> list[Effect]:
        effects: list[Effect] = []
        if self._probing != leader.token and self._challenge_at_ms is None:
            self._probing = leader.token
            self._challenge_at_ms = now_ms
            if self._knocks:
                self._challenge_at_ms += self._timing.knock_ms
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
        """What the knock at the port of the leader of `token` came to."""
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
        """The challenge to the leader of `token` stands in ZooKeeper; or it could not be made."""
        if not self.is_open or self.token != token:
            return
        if posted:
            self._verdict_at_ms = now_ms + self._timing.challenge_ms
        else:
            self.drop()  # whoever lost the leader reports it again

    def acquit(self, now_ms: int) -> None:
        """The challenge was answered: the leader lives, though it cannot be reached from here."""
        self._spared_until_ms = now_ms + self._timing.spare_ms
        if self.is_open or self.rests_on_challenge:
            if not self._knocks:
                self._probing = None
            self.drop()
        self._verdict_at_ms = None
