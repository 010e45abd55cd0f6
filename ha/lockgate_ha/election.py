"""LeaderElection: decides when to contend, claim, keep and resign leadership. Pure; the elector carries out the
effects.

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

Safety does not depend on this machine: ZooKeeper refuses a second grant of the same token and every write under an old
one. The machine only makes the right coordinator claim at the right time.
"""

from __future__ import annotations

from enum import Enum
from typing import assert_never

from lockgate_common.story import Story
from lockgate_proto.messages import LeaderRecord

from lockgate_ha import election_messages as m
from lockgate_ha.election_timing import ElectionTiming
from lockgate_ha.grant import LeadershipGrant
from lockgate_ha.leader_failure_detector import Grounds, LeaderFailureDetector


class Phase(Enum):
    """The phase of a coordinator in the election, as drawn in the module docstring."""

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
        self.view: m.View | None = None
        self._generation = generation
        self._session = ""
        self._contender = ""
        self._notified = False  # whether the listener has been notified of any leader yet
        self._known_token = 0  # of the last leader seen
        self._leader_since_ms = 0
        self._detector = LeaderFailureDetector(self._timing)
        self._loss_unix_us: int | None = None  # when the loss of the last known leader was first detected
        self._reason: tuple[str, int] | None = None  # the reason to claim, and since when
        self._reason_since_ms = 0
        self._not_before_ms = 0  # the penalty after a lost term
        self._retry_claim_ms = 0
        self._given_up = 0  # the highest token that this coordinator must never use again
        self._penalty_ms = 0
        self._granted_ms = 0
        self._request: m.Join | m.ReadView | None = None  # in progress or to be repeated
        self._repeat_at_ms: int | None = None
        self._effects: list[m.Effect] = []
        self.story = Story("election")

    def start(self) -> list[m.Effect]:
        """The first effects: open a session."""
        self._effects = []
        self._open_session()
        return self._effects

    def handle(self, event: m.Event, now_ms: int) -> list[m.Effect]:
        """Handles one event; returns the effects in order."""
        self._effects = []
        if self.phase is Phase.STOPPED or getattr(event, "generation", self._generation) != self._generation:
            return []
        self.story.note(str(event), now_ms)
        self._react(event, now_ms)
        return self._effects

    def _react(self, event: m.Event, now_ms: int) -> None:  # noqa: C901  one case a kind
        match event:
            case m.Connected():
                self._connected(event)
            case m.Disconnected():
                self._disconnected()
            case m.Expired():
                self._expired(now_ms)
            case m.Joined():
                self._joined(event)
            case m.Viewed():
                self._viewed(event, now_ms)
            case m.Failed():
                self._failed(now_ms)
            case m.Changed():
                self._changed()
            case m.Claimed():
                self._claimed(event, now_ms)
            case m.ClaimFailed():
                self._claim_failed(event, now_ms)
            case m.LeaderGone():
                self._leader_gone(event, now_ms)
            case m.NotLeading():
                self._not_leading(event, now_ms)
            case m.Unanswering():
                self._unanswering(event, now_ms)
            case m.Silent():
                self._silent(event, now_ms)
            case m.Answered(token):
                self._detector.answered(token)
                self._reconsider(now_ms)
            case m.Probed():
                self._probed(event, now_ms)
            case m.Challenged():
                self._was_challenged(event, now_ms)
            case m.StepDown():
                self._step_down(event, now_ms)
            case m.TokenSeen():
                self._token_seen(event, now_ms)
            case m.Tick():
                self._tick(now_ms)
            case m.Stop():
                self._stop(event, now_ms)
            case _:
                assert_never(event)

    @property
    def generation(self) -> int:
        """The generation of the current session."""
        return self._generation

    # -- the session --------------------------------------------------------------------------------------------------

    def _connected(self, event: m.Connected) -> None:
        self._session = event.session
        if self.phase is Phase.OFFLINE:
            self._to(Phase.JOINING)
            self._ask(m.Join(self._generation, rejoin=False))
        elif self.phase is Phase.PAUSED:
            self._to(Phase.VERIFYING)
            self._ask(m.ReadView(self._generation))

    def _disconnected(self) -> None:
        self._request, self._repeat_at_ms = None, None
        if self._detector.is_open:
            self._detector.drop()  # a challenge proves nothing while ZooKeeper is unreachable
        if self.phase is Phase.LEADING:
            self._to(Phase.PAUSED)
            self._effects.append(m.Suspended())
        elif self.phase is Phase.VERIFYING:
            self._to(Phase.PAUSED)
        elif self.phase not in (Phase.OFFLINE, Phase.PAUSED):
            self._to(Phase.OFFLINE)

    def _expired(self, now_ms: int) -> None:
        if self.phase in HOLDING:
            self._revoke("ZooKeeper has expired the session", now_ms)
        if self.phase is not Phase.OFFLINE:
            self._to(Phase.OFFLINE)
        self._open_session()

    def _open_session(self) -> None:
        self._generation += 1
        self._session, self._contender, self.view = "", "", None
        self._request, self._repeat_at_ms = None, None
        self._effects.append(m.OpenSession(self._generation))

    def _joined(self, event: m.Joined) -> None:
        if self.phase is Phase.JOINING:
            self._contender = event.contender
            self._ask(m.ReadView(self._generation))

    # -- requests and retries ------------------------------------------------------------------------------------------

    def _ask(self, request: m.Join | m.ReadView) -> None:
        self._request, self._repeat_at_ms = request, None
        self._effects.append(request)

    def _failed(self, now_ms: int) -> None:
        if self._request is not None and self.phase not in (Phase.OFFLINE, Phase.PAUSED):
            self._repeat_at_ms = now_ms + self._timing.retry_ms
            self._effects.append(m.WakeAt(self._repeat_at_ms))

    def _changed(self) -> None:
        in_line = self.phase is Phase.JOINING and self._contender
        if in_line or self.phase in (Phase.STANDBY, Phase.LEADING, Phase.VERIFYING):
            self._ask(m.ReadView(self._generation))

    def _tick(self, now_ms: int) -> None:
        if self._repeat_at_ms is not None and self._request is not None:
            if now_ms >= self._repeat_at_ms:
                self._ask(self._request)
                return
            self._effects.append(m.WakeAt(self._repeat_at_ms))
        self._reconsider(now_ms)

    # -- views of ZooKeeper's data -------------------------------------------------------------------------------------

    def _viewed(self, event: m.Viewed, now_ms: int) -> None:
        known = self.view.epoch if self.view is not None else 0
        if event.view.epoch < max(known, self.grant.token if self.grant else 0):
            self._failed(now_ms)  # older than the known state: `/epoch` never decreases
            return
        if self.phase in (Phase.OFFLINE, Phase.PAUSED, Phase.CLAIMING):
            return  # late: a newer view will be requested
        if self.phase is Phase.JOINING and not self._contender:
            return  # read before the contender existed
        self._request, self._repeat_at_ms = None, None
        self.view = event.view
        if self.phase in (Phase.LEADING, Phase.VERIFYING):
            self._verify(event, now_ms)
            return
        self._note_leader(event.view, event.unix_us, now_ms)
        if self._detector.can_be_answered and not event.view.challenged:
            self._detector.clear(now_ms)
        if self.phase is Phase.JOINING:
            self._to(Phase.STANDBY)
        self._consider(event.view, now_ms)

    def _note_leader(self, view: m.View, unix_us: int, now_ms: int) -> None:
        former, self.leader = self.leader, view.leader
        if view.leader is None:
            if former is not None and self._loss_unix_us is None:
                self._loss_unix_us = unix_us
        elif former is None or former.token != view.leader.token:
            if self._known_token != view.leader.token:
                self._loss_unix_us = None
            self._leader_since_ms = now_ms
            self._known_token = view.leader.token
        if view.leader is not None and self._is_previous_process(view):
            self._detector.suspect(view.leader.token, unix_us, probes_port=False)
        if not self._notified or former != view.leader:
            self._notified = True
            self._effects.append(m.LeaderChanged(view.leader))

    def _is_previous_process(self, view: m.View) -> bool:
        """A leader at the address that this process serves has normally ended: this process has replaced it.

        Normally only: another machine may advertise the same address by mistake. So that leader is challenged.
        """
        leader = view.leader
        return (
            leader is not None
            and not view.leader_is_mine
            and leader.address == self._me.address
            and self.phase not in HOLDING
        )

    def _verify(self, event: m.Viewed, now_ms: int) -> None:
        view, grant = event.view, self.grant
        assert grant is not None  # in phases that hold a grant
        if view.leader is not None and view.leader_is_mine and view.leader.token == view.epoch == grant.token:
            self._note_leader(view, event.unix_us, now_ms)
            if view.challenged:
                self._effects.append(m.AnswerChallenge(self._generation))
            if self.phase is Phase.VERIFYING:
                self._to(Phase.LEADING)
                self._effects.append(m.Resumed())
            return
        holder = "no coordinator" if view.leader is None else f"{view.leader.address} with token {view.leader.token}"
        self._revoke(f"ZooKeeper names {holder} the leader, at epoch {view.epoch}", now_ms)
        self._note_leader(view, event.unix_us, now_ms)
        self._rejoin()

    # -- evidence -----------------------------------------------------------------------------------------------------

    def _leader_gone(self, event: m.LeaderGone, now_ms: int) -> None:
        if self.phase in HOLDING or event.token < self._known_token:
            return
        is_here = self.leader is not None and self.leader.address == self._me.address
        self._detector.suspect(event.token, event.unix_us, probes_port=not is_here)
        if self.phase is not Phase.STANDBY or self.view is None:
            return  # considered with the next view
        if event.token > self._known_token:
            self._ask(m.ReadView(self._generation))  # the reporter knows more than the last view
        else:
            self._consider(self.view, now_ms)

    def _not_leading(self, event: m.NotLeading, now_ms: int) -> None:
        if now_ms - self._leader_since_ms >= self._timing.not_leading_grace_ms:
            self._confirm_loss(event.token, event.unix_us, Grounds.NOT_LEADER, now_ms)

    def _unanswering(self, event: m.Unanswering, now_ms: int) -> None:
        """Its elector may be alive, and answer challenges: but for its clients it is unavailable."""
        self._confirm_loss(event.token, event.unix_us, Grounds.SILENT, now_ms)

    def _silent(self, event: m.Silent, now_ms: int) -> None:
        """A frozen leader accepts connections, as a slow one does: only the second answers, sooner or later."""
        if self._may_be_lost(event.token):
            self._detector.silent(event.token, event.unix_us, event.patience_ms)
            self._reconsider(now_ms)

    def _confirm_loss(self, token: int, unix_us: int, grounds: Grounds, now_ms: int) -> None:
        if self._may_be_lost(token):
            self._detector.confirm(token, unix_us, grounds)
            self._reconsider(now_ms)

    def _may_be_lost(self, token: int) -> bool:
        """Whether a report is about the present leader, and not of this process, which was asked at its own address."""
        leader = self.leader
        is_present = self.phase not in HOLDING and leader is not None and leader.token == token
        return is_present and leader is not None and leader.address != self._me.address

    def _probed(self, event: m.Probed, now_ms: int) -> None:
        self._detector.probed(event.token, event.answer, now_ms)
        self._reconsider(now_ms)

    def _was_challenged(self, event: m.Challenged, now_ms: int) -> None:
        self._detector.challenged(event.token, event.posted, now_ms)
        self._reconsider(now_ms)

    # -- claiming -----------------------------------------------------------------------------------------------------

    def _reconsider(self, now_ms: int) -> None:
        if self.phase is Phase.STANDBY and self.view is not None:
            self._consider(self.view, now_ms)

    def _consider(self, view: m.View, now_ms: int) -> None:
        """In STANDBY: claims, probes or waits, depending on the view and the evidence."""
        if all(contender.name != self._contender for contender in view.contenders):
            self._rejoin()
        elif view.leader is not None and view.leader_is_mine and view.leader.token > self._given_up:
            self._accept_grant(view.leader.token, view.epoch_version, now_ms)  # a claim whose answer was lost
        elif view.leader is None or view.leader_is_mine:
            self._claim_in_turn("no leader", view, now_ms)
        elif self._detector.token == view.leader.token:
            self._act_on_suspicion(view, view.leader, now_ms)
        else:
            self._reason = None

    def _act_on_suspicion(self, view: m.View, leader: LeaderRecord, now_ms: int) -> None:
        self._effects += self._detector.next_step(leader, self._generation, now_ms)
        if self._detector.confirmed:
            if self._loss_unix_us is None:
                self._loss_unix_us = self._detector.unix_us
            self._claim_in_turn("the leader is gone", view, now_ms)

    def _claim_in_turn(self, why: str, view: m.View, now_ms: int) -> None:
        if self._reason != (why, view.epoch):
            self._reason, self._reason_since_ms = (why, view.epoch), now_ms
        rank, others = self._place(view)
        at_ms = max(self._reason_since_ms + rank * self._timing.rank_delay_ms, self._retry_claim_ms)
        if others:
            at_ms = max(at_ms, self._not_before_ms)
        if now_ms < at_ms:
            self._effects.append(m.WakeAt(at_ms))
            return
        self._to(Phase.CLAIMING)
        replaces = view.leader is not None
        grounds = self._detector.grounds if replaces else None
        unanswered = replaces and self._detector.rests_on_challenge
        words = "there was no leader" if grounds is None else grounds.value
        claim = m.Claim(
            self._generation, self._contender, view.epoch_version, view.epoch + 1, replaces, unanswered, words
        )
        self._effects.append(claim)

    def _place(self, view: m.View) -> tuple[int, int]:
        """(contenders before this coordinator in line, all other contenders), without those known to be dead.

        A contender with this coordinator's own address is not certainly dead: it is skipped, but still counted.
        """
        # an earlier process at the same address must be dead, though its node is still in line
        dead = {self._me.address}
        if view.leader is not None and not view.leader_is_mine:
            dead.add(view.leader.address)
        line = [(contender.name, contender.record.address) for contender in view.contenders]
        alive = [name for name, address in line if name == self._contender or address not in dead]
        here = sum(name != self._contender and address == self._me.address for name, address in line)
        return alive.index(self._contender), len(alive) - 1 + here

    def _claimed(self, event: m.Claimed, now_ms: int) -> None:
        if self.phase is Phase.CLAIMING:  # otherwise late: the next view shows the same
            version = None if self.view is None else self.view.epoch_version + 1  # it was claimed at that epoch
            self._accept_grant(event.token, version, now_ms)

    def _claim_failed(self, event: m.ClaimFailed, now_ms: int) -> None:
        if self.phase is not Phase.CLAIMING:
            return
        self._to(Phase.STANDBY)
        self._retry_claim_ms = now_ms + self._timing.retry_ms
        if event.failure is m.ClaimFailure.REFUSED:
            self._ask(m.ReadView(self._generation))
        else:
            self._request, self._repeat_at_ms = m.ReadView(self._generation), self._retry_claim_ms
            self._effects.append(m.WakeAt(self._retry_claim_ms))

    # -- leadership ---------------------------------------------------------------------------------------------------

    def _accept_grant(self, token: int, epoch_version: int | None, now_ms: int) -> None:
        self._to(Phase.LEADING)
        self.grant = LeadershipGrant(token, self._me.coordinator_id, self._session, epoch_version)
        self._granted_ms = now_ms
        self._effects.append(m.Granted(self.grant, self._loss_unix_us))
        self._loss_unix_us, self._reason = None, None
        self._detector.forget()
        self._ask(m.ReadView(self._generation))

    def _step_down(self, event: m.StepDown, now_ms: int) -> None:
        if self.grant is None or event.token not in (0, self.grant.token):
            return  # late: it refers to an earlier grant
        self._give_up(event.reason, self.grant.token, now_ms)

    def _token_seen(self, event: m.TokenSeen, now_ms: int) -> None:
        """A token that a peer names proves nothing: one message with the largest possible token would shut out every
        leader for good.

        So ZooKeeper is asked, and the next grant takes the number after its epoch, whatever the peer named. While it
        cannot be asked, the peer is believed as far as the current term is concerned: that is how a leader that alone
        is cut off learns that it was replaced.
        """
        if self.grant is None or event.token <= self.grant.token:
            return
        if self.phase is Phase.PAUSED:
            self._give_up(event.reason, self.grant.token, now_ms)
        else:
            self._ask(m.ReadView(self._generation))

    def _give_up(self, reason: str, token: int, now_ms: int) -> None:
        paused = self.phase is Phase.PAUSED
        self._revoke(reason, now_ms)
        if paused:
            self._to(Phase.OFFLINE)  # `/leader` will be released when the connection is back
        else:
            self._effects.append(m.Release(self._generation, token, self._contender))
            self._rejoin()

    def _revoke(self, reason: str, now_ms: int) -> None:
        """Ends the grant; the caller moves on to the next phase."""
        assert self.grant is not None  # in phases that hold a grant
        self._given_up = max(self._given_up, self.grant.token)
        self.grant = None
        timing = self._timing
        stable = now_ms - self._granted_ms >= timing.stable_ms
        self._penalty_ms = timing.penalty_ms if stable else min(self._penalty_ms * 2, timing.penalty_max_ms)
        self._penalty_ms = max(self._penalty_ms, timing.penalty_ms)
        self._not_before_ms = now_ms + self._penalty_ms
        self._effects.append(m.Revoked(reason))

    def _rejoin(self) -> None:
        self._to(Phase.JOINING)
        self._contender, self.view = "", None
        self._ask(m.Join(self._generation, rejoin=True))

    def _stop(self, event: m.Stop, now_ms: int) -> None:
        if self.grant is not None:
            token = self.grant.token
            self._revoke("the coordinator is stopping", now_ms)
            if event.release:
                self._effects.append(m.Release(self._generation, token, self._contender))
        self._to(Phase.STOPPED)
        self._effects.append(m.CloseSession(abandon=not event.release))

    def _to(self, phase: Phase) -> None:
        self.phase = self.story.move(TRANSITIONS, self.phase, phase)
