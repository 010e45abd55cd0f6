"""LeaderElection: decides when to contend, claim, hold on and give up. Pure; `ha.elector` carries out the effects.

```
            Connected            Joined, Viewed             claim
   OFFLINE ----------> JOINING -----------------> STANDBY ---------> CLAIMING
      ^                ^  |  ^                     |   ^               |   |
      |   Disconnected |  |  +---- rejoin ---------+   +--- refused ---+   | granted
      +----------------+--+                                                v
      |   or Expired      ^------------------ revoked ------------------ LEADING
      |                                                                 ^     | Disconnected
      |                                         holds /leader and epoch |     v
      +--------------------------- Expired ------------------ VERIFYING <--- PAUSED
                                                                 Connected
   any --Stop--> STOPPED
```

Safety never rests on this machine: ZooKeeper refuses a second grant of the same token and every write under an old
one. The machine only makes the right coordinator ask at the right time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum

from lockgate_proto.messages import LeaderRecord

from ha.election_messages import (
    AnswerChallenge,
    Challenged,
    Changed,
    Claim,
    Claimed,
    ClaimFailed,
    ClaimFailure,
    CloseSession,
    Connected,
    Disconnected,
    Effect,
    Event,
    Expired,
    Failed,
    Granted,
    Join,
    Joined,
    LeaderChanged,
    LeaderGone,
    NotLeading,
    OpenSession,
    Probed,
    ReadView,
    Release,
    Resumed,
    Revoked,
    StepDown,
    Stop,
    Suspended,
    Tick,
    TokenSeen,
    Unanswering,
    View,
    Viewed,
    WakeAt,
)
from ha.election_timing import ElectionTiming
from ha.grant import LeadershipGrant
from ha.suspicion import Grounds, Suspicion


class Phase(Enum):
    """See the drawing of the module."""

    OFFLINE = "offline"
    JOINING = "joining"
    STANDBY = "standby"
    CLAIMING = "claiming"
    LEADING = "leading"
    PAUSED = "paused"
    VERIFYING = "verifying"
    STOPPED = "stopped"


TRANSITIONS: dict[Phase, frozenset[Phase]] = {
    Phase.OFFLINE: frozenset({Phase.JOINING, Phase.STOPPED}),
    Phase.JOINING: frozenset({Phase.OFFLINE, Phase.STANDBY, Phase.STOPPED}),
    Phase.STANDBY: frozenset({Phase.OFFLINE, Phase.JOINING, Phase.CLAIMING, Phase.LEADING, Phase.STOPPED}),
    Phase.CLAIMING: frozenset({Phase.OFFLINE, Phase.STANDBY, Phase.LEADING, Phase.STOPPED}),
    Phase.LEADING: frozenset({Phase.OFFLINE, Phase.JOINING, Phase.PAUSED, Phase.STOPPED}),
    Phase.PAUSED: frozenset({Phase.OFFLINE, Phase.VERIFYING, Phase.STOPPED}),
    Phase.VERIFYING: frozenset({Phase.OFFLINE, Phase.JOINING, Phase.LEADING, Phase.PAUSED, Phase.STOPPED}),
    Phase.STOPPED: frozenset(),
}

HOLDING = frozenset({Phase.LEADING, Phase.PAUSED, Phase.VERIFYING})
"""The phases in which a grant is held."""


class IllegalTransition(Exception):
    """The machine was driven where its table does not allow. The message tells how it came there."""


class LeaderElection:
    """One coordinator's part in the election.

    me: coordinator_id and address are used; generation: of the last session that an earlier machine opened
    """

    def __init__(self, me: LeaderRecord, timing: ElectionTiming | None = None, generation: int = 0) -> None:
        self._me = me
        self._timing = timing or ElectionTiming()
        self.phase = Phase.OFFLINE
        self.grant: LeadershipGrant | None = None
        self.leader: LeaderRecord | None = None
        self.view: View | None = None
        self._generation = generation
        self._session = ""
        self._contender = ""
        self._told = False  # whether the listener has heard of any leader yet
        self._known_token = 0  # of the last leader seen
        self._leader_since_ms = 0
        self._suspicion = Suspicion(self._timing)
        self._loss_unix_us: int | None = None  # when the loss of the last known leader was first seen
        self._reason: tuple[str, int] | None = None  # why to claim, and since when
        self._reason_since_ms = 0
        self._not_before_ms = 0  # the penalty after a lost term
        self._retry_claim_ms = 0
        self._given_up = 0  # the highest token that this coordinator must never use again
        self._penalty_ms = 0
        self._granted_ms = 0
        self._request: Join | ReadView | None = None  # in flight or to be repeated
        self._repeat_at_ms: int | None = None
        self._effects: list[Effect] = []
        self._history: deque[str] = deque(maxlen=40)
        self._handlers: dict[type, Callable[..., None]] = {
            Connected: self._connected,
            Disconnected: self._disconnected,
            Expired: self._expired,
            Joined: self._joined,
            Viewed: self._viewed,
            Failed: self._failed,
            Changed: self._changed,
            Claimed: self._claimed,
            ClaimFailed: self._claim_failed,
            LeaderGone: self._leader_gone,
            NotLeading: self._not_leading,
            Unanswering: self._unanswering,
            Probed: self._probed,
            Challenged: self._was_challenged,
            StepDown: self._step_down,
            TokenSeen: self._token_seen,
            Tick: self._tick,
            Stop: self._stop,
        }

    def start(self) -> list[Effect]:
        """The first effects: open a session."""
        self._effects = []
        self._open_session()
        return self._effects

    def handle(self, event: Event, now_ms: int) -> list[Effect]:
        """Takes one event and returns what is to be done, in order."""
        self._effects = []
        if self.phase is Phase.STOPPED or getattr(event, "generation", self._generation) != self._generation:
            return []
        self._history.append(f"{now_ms} {self.phase.value}: {event}")
        self._handlers[type(event)](event, now_ms)
        return self._effects

    @property
    def generation(self) -> int:
        """Of the session it works with."""
        return self._generation

    def story(self) -> str:
        """The latest events, one a line."""
        return "\n".join(self._history)

    # -- the session --------------------------------------------------------------------------------------------------

    def _connected(self, event: Connected, _now_ms: int) -> None:
        self._session = event.session
        if self.phase is Phase.OFFLINE:
            self._to(Phase.JOINING)
            self._ask(Join(self._generation, rejoin=False))
        elif self.phase is Phase.PAUSED:
            self._to(Phase.VERIFYING)
            self._ask(ReadView(self._generation))

    def _disconnected(self, _event: Disconnected, _now_ms: int) -> None:
        self._request, self._repeat_at_ms = None, None
        if self._suspicion.is_open:
            self._suspicion.drop()  # a challenge proves nothing while ZooKeeper is away
        if self.phase is Phase.LEADING:
            self._to(Phase.PAUSED)
            self._effects.append(Suspended())
        elif self.phase is Phase.VERIFYING:
            self._to(Phase.PAUSED)
        elif self.phase not in (Phase.OFFLINE, Phase.PAUSED):
            self._to(Phase.OFFLINE)

    def _expired(self, _event: Expired, now_ms: int) -> None:
        if self.phase in HOLDING:
            self._revoke("ZooKeeper has expired the session", now_ms)
        if self.phase is not Phase.OFFLINE:
            self._to(Phase.OFFLINE)
        self._open_session()

    def _open_session(self) -> None:
        self._generation += 1
        self._session, self._contender, self.view = "", "", None
        self._request, self._repeat_at_ms = None, None
        self._effects.append(OpenSession(self._generation))

    def _joined(self, event: Joined, _now_ms: int) -> None:
        if self.phase is Phase.JOINING:
            self._contender = event.contender
            self._ask(ReadView(self._generation))

    # -- requests and their repetition --------------------------------------------------------------------------------

    def _ask(self, request: Join | ReadView) -> None:
        self._request, self._repeat_at_ms = request, None
        self._effects.append(request)

    def _failed(self, _event: Failed, now_ms: int) -> None:
        if self._request is not None and self.phase not in (Phase.OFFLINE, Phase.PAUSED):
            self._repeat_at_ms = now_ms + self._timing.retry_ms
            self._effects.append(WakeAt(self._repeat_at_ms))

    def _changed(self, _event: Changed, _now_ms: int) -> None:
        in_line = self.phase is Phase.JOINING and self._contender
        if in_line or self.phase in (Phase.STANDBY, Phase.LEADING, Phase.VERIFYING):
            self._ask(ReadView(self._generation))

    def _tick(self, _event: Tick, now_ms: int) -> None:
        if self._repeat_at_ms is not None and self._request is not None:
            if now_ms >= self._repeat_at_ms:
                self._ask(self._request)
                return
            self._effects.append(WakeAt(self._repeat_at_ms))
        self._reconsider(now_ms)

    # -- what ZooKeeper says ------------------------------------------------------------------------------------------

    def _viewed(self, event: Viewed, now_ms: int) -> None:
        known = self.view.epoch if self.view is not None else 0
        if event.view.epoch < max(known, self.grant.token if self.grant else 0):
            self._failed(Failed(self._generation), now_ms)  # older than what is known: `/epoch` never falls
            return
        if self.phase in (Phase.OFFLINE, Phase.PAUSED, Phase.CLAIMING):
            return  # late: a newer one will be asked for
        if self.phase is Phase.JOINING and not self._contender:
            return  # read before the place in line was there
        self._request, self._repeat_at_ms = None, None
        self.view = event.view
        if self.phase in (Phase.LEADING, Phase.VERIFYING):
            self._verify(event, now_ms)
            return
        self._note_leader(event.view, event.unix_us, now_ms)
        if self._suspicion.can_be_answered and not event.view.challenged:
            self._suspicion.acquit(now_ms)
        if self.phase is Phase.JOINING:
            self._to(Phase.STANDBY)
        self._consider(event.view, now_ms)

    def _note_leader(self, view: View, unix_us: int, now_ms: int) -> None:
        former, self.leader = self.leader, view.leader
        if view.leader is None:
            if former is not None and self._loss_unix_us is None:
                self._loss_unix_us = unix_us
        elif former is None or former.token != view.leader.token:
            if self._known_token != view.leader.token:
                self._loss_unix_us = None
            self._leader_since_ms = now_ms
            self._known_token = view.leader.token
        if view.leader is not None and self._is_my_former_self(view):
            self._suspicion.raise_against(view.leader.token, unix_us, knocks=False)
        if not self._told or former != view.leader:
            self._told = True
            self._effects.append(LeaderChanged(view.leader))

    def _is_my_former_self(self, view: View) -> bool:
        """A leader at the address that this process serves is gone, as a rule: this process has taken its place.

        As a rule only: another machine may advertise the same address by mistake. So it is challenged.
        """
        leader = view.leader
        return (
            leader is not None
            and not view.leader_is_mine
            and leader.address == self._me.address
            and self.phase not in HOLDING
        )

    def _verify(self, event: Viewed, now_ms: int) -> None:
        view, grant = event.view, self.grant
        assert grant is not None  # in HOLDING phases
        if view.leader is not None and view.leader_is_mine and view.leader.token == view.epoch == grant.token:
            self._note_leader(view, event.unix_us, now_ms)
            if view.challenged:
                self._effects.append(AnswerChallenge(self._generation))
            if self.phase is Phase.VERIFYING:
                self._to(Phase.LEADING)
                self._effects.append(Resumed())
            return
        holder = "nobody" if view.leader is None else f"{view.leader.address} with token {view.leader.token}"
        self._revoke(f"ZooKeeper names {holder} the leader, at epoch {view.epoch}", now_ms)
        self._note_leader(view, event.unix_us, now_ms)
        self._rejoin()

    # -- evidence -----------------------------------------------------------------------------------------------------

    def _leader_gone(self, event: LeaderGone, now_ms: int) -> None:
        if self.phase in HOLDING or event.token < self._known_token:
            return
        is_here = self.leader is not None and self.leader.address == self._me.address
        self._suspicion.raise_against(event.token, event.unix_us, knocks=not is_here)
        if self.phase is not Phase.STANDBY or self.view is None:
            return  # considered with the next view
        if event.token > self._known_token:
            self._ask(ReadView(self._generation))  # the reporter knows more than the last view
        else:
            self._consider(self.view, now_ms)

    def _not_leading(self, event: NotLeading, now_ms: int) -> None:
        if now_ms - self._leader_since_ms >= self._timing.not_leading_grace_ms:
            self._convict(event.token, event.unix_us, Grounds.SAID_SO, now_ms)

    def _unanswering(self, event: Unanswering, now_ms: int) -> None:
        """Its elector may live, and answer challenges: for those it leads it is as good as gone."""
        self._convict(event.token, event.unix_us, Grounds.SILENT, now_ms)

    def _convict(self, token: int, unix_us: int, grounds: Grounds, now_ms: int) -> None:
        leader = self.leader
        if self.phase in HOLDING or leader is None or leader.token != token:
            return
        if leader.address == self._me.address:
            return  # it was this process that was asked there
        self._suspicion.confirm(token, unix_us, grounds)
        self._reconsider(now_ms)

    def _probed(self, event: Probed, now_ms: int) -> None:
        self._suspicion.probed(event.token, event.answer, now_ms)
        self._reconsider(now_ms)

    def _was_challenged(self, event: Challenged, now_ms: int) -> None:
        self._suspicion.challenged(event.token, event.posted, now_ms)
        self._reconsider(now_ms)

    # -- claiming -----------------------------------------------------------------------------------------------------

    def _reconsider(self, now_ms: int) -> None:
        if self.phase is Phase.STANDBY and self.view is not None:
            self._consider(self.view, now_ms)

    def _consider(self, view: View, now_ms: int) -> None:
        """In STANDBY: claims, probes or waits, whatever the view and the evidence call for."""
        if all(one.name != self._contender for one in view.contenders):
            self._rejoin()
        elif view.leader is not None and view.leader_is_mine and view.leader.token > self._given_up:
            self._take_office(view.leader.token, now_ms)  # a claim whose answer was lost
        elif view.leader is None or view.leader_is_mine:
            self._claim_in_turn("nobody leads", view, now_ms)
        elif self._suspicion.token == view.leader.token:
            self._act_on_suspicion(view, view.leader, now_ms)
        else:
            self._reason = None

    def _act_on_suspicion(self, view: View, leader: LeaderRecord, now_ms: int) -> None:
        self._effects += self._suspicion.pursue(leader, self._generation, now_ms)
        if self._suspicion.confirmed:
            if self._loss_unix_us is None:
                self._loss_unix_us = self._suspicion.unix_us
            self._claim_in_turn("the leader is gone", view, now_ms)

    def _claim_in_turn(self, why: str, view: View, now_ms: int) -> None:
        if self._reason != (why, view.epoch):
            self._reason, self._reason_since_ms = (why, view.epoch), now_ms
        rank, others = self._place(view)
        at_ms = max(self._reason_since_ms + rank * self._timing.rank_delay_ms, self._retry_claim_ms)
        if others:
            at_ms = max(at_ms, self._not_before_ms)
        if now_ms < at_ms:
            self._effects.append(WakeAt(at_ms))
            return
        self._to(Phase.CLAIMING)
        replaces = view.leader is not None
        grounds = self._suspicion.grounds if replaces else None
        unanswered = grounds is Grounds.UNANSWERED
        words = "nobody led any more" if grounds is None else grounds.value
        claim = Claim(
            self._generation, self._contender, view.epoch_version, view.epoch + 1, replaces, unanswered, words
        )
        self._effects.append(claim)

    def _place(self, view: View) -> tuple[int, int]:
        """(how many stand before this coordinator in line, how many others there are), the dead not counted.

        Whether one of the own address is dead is not sure, so it gives way in line and still counts as another.
        """
        dead = {self._me.address}  # an earlier process of one address can only be dead, its node still in line
        if view.leader is not None and not view.leader_is_mine:
            dead.add(view.leader.address)
        line = [one.name for one in view.contenders if one.name == self._contender or one.record.address not in dead]
        here = sum(one.name != self._contender and one.record.address == self._me.address for one in view.contenders)
        return line.index(self._contender), len(line) - 1 + here

    def _claimed(self, event: Claimed, now_ms: int) -> None:
        if self.phase is Phase.CLAIMING:  # otherwise late: the next view shows the same
            self._take_office(event.token, now_ms)

    def _claim_failed(self, event: ClaimFailed, now_ms: int) -> None:
        if self.phase is not Phase.CLAIMING:
            return
        self._to(Phase.STANDBY)
        self._retry_claim_ms = now_ms + self._timing.retry_ms
        if event.failure is ClaimFailure.REFUSED:
            self._ask(ReadView(self._generation))
        else:
            self._request, self._repeat_at_ms = ReadView(self._generation), self._retry_claim_ms
            self._effects.append(WakeAt(self._retry_claim_ms))

    # -- office -------------------------------------------------------------------------------------------------------

    def _take_office(self, token: int, now_ms: int) -> None:
        self._to(Phase.LEADING)
        self.grant = LeadershipGrant(token, self._me.coordinator_id, self._session)
        self._granted_ms = now_ms
        self._effects.append(Granted(self.grant, self._loss_unix_us))
        self._loss_unix_us, self._reason = None, None
        self._suspicion.forget()
        self._ask(ReadView(self._generation))

    def _step_down(self, event: StepDown, now_ms: int) -> None:
        if self.grant is None or event.token not in (0, self.grant.token):
            return  # late: it was said of an earlier grant
        self._give_up(event.reason, self.grant.token, now_ms)

    def _token_seen(self, event: TokenSeen, now_ms: int) -> None:
        """A token that a peer names proves nothing: one message with the last of all would keep everybody out for good.

        So ZooKeeper is asked, and the next grant takes the number after its epoch, whatever was named. While it cannot
        be asked the peer is believed, as far as the own term goes: that is how a leader that alone is cut off learns
        that it was replaced.
        """
        if self.grant is None or event.token <= self.grant.token:
            return
        if self.phase is Phase.PAUSED:
            self._give_up(event.reason, self.grant.token, now_ms)
        else:
            self._ask(ReadView(self._generation))

    def _give_up(self, reason: str, token: int, now_ms: int) -> None:
        paused = self.phase is Phase.PAUSED
        self._revoke(reason, now_ms)
        if paused:
            self._to(Phase.OFFLINE)  # `/leader` is found to be given up when the connection is back
        else:
            self._effects.append(Release(self._generation, token, self._contender))
            self._rejoin()

    def _revoke(self, reason: str, now_ms: int) -> None:
        """Ends the grant; the caller moves on to the next phase."""
        assert self.grant is not None  # in HOLDING phases
        self._given_up = max(self._given_up, self.grant.token)
        self.grant = None
        timing = self._timing
        stable = now_ms - self._granted_ms >= timing.stable_ms
        self._penalty_ms = timing.penalty_ms if stable else min(self._penalty_ms * 2, timing.penalty_max_ms)
        self._penalty_ms = max(self._penalty_ms, timing.penalty_ms)
        self._not_before_ms = now_ms + self._penalty_ms
        self._effects.append(Revoked(reason))

    def _rejoin(self) -> None:
        self._to(Phase.JOINING)
        self._contender, self.view = "", None
        self._ask(Join(self._generation, rejoin=True))

    def _stop(self, event: Stop, now_ms: int) -> None:
        if self.grant is not None:
            token = self.grant.token
            self._revoke("the coordinator stops", now_ms)
            if event.release:
                self._effects.append(Release(self._generation, token, self._contender))
        self._to(Phase.STOPPED)
        self._effects.append(CloseSession(abandon=not event.release))

    def _to(self, phase: Phase) -> None:
        if phase not in TRANSITIONS[self.phase]:
            raise IllegalTransition(f"{self.phase.value} -> {phase.value}; before:\n{self.story()}")
        self.phase = phase
