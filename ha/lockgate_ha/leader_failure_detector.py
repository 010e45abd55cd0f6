"""LeaderFailureDetector: a standby's suspicion of the leader, and how it is confirmed. Pure; a part of the election.

```
   NONE --suspect--------> RAISED --Probe--> PROBING ---silent--> CHALLENGED --no answer--> CONFIRMED
    ^                                          | |  refused: CONFIRMED at once    |             |
    +------- the port accepts -----------------+ +--------------------------------+             |
    +------- the challenge is answered -------------------------------------------+-------------+

   NONE --silent--> MUTE --Challenge--> ASKED --answered neither here nor there for its patience--> CONFIRMED
    ^                |                    |                                                          |
    +----------------+-- it answers a call, sends a heartbeat, or answers the challenge -------------+
```

The port of a dead process refuses a connection at once. A host that is down, or cut off, is silent: then the leader is
challenged through ZooKeeper, and answers if it can still write there (DECISIONS.md, 15). The clock of a standby only
determines when to claim: the grant itself is refused unless the challenge is still unanswered.

The port of a frozen process accepts connections. Such a leader was asked twice, by a call and by a challenge through
ZooKeeper, and any answer keeps it. The time that it is given counts only while this process runs itself.
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
    MUTE = "the leader answers neither calls nor a challenge"


_CHALLENGED = frozenset({Grounds.UNANSWERED, Grounds.MUTE})
_LOOK_MS = 100
"""How often the time of a silent leader is counted; more than twice as much at once never counts."""


class _Silence:
    """A leader that sends nothing and answers nothing. left_ms: the time that it still has, from its challenge on."""

    def __init__(self, patience_ms: int) -> None:
        self.left_ms = patience_ms
        self.is_asked = False  # the challenge is on its way
        self._looked_ms: int | None = None  # None: it is not challenged yet

    @property
    def is_counted(self) -> bool:
        """The challenge exists."""
        return self._looked_ms is not None

    def challenged(self, now_ms: int) -> None:
        """The challenge exists, from now on at the latest."""
        if self._looked_ms is None:
            self._looked_ms = now_ms

    def pass_time(self, now_ms: int) -> None:
        """Counts what has passed, within bounds: time in which this standby itself stood still proves nothing."""
        if self._looked_ms is not None:
            self.left_ms -= max(0, min(now_ms - self._looked_ms, 2 * _LOOK_MS))
            self._looked_ms = now_ms


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
        self._seems_gone = False  # a stream to it broke, or it could not be reached
        self._is_unreachable = False  # and its port did not answer, so that it is challenged
        self._silence: _Silence | None = None

    @property
    def confirmed(self) -> bool:
        """The leader is lost."""
        return self.grounds is not None

    @property
    def rests_on_challenge(self) -> bool:
        """Confirmed because no answer came; a late answer revokes it."""
        return self.grounds in _CHALLENGED

    @property
    def is_open(self) -> bool:
        """A leader is suspected, and nothing is confirmed."""
        return self.token is not None and not self.confirmed

    @property
    def can_be_answered(self) -> bool:
        """A challenge was posted, and the confirmation depends on its remaining unanswered."""
        is_posted = self._verdict_at_ms is not None or (self._silence is not None and self._silence.is_counted)
        return is_posted or self.rests_on_challenge

    def suspect(self, token: int, unix_us: int, probes_port: bool = True) -> None:
        """The leader of `token` was lost at `unix_us`. Earlier evidence is kept.

        probes_port: False if its port proves nothing, because this process listens there.
        """
        if self.token != token or not self._seems_gone:
            self._open(token, unix_us)
            self._seems_gone, self._probes_port = True, probes_port

    def silent(self, token: int, unix_us: int, patience_ms: int) -> None:
        """The leader of `token` sends nothing any more, and was asked by a call. Repeated reports change nothing.

        patience_ms: how long it may leave that and a challenge unanswered.
        """
        self._open(token, unix_us)
        if self._silence is None and not self.confirmed:
            self._silence = _Silence(patience_ms)

    def answered(self, token: int) -> None:
        """The leader of `token`, which was silent, has sent something. Only a running probe may still prove its end."""
        if self.token != token:
            return
        self._silence = None
        if self.rests_on_challenge:
            self.drop()
        elif self._probing == token:
            self._challenge_at_ms = self._verdict_at_ms = None
        elif not self.confirmed:
            self._withdraw()

    def _open(self, token: int, unix_us: int) -> None:
        if self.token != token:
            self.drop()
            self.token, self.unix_us, self._probes_port = token, unix_us, True

    def confirm(self, token: int, unix_us: int, grounds: Grounds) -> None:
        """The leader of `token` is lost. `unix_us` is used unless it was suspected before, and so are the grounds."""
        self._open(token, unix_us)
        self.grounds = self.grounds or grounds
        self._challenge_at_ms = self._verdict_at_ms = self._silence = None

    def drop(self) -> None:
        """There is no suspicion."""
        self.token = self.grounds = self._silence = None
        self._withdraw()

    def _withdraw(self) -> None:
        """It does not seem to be gone any more; perhaps it is silent."""
        self._challenge_at_ms = self._verdict_at_ms = None
        self._seems_gone = self._is_unreachable = False
        if self._silence is None and self.grounds is None:
            self.token = None

    def forget(self) -> None:
        """As `drop`, and ignores the answer to a running probe."""
        self.drop()
        self._probing = None

    def next_step(self, leader: LeaderRecord, generation: int, now_ms: int) -> list[Effect]:
        """The next step against `leader`, which is the suspected one; None when the suspicion is confirmed."""
        effects: list[Effect] = []
        if self._silence is not None and not self.confirmed:
            effects += self._await_answer(self._silence, leader, generation, now_ms)
        if not self._seems_gone or self.confirmed:
            return effects
        if self._verdict_at_ms is None:
            return effects + self._probe_or_challenge(leader, generation, now_ms)
        if now_ms < self._verdict_at_ms:
            return [*effects, WakeAt(self._verdict_at_ms)]
        self.confirm(leader.token, self.unix_us, Grounds.UNANSWERED)
        return effects

    def _await_answer(self, silence: _Silence, leader: LeaderRecord, generation: int, now_ms: int) -> list[Effect]:
        if not silence.is_counted:
            if silence.is_asked or now_ms < self._spared_until_ms:
                return []
            silence.is_asked = True
            return [Challenge(generation, leader.token)]
        silence.pass_time(now_ms)
        if silence.left_ms > 0:
            return [WakeAt(now_ms + min(silence.left_ms, _LOOK_MS))]
        self.confirm(leader.token, self.unix_us, Grounds.MUTE)
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
            self._challenge_at_ms, self._is_unreachable = None, True
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
        elif answer is ProbeAnswer.ACCEPTED or now_ms < self._spared_until_ms:
            self._withdraw()  # alive, or frozen, which shows by its silence; or it has just answered a challenge
        elif self._verdict_at_ms is None:
            self._challenge_at_ms = now_ms

    def challenged(self, token: int, posted: bool, now_ms: int) -> None:
        """The challenge to the leader of `token` exists in ZooKeeper; or it could not be created."""
        if not self.is_open or self.token != token:
            return
        if not posted:
            self.drop()  # the reporter will report again
            return
        if self._silence is not None:
            self._silence.challenged(now_ms)
        if self._is_unreachable:
            self._verdict_at_ms = now_ms + self._timing.challenge_ms

    def clear(self, now_ms: int) -> None:
        """The challenge was answered: the leader is alive, though it cannot be reached from here."""
        self._spared_until_ms = now_ms + self._timing.spare_ms
        if self.is_open or self.rests_on_challenge:
            if not self._probes_port:
                self._probing = None
            self.drop()
        self._verdict_at_ms = None
