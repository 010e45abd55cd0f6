"""LeaderElection: what it does on every message, also late, twice, out of order, and from an earlier session."""

from __future__ import annotations

import dataclasses

import pytest
from lockgate_common.story import IllegalTransition
from lockgate_ha import election_messages as msg
from lockgate_ha.election import LeaderElection, Phase
from lockgate_ha.election_timing import ElectionTiming
from lockgate_ha.grant import LeadershipGrant
from lockgate_proto.messages import LeaderRecord

ME = LeaderRecord(coordinator_id="me", address="me:1", pid=1)
MINE = msg.Contender("c-me-0000000005", LeaderRecord(coordinator_id="me", address="me:1", session="5"))
OLD_LEADER = msg.Contender("c-old-0000000001", LeaderRecord(coordinator_id="old", address="old:1", session="1"))
FIRST = msg.Contender("c-first-0000000002", LeaderRecord(coordinator_id="first", address="first:1", session="2"))
LEADER = LeaderRecord(token=7, address="old:1", session="1", coordinator_id="old")
TIMING = ElectionTiming()


def view(
    leader: LeaderRecord | None = LEADER,
    *,
    epoch: int = 7,
    mine: bool = False,
    line: tuple[msg.Contender, ...] = (OLD_LEADER, MINE),
    challenged: bool = False,
) -> msg.View:
    return msg.View(epoch, epoch, leader, mine, line, challenged)


class Driver:
    """A machine, its time, and what it asked for last."""

    def __init__(self) -> None:
        self.machine = LeaderElection(ME)
        self.now_ms = 10_000
        assert self.machine.start() == [msg.OpenSession(1)]

    def __call__(self, *events: msg.Event) -> list[msg.Effect]:
        effects: list[msg.Effect] = []
        for event in events:
            effects += self.machine.handle(event, self.now_ms)
        return effects

    def later(self, ms: int) -> list[msg.Effect]:
        self.now_ms += ms
        return self(msg.Tick())

    @property
    def phase(self) -> Phase:
        return self.machine.phase


def doubts(drive: Driver, token: int = 7) -> list[msg.Effect]:
    """What a first doubt about the leader brings about."""
    return [msg.Probe(token, "old:1"), msg.WakeAt(drive.now_ms + TIMING.probe_timeout_ms)]


@pytest.fixture
def joined() -> Driver:
    drive = Driver()
    assert drive(msg.Connected(1, "5")) == [msg.Join(1, rejoin=False)]
    assert drive(msg.Joined(1, MINE.name)) == [msg.ReadView(1)]
    return drive


@pytest.fixture
def standby(joined: Driver) -> Driver:
    assert joined(msg.Viewed(1, view(), 1)) == [msg.LeaderChanged(LEADER)]
    assert joined.phase is Phase.STANDBY
    return joined


@pytest.fixture
def leading(joined: Driver) -> Driver:
    own = view(None, line=(MINE,))
    assert joined(msg.Viewed(1, own, 1)) == [msg.LeaderChanged(None), msg.Claim(1, MINE.name, 7, 8, False)]
    granted = msg.Granted(LeadershipGrant(8, "me", "5"), None)
    assert joined(msg.Claimed(1, 8)) == [granted, msg.ReadView(1)]
    assert joined.machine.grant is not None
    assert joined.machine.grant.epoch_version == own.epoch_version + 1
    return joined


def my_leader(token: int = 8) -> LeaderRecord:
    return LeaderRecord(token=token, address="me:1", session="5", coordinator_id="me")


def my_view(token: int = 8) -> msg.View:
    return view(my_leader(token), epoch=token, mine=True, line=(MINE,))


# -- the first in line ------------------------------------------------------------------------------------------------


def test_first_in_line_claims_a_vacancy_at_once(leading: Driver) -> None:
    assert leading.phase is Phase.LEADING


def test_second_in_line_waits_its_turn_and_then_claims(joined: Driver) -> None:
    effects = joined(msg.Viewed(1, view(None, line=(FIRST, MINE)), 1))
    assert effects == [msg.LeaderChanged(None), msg.WakeAt(joined.now_ms + TIMING.rank_delay_ms)]
    assert joined.later(TIMING.rank_delay_ms - 1)[-1] == msg.WakeAt(joined.now_ms + 1)
    assert joined.later(1) == [msg.Claim(1, MINE.name, 7, 8, False)]


def test_no_claim_while_a_leader_is_there(standby: Driver) -> None:
    assert standby.later(1_000_000) == []


def test_losing_the_race_looks_again_and_stands_by(joined: Driver) -> None:
    joined(msg.Viewed(1, view(None), 1))
    assert joined.phase is Phase.STANDBY  # the other contender is first
    joined.later(TIMING.rank_delay_ms)
    assert joined(msg.ClaimFailed(1, msg.ClaimFailure.REFUSED)) == [msg.ReadView(1)]
    assert joined(msg.Viewed(1, view(dataclasses.replace(LEADER, token=8), epoch=8), 1))[0].leader.token == 8  # type: ignore[union-attr]
    assert joined.later(1_000_000) == []


def test_a_refused_claim_is_never_repeated_hot(joined: Driver) -> None:
    vacancy = view(None, line=(MINE,))
    joined(msg.Viewed(1, vacancy, 1), msg.ClaimFailed(1, msg.ClaimFailure.REFUSED))
    assert joined(msg.Viewed(1, vacancy, 1)) == [msg.WakeAt(joined.now_ms + TIMING.retry_ms)]


def test_a_lost_contender_is_recreated(standby: Driver) -> None:
    assert standby(msg.Viewed(1, view(line=(OLD_LEADER,)), 1)) == [msg.Join(1, rejoin=True)]


# -- evidence ---------------------------------------------------------------------------------------------------------


def test_refused_connection_is_evidence_and_the_first_in_line_claims_at_once(standby: Driver) -> None:
    assert standby(msg.LeaderGone(7, 123)) == doubts(standby)
    assert standby(msg.Probed(7, msg.ProbeAnswer.REFUSED)) == [msg.Claim(1, MINE.name, 7, 8, True)]
    assert standby(msg.Claimed(1, 8))[0] == msg.Granted(LeadershipGrant(8, "me", "5"), 123)


def test_evidence_makes_the_second_in_line_wait(joined: Driver) -> None:
    joined(msg.Viewed(1, view(line=(OLD_LEADER, FIRST, MINE)), 1), msg.LeaderGone(7, 123))
    assert joined(msg.Probed(7, msg.ProbeAnswer.REFUSED)) == [msg.WakeAt(joined.now_ms + TIMING.rank_delay_ms)]
    taken = dataclasses.replace(LEADER, token=8, address="first:1", session="2")
    joined(msg.Viewed(1, view(taken, epoch=8, line=(FIRST, MINE)), 1))
    assert joined.later(TIMING.rank_delay_ms) == []


def test_an_earlier_process_at_the_dead_leaders_address_is_not_waited_for(joined: Driver) -> None:
    earlier = dataclasses.replace(OLD_LEADER, record=dataclasses.replace(OLD_LEADER.record, session="77"))
    joined(msg.Viewed(1, view(line=(earlier, OLD_LEADER, MINE)), 1), msg.LeaderGone(7, 123))
    assert joined(msg.Probed(7, msg.ProbeAnswer.REFUSED)) == [msg.Claim(1, MINE.name, 7, 8, True)]


def test_an_answering_leader_is_left_alone(standby: Driver) -> None:
    standby(msg.LeaderGone(7, 123))
    assert standby(msg.Probed(7, msg.ProbeAnswer.ACCEPTED)) == []
    assert standby.later(1_000_000) == []


def test_repeated_reports_probe_once_at_a_time(standby: Driver) -> None:
    probe, wake = doubts(standby)
    assert standby(msg.LeaderGone(7, 1), msg.LeaderGone(7, 2)) == [probe, wake, wake]
    standby(msg.Probed(7, msg.ProbeAnswer.ACCEPTED))
    assert standby(msg.LeaderGone(7, 3)) == [probe, wake]


def test_late_report_of_a_former_leader_is_ignored(standby: Driver) -> None:
    assert standby(msg.LeaderGone(6, 1)) == []


def test_late_probe_answer_about_a_former_leader_is_ignored(standby: Driver) -> None:
    standby(msg.LeaderGone(7, 1))
    standby(msg.Viewed(1, view(dataclasses.replace(LEADER, token=8), epoch=8), 1))
    assert standby(msg.Probed(7, msg.ProbeAnswer.REFUSED)) == []


def test_second_probe_answer_does_nothing(standby: Driver) -> None:
    standby(msg.LeaderGone(7, 1), msg.Probed(7, msg.ProbeAnswer.REFUSED))
    assert standby(msg.Probed(7, msg.ProbeAnswer.REFUSED)) == []


def test_report_about_a_leader_not_yet_seen_makes_it_look_first(standby: Driver) -> None:
    assert standby(msg.LeaderGone(8, 1)) == [msg.ReadView(1)]
    newer = dataclasses.replace(LEADER, token=8)
    assert standby(msg.Viewed(1, view(newer, epoch=8), 1)) == [msg.LeaderChanged(newer), *doubts(standby, 8)]


def test_not_leading_counts_only_after_the_grace(standby: Driver) -> None:
    assert standby(msg.NotLeading(7, 5)) == []
    standby.now_ms += TIMING.not_leading_grace_ms
    assert standby(msg.NotLeading(6, 5)) == []
    assert standby(msg.NotLeading(7, 5)) == [msg.Claim(1, MINE.name, 7, 8, True)]


HELD_HERE = dataclasses.replace(LEADER, address="me:1")
FORMER = msg.Contender("c-x-0000000001", LeaderRecord(coordinator_id="x", address="me:1", session="1"))


def test_a_restarted_coordinator_challenges_its_former_self_at_once(joined: Driver) -> None:
    effects = joined(msg.Viewed(1, view(HELD_HERE, line=(FORMER, MINE)), 1))
    assert effects == [msg.LeaderChanged(HELD_HERE), msg.Challenge(1, 7)]
    joined(msg.Challenged(1, 7, posted=True))
    unanswered = view(HELD_HERE, line=(FORMER, MINE), challenged=True)
    assert joined(msg.Viewed(1, unanswered, 1)) == [msg.WakeAt(joined.now_ms + TIMING.challenge_ms)]
    assert joined.later(TIMING.challenge_ms) == [msg.Claim(1, MINE.name, 7, 8, True, True)]


def test_a_live_leader_that_advertises_the_same_address_is_left_in_peace(joined: Driver) -> None:
    joined(msg.Viewed(1, view(HELD_HERE, line=(FORMER, MINE)), 1), msg.Challenged(1, 7, posted=True))
    answered = view(HELD_HERE, line=(FORMER, MINE))
    assert joined(msg.Viewed(1, answered, 1)) == []
    joined.now_ms += TIMING.not_leading_grace_ms
    assert joined(msg.NotLeading(7, 1)) == []  # the own process said so, at the own address
    assert joined(msg.Viewed(1, answered, 1)) == []  # spared
    joined.now_ms += TIMING.spare_ms
    assert joined(msg.Viewed(1, answered, 1)) == [msg.Challenge(1, 7)]


def test_a_coordinator_that_lost_its_term_yields_to_another_one_at_the_same_address(leading: Driver) -> None:
    twin = msg.Contender("c-twin-0000000009", LeaderRecord(coordinator_id="twin", address="me:1", session="9"))
    again = msg.Contender("c-me-0000000010", MINE.record)
    leading(msg.StepDown("a write was refused", 8), msg.Joined(1, again.name))
    waiting = leading(msg.Viewed(1, view(None, epoch=8, line=(twin, again)), 1))
    assert not any(isinstance(effect, msg.Claim) for effect in waiting)
    assert leading.later(TIMING.penalty_ms) == [msg.Claim(1, again.name, 8, 9, False)]


def test_a_report_while_suspended_is_acted_on_when_the_view_is_back(standby: Driver) -> None:
    standby(msg.Disconnected(1))
    assert standby(msg.LeaderGone(7, 9)) == []
    standby(msg.Connected(1, "5"), msg.Joined(1, MINE.name))
    assert standby(msg.Viewed(1, view(), 1)) == doubts(standby)


def test_the_leader_ignores_reports_about_itself(leading: Driver) -> None:
    leading(msg.Viewed(1, my_view(), 1))
    assert leading(msg.LeaderGone(8, 1), msg.NotLeading(8, 1), msg.Probed(8, msg.ProbeAnswer.REFUSED)) == []


# -- the challenge ----------------------------------------------------------------------------------------------------


@pytest.fixture
def challenging(standby: Driver) -> Driver:
    """The leader's address does not answer, so it was challenged."""
    standby(msg.LeaderGone(7, 123))
    assert standby.later(TIMING.probe_timeout_ms - 1) == [msg.WakeAt(standby.now_ms + 1)]
    assert standby.later(1) == [msg.Challenge(1, 7)]
    assert standby(msg.Challenged(1, 7, posted=True)) == [msg.WakeAt(standby.now_ms + TIMING.challenge_ms)]
    assert standby(msg.Viewed(1, view(challenged=True), 1)) == [msg.WakeAt(standby.now_ms + TIMING.challenge_ms)]
    return standby


def test_a_leader_that_answers_nowhere_is_replaced(challenging: Driver) -> None:
    assert challenging.later(TIMING.challenge_ms) == [msg.Claim(1, MINE.name, 7, 8, True, True)]
    assert challenging(msg.Claimed(1, 8))[0] == msg.Granted(LeadershipGrant(8, "me", "5"), 123)


def test_a_late_verdict_is_withdrawn_by_the_answer(challenging: Driver) -> None:
    """This process was stopped: the leader has answered long ago, and the clock is looked at before the news."""
    assert challenging.later(TIMING.challenge_ms) == [msg.Claim(1, MINE.name, 7, 8, True, True)]
    assert challenging(msg.ClaimFailed(1, msg.ClaimFailure.REFUSED)) == [msg.ReadView(1)]
    assert challenging(msg.Viewed(1, view(), 1)) == []
    assert challenging.later(TIMING.retry_ms + TIMING.challenge_ms) == []


def test_an_unreachable_network_does_not_wait_for_the_probe(standby: Driver) -> None:
    standby(msg.LeaderGone(7, 123))
    assert standby(msg.Probed(7, msg.ProbeAnswer.NONE)) == [msg.Challenge(1, 7)]


def test_a_leader_that_answers_the_challenge_keeps_its_place(challenging: Driver) -> None:
    assert challenging(msg.Viewed(1, view(), 1)) == []
    assert challenging.later(1_000_000) == []


def test_a_leader_that_has_answered_is_spared_for_a_while_but_still_probed(challenging: Driver) -> None:
    challenging(msg.Viewed(1, view(), 1), msg.Probed(7, msg.ProbeAnswer.NONE))
    assert msg.Probe(7, "old:1") in challenging(msg.LeaderGone(7, 124))
    assert challenging.later(TIMING.probe_timeout_ms) == []
    assert challenging(msg.Probed(7, msg.ProbeAnswer.NONE)) == []
    challenging.now_ms += TIMING.spare_ms
    challenging(msg.LeaderGone(7, 125))
    assert challenging(msg.Probed(7, msg.ProbeAnswer.NONE)) == [msg.Challenge(1, 7)]


def test_a_refused_connection_counts_during_a_challenge(challenging: Driver) -> None:
    assert challenging(msg.Probed(7, msg.ProbeAnswer.REFUSED)) == [msg.Claim(1, MINE.name, 7, 8, True)]


def test_an_accepted_connection_counts_during_a_challenge(challenging: Driver) -> None:
    assert challenging(msg.Probed(7, msg.ProbeAnswer.ACCEPTED)) == []
    assert challenging.later(1_000_000) == []


def test_a_challenge_that_could_not_be_made_proves_nothing(standby: Driver) -> None:
    standby(msg.LeaderGone(7, 123), msg.Probed(7, msg.ProbeAnswer.NONE))
    assert standby(msg.Challenged(1, 7, posted=False)) == []
    assert standby.later(1_000_000) == []


def test_a_challenge_counts_for_nothing_after_a_loss_of_zookeeper(challenging: Driver) -> None:
    challenging(msg.Disconnected(1), msg.Connected(1, "5"), msg.Joined(1, MINE.name))
    challenging.now_ms += TIMING.challenge_ms
    assert challenging(msg.Viewed(1, view(challenged=True), 1)) == []


def test_a_late_challenge_of_a_former_leader_does_not_hit_the_next_one(challenging: Driver) -> None:
    newer = dataclasses.replace(LEADER, token=8)
    challenging(msg.Viewed(1, view(newer, epoch=8, challenged=True), 1))
    assert challenging.later(TIMING.challenge_ms) == []
    assert challenging(msg.LeaderGone(8, 1)) == doubts(challenging, 8)


def test_the_leader_answers_a_challenge(leading: Driver) -> None:
    leading(msg.Viewed(1, my_view(), 1))
    assert leading(msg.Changed(1)) == [msg.ReadView(1)]
    own = dataclasses.replace(my_view(), challenged=True)
    assert leading(msg.Viewed(1, own, 1)) == [msg.AnswerChallenge(1)]


def test_a_leader_that_was_replaced_answers_nothing(leading: Driver) -> None:
    leading(msg.Viewed(1, my_view(), 1))
    newer = dataclasses.replace(LEADER, token=9)
    effects = leading(msg.Viewed(1, view(newer, epoch=9, challenged=True), 1))
    assert msg.AnswerChallenge(1) not in effects


# -- holding on -------------------------------------------------------------------------------------------------------


def test_suspended_leader_keeps_its_grant_for_any_time(leading: Driver) -> None:
    assert leading(msg.Disconnected(1)) == [msg.Suspended()]
    assert leading.later(10_000_000) == []
    assert leading.machine.grant == LeadershipGrant(8, "me", "5")


def test_resumed_only_after_verifying(leading: Driver) -> None:
    leading(msg.Disconnected(1))
    assert leading(msg.Connected(1, "5")) == [msg.ReadView(1)]
    assert leading.phase is Phase.VERIFYING
    assert leading(msg.Viewed(1, my_view(), 1))[-1] == msg.Resumed()


@pytest.mark.parametrize(
    "now_there",
    [
        view(dataclasses.replace(LEADER, token=9), epoch=9),
        view(None, epoch=8),
        view(my_leader(8), epoch=9, mine=True),
        view(my_leader(8), epoch=8, mine=False),
    ],
    ids=["another leader", "no leader node", "a higher epoch", "a node of another session"],
)
@pytest.mark.parametrize("away", [True, False], ids=["after suspension", "while connected"])
def test_a_leader_that_no_longer_holds_everything_is_revoked(leading: Driver, now_there: msg.View, away: bool) -> None:
    if away:
        leading(msg.Disconnected(1), msg.Connected(1, "5"))
    effects = leading(msg.Viewed(1, now_there, 1))
    assert isinstance(effects[0], msg.Revoked)
    assert effects[-1] == msg.Join(1, rejoin=True)
    assert leading.machine.grant is None


def test_expired_session_revokes_and_contends_in_a_new_one(leading: Driver) -> None:
    leading(msg.Disconnected(1))
    assert leading(msg.Expired(1)) == [msg.Revoked("ZooKeeper has expired the session"), msg.OpenSession(2)]
    assert leading(msg.Connected(2, "6")) == [msg.Join(2, rejoin=False)]


def test_suspension_while_verifying_is_not_reported_twice(leading: Driver) -> None:
    leading(msg.Disconnected(1), msg.Connected(1, "5"))
    assert leading(msg.Disconnected(1)) == []
    assert leading.phase is Phase.PAUSED


def test_failed_verification_read_is_repeated_after_a_pause(leading: Driver) -> None:
    leading(msg.Disconnected(1), msg.Connected(1, "5"))
    assert leading(msg.Failed(1)) == [msg.WakeAt(leading.now_ms + TIMING.retry_ms)]
    assert leading.later(TIMING.retry_ms) == [msg.ReadView(1)]


def test_a_view_older_than_the_grant_revokes_nothing(leading: Driver) -> None:
    effects = leading(msg.Viewed(1, view(), 1))
    assert not any(isinstance(effect, msg.Revoked) for effect in effects)
    assert leading.phase is Phase.LEADING


# -- claims whose answer is lost or late -----------------------------------------------------------------------------


def test_a_claim_with_unknown_outcome_is_taken_up_when_the_node_is_ours(joined: Driver) -> None:
    joined(msg.Viewed(1, view(None, line=(MINE,)), 1))
    joined(
        msg.ClaimFailed(1, msg.ClaimFailure.UNKNOWN),
        msg.Disconnected(1),
        msg.Connected(1, "5"),
        msg.Joined(1, MINE.name),
    )
    assert msg.Granted(LeadershipGrant(8, "me", "5"), None) in joined(msg.Viewed(1, my_view(), 1))


def test_a_claim_with_unknown_outcome_is_repeated_when_no_one_leads(joined: Driver) -> None:
    joined(msg.Viewed(1, view(None, line=(MINE,)), 1), msg.ClaimFailed(1, msg.ClaimFailure.UNKNOWN))
    assert joined.later(TIMING.retry_ms) == [msg.ReadView(1)]
    assert joined(msg.Viewed(1, view(None, line=(MINE,)), 1)) == [msg.Claim(1, MINE.name, 7, 8, False)]


def test_a_late_claim_answer_after_disconnection_waits_for_the_view(joined: Driver) -> None:
    joined(msg.Viewed(1, view(None, line=(MINE,)), 1), msg.Disconnected(1))
    assert joined(msg.Claimed(1, 8)) == []
    assert joined.machine.grant is None


def test_a_second_claim_answer_does_nothing(leading: Driver) -> None:
    assert leading(msg.Claimed(1, 8), msg.ClaimFailed(1, msg.ClaimFailure.REFUSED)) == []


def test_events_of_an_earlier_session_do_nothing(leading: Driver) -> None:
    leading(msg.Expired(1))
    late: list[msg.Event] = [
        msg.Connected(1, "5"),
        msg.Disconnected(1),
        msg.Expired(1),
        msg.Joined(1, MINE.name),
        msg.Viewed(1, my_view(), 1),
        msg.Failed(1),
        msg.Changed(1),
        msg.Claimed(1, 8),
        msg.ClaimFailed(1, msg.ClaimFailure.REFUSED),
    ]
    assert leading(*late) == []
    assert leading.phase is Phase.OFFLINE


def test_a_leader_that_accepts_connections_and_answers_none_is_replaced(standby: Driver) -> None:
    assert standby(msg.Unanswering(6, 1)) == []  # of an earlier one
    effects = standby(msg.Unanswering(7, 1))
    assert effects == [msg.Claim(1, MINE.name, 7, 8, True)]
    assert effects[0].why == "the leader accepts connections but does not answer"  # type: ignore[union-attr]


def test_a_leader_is_not_deposed_by_a_false_report(leading: Driver) -> None:
    leading(msg.Viewed(1, my_view(), 1))
    assert leading(msg.Unanswering(8, 1)) == []
    assert leading.phase is Phase.LEADING


# -- a silent leader --------------------------------------------------------------------------------------------------

PATIENCE_MS = 1_000
LOOK_MS = 100


@pytest.fixture
def asked(standby: Driver) -> Driver:
    """The leader sends nothing, so it was asked by a call and challenged."""
    assert standby(msg.Silent(7, 123, PATIENCE_MS)) == [msg.Challenge(1, 7)]
    assert standby(msg.Challenged(1, 7, posted=True)) == [msg.WakeAt(standby.now_ms + LOOK_MS)]
    assert standby(msg.Viewed(1, view(challenged=True), 1)) == [msg.WakeAt(standby.now_ms + LOOK_MS)]
    return standby


def wait_for(drive: Driver, ms: int) -> list[msg.Effect]:
    """The effects while so much time passes for a process that runs, those that only ask to be woken left out."""
    found: list[msg.Effect] = []
    for _ in range(ms // LOOK_MS):
        found += drive.later(LOOK_MS)
    return [effect for effect in found if not isinstance(effect, msg.WakeAt)]


def test_a_frozen_leader_answers_nothing_and_is_replaced_when_its_patience_ends(asked: Driver) -> None:
    assert wait_for(asked, PATIENCE_MS - LOOK_MS) == []
    claim = asked.later(LOOK_MS)
    assert claim == [msg.Claim(1, MINE.name, 7, 8, True, unanswered=True)]
    assert claim[0].why == "the leader answers neither calls nor a challenge"  # type: ignore[union-attr]
    assert asked(msg.Claimed(1, 8))[0] == msg.Granted(LeadershipGrant(8, "me", "5"), 123)


def test_a_slow_leader_that_answers_a_call_late_is_kept(asked: Driver) -> None:
    assert wait_for(asked, PATIENCE_MS - LOOK_MS) == []
    assert asked(msg.Answered(7)) == []
    assert wait_for(asked, 10 * PATIENCE_MS) == []


def test_a_slow_leader_that_answers_the_challenge_late_is_kept_and_spared(asked: Driver) -> None:
    assert wait_for(asked, PATIENCE_MS - LOOK_MS) == []
    assert asked(msg.Viewed(1, view(), 1)) == []
    assert asked(msg.Silent(7, 124, PATIENCE_MS)) == []
    assert wait_for(asked, TIMING.spare_ms - LOOK_MS) == []
    assert wait_for(asked, LOOK_MS) == [msg.Challenge(1, 7)]


@pytest.mark.parametrize("answer", [msg.Answered(7), msg.Viewed(1, view(), 1)], ids=["a call", "the challenge"])
def test_an_answer_while_the_turn_to_claim_is_awaited_keeps_the_leader(joined: Driver, answer: msg.Event) -> None:
    joined(msg.Viewed(1, view(line=(OLD_LEADER, FIRST, MINE)), 1))
    joined(msg.Silent(7, 123, PATIENCE_MS), msg.Challenged(1, 7, posted=True))
    joined(msg.Viewed(1, view(line=(OLD_LEADER, FIRST, MINE), challenged=True), 1))
    assert wait_for(joined, PATIENCE_MS) == []
    if isinstance(answer, msg.Viewed):
        answer = msg.Viewed(1, view(line=(OLD_LEADER, FIRST, MINE)), 1)
    assert joined(answer) == []
    assert wait_for(joined, 10 * PATIENCE_MS) == []


def test_an_answer_before_the_claim_arrives_refuses_it(asked: Driver) -> None:
    """The leader has deleted the challenge: the transaction fails, and the view shows why."""
    wait_for(asked, PATIENCE_MS)
    assert asked.phase is Phase.CLAIMING
    assert asked(msg.ClaimFailed(1, msg.ClaimFailure.REFUSED)) == [msg.ReadView(1)]
    assert asked(msg.Viewed(1, view(), 1)) == []
    assert wait_for(asked, 10 * PATIENCE_MS) == []


def test_time_in_which_the_standby_itself_stood_still_counts_for_little(asked: Driver) -> None:
    assert asked.later(60_000) == [msg.WakeAt(asked.now_ms + LOOK_MS)]
    assert wait_for(asked, PATIENCE_MS - 3 * LOOK_MS) == []
    assert wait_for(asked, LOOK_MS) == [msg.Claim(1, MINE.name, 7, 8, True, unanswered=True)]


def test_repeated_reports_of_silence_prolong_nothing(asked: Driver) -> None:
    for _ in range(PATIENCE_MS // LOOK_MS - 1):
        assert asked.later(LOOK_MS)[0] == msg.WakeAt(asked.now_ms + LOOK_MS)
        asked(msg.Silent(7, 124, 10 * PATIENCE_MS))
    assert wait_for(asked, LOOK_MS) == [msg.Claim(1, MINE.name, 7, 8, True, unanswered=True)]


def test_an_open_port_does_not_prove_that_a_silent_leader_lives(asked: Driver) -> None:
    assert msg.Probe(7, "old:1") in asked(msg.LeaderGone(7, 124))
    asked(msg.Probed(7, msg.ProbeAnswer.ACCEPTED))
    assert wait_for(asked, PATIENCE_MS) == [msg.Claim(1, MINE.name, 7, 8, True, unanswered=True)]


def test_a_silent_leader_whose_port_refuses_is_dead(asked: Driver) -> None:
    asked(msg.LeaderGone(7, 124))
    assert asked(msg.Probed(7, msg.ProbeAnswer.REFUSED)) == [msg.Claim(1, MINE.name, 7, 8, True)]


def test_an_answered_call_of_a_leader_that_cannot_be_reached_again_leaves_the_other_evidence(asked: Driver) -> None:
    asked(msg.LeaderGone(7, 124), msg.Answered(7))
    assert asked(msg.Probed(7, msg.ProbeAnswer.REFUSED)) == [msg.Claim(1, MINE.name, 7, 8, True)]


def test_a_call_answered_after_an_unanswered_probe_keeps_the_leader(asked: Driver) -> None:
    asked(msg.LeaderGone(7, 124), msg.Probed(7, msg.ProbeAnswer.NONE), msg.Challenged(1, 7, posted=True))
    assert asked(msg.Answered(7)) == []
    assert wait_for(asked, 10 * PATIENCE_MS) == []


def test_a_silent_leader_that_could_not_be_challenged_is_kept_until_it_can(standby: Driver) -> None:
    standby(msg.Silent(7, 123, PATIENCE_MS), msg.Challenged(1, 7, posted=False))
    assert wait_for(standby, 10 * PATIENCE_MS) == []
    assert standby(msg.Silent(7, 124, PATIENCE_MS)) == [msg.Challenge(1, 7)]


def test_silence_counts_for_nothing_after_a_loss_of_zookeeper(asked: Driver) -> None:
    asked(msg.Disconnected(1), msg.Connected(1, "5"), msg.Joined(1, MINE.name))
    assert asked(msg.Viewed(1, view(challenged=True), 1)) == []
    assert wait_for(asked, 10 * PATIENCE_MS) == []


def test_silence_and_answers_of_a_former_leader_do_not_concern_the_next_one(asked: Driver) -> None:
    newer = dataclasses.replace(LEADER, token=8)
    asked(msg.Viewed(1, view(newer, epoch=8, challenged=True), 1))
    assert asked(msg.Silent(7, 1, PATIENCE_MS)) == []
    assert wait_for(asked, 10 * PATIENCE_MS) == []
    asked(msg.Silent(8, 1, PATIENCE_MS), msg.Answered(7), msg.Challenged(1, 8, posted=True))
    assert wait_for(asked, PATIENCE_MS) == [msg.Claim(1, MINE.name, 8, 9, True, unanswered=True)]


def test_a_leader_is_not_deposed_by_a_report_of_its_own_silence(leading: Driver) -> None:
    leading(msg.Viewed(1, my_view(), 1))
    assert leading(msg.Silent(8, 1, PATIENCE_MS)) == []
    assert wait_for(leading, 10 * PATIENCE_MS) == []


# -- giving up --------------------------------------------------------------------------------------------------------


def test_step_down_releases_and_rejoins(leading: Driver) -> None:
    effects = leading(msg.StepDown("a write was fenced", 8))
    assert effects == [msg.Revoked("a write was fenced"), msg.Release(1, 8, MINE.name), msg.Join(1, rejoin=True)]
    leading(msg.Joined(1, MINE.name))
    assert leading(msg.Viewed(1, view(None, epoch=8, line=(MINE,)), 1))[-1] == msg.Claim(1, MINE.name, 8, 9, False)


LAST_OF_ALL = 2**63 - 1


@pytest.mark.parametrize("named", [9, 40, LAST_OF_ALL])
def test_a_token_reported_by_a_peer_is_looked_up_and_has_no_effect_alone(leading: Driver, named: int) -> None:
    assert leading(msg.TokenSeen("a peer has seen it", named)) == [msg.ReadView(1)]
    assert leading(msg.Viewed(1, my_view(), 1)) == [msg.LeaderChanged(my_leader())]
    assert leading.phase is Phase.LEADING
    leading(msg.StepDown("fenced"), msg.Joined(1, MINE.name))
    assert leading(msg.Viewed(1, view(None, epoch=8, line=(MINE,)), 1))[-1] == msg.Claim(1, MINE.name, 8, 9, False)


def test_a_token_that_zookeeper_confirms_ends_the_grant(leading: Driver) -> None:
    leading(msg.TokenSeen("a peer has seen it", 9))
    successor = LeaderRecord(token=9, address="first:1", session="2", coordinator_id="first")
    effects = leading(msg.Viewed(1, view(successor, epoch=9, line=(FIRST, MINE)), 1))
    assert effects[0] == msg.Revoked("ZooKeeper names first:1 with token 9 the leader, at epoch 9")


def test_while_zookeeper_is_away_a_later_token_ends_the_grant_and_the_next_one_takes_no_account_of_it(
    leading: Driver,
) -> None:
    leading(msg.Disconnected(1))
    assert leading(msg.TokenSeen("a peer has seen it", LAST_OF_ALL)) == [msg.Revoked("a peer has seen it")]
    leading(msg.Connected(1, "5"), msg.Joined(1, MINE.name))
    assert leading(msg.Viewed(1, my_view(), 1))[-1] == msg.Claim(1, MINE.name, 8, 9, True)


def test_a_token_up_to_the_own_one_is_ignored(leading: Driver) -> None:
    assert leading(msg.TokenSeen("late", 7), msg.TokenSeen("it is this one's", 8)) == []


def test_a_token_that_was_given_up_is_never_taken_up_again(leading: Driver) -> None:
    leading(msg.StepDown("fenced"), msg.Joined(1, MINE.name))
    effects = leading(msg.Viewed(1, my_view(), 1))  # the release did not come through
    assert effects[-1] == msg.Claim(1, MINE.name, 8, 9, True)


def test_a_report_about_an_earlier_grant_does_not_end_a_later_one(leading: Driver) -> None:
    assert leading(msg.StepDown("fenced, long ago", token=7)) == []
    assert leading.phase is Phase.LEADING
    assert leading(msg.StepDown("fenced", token=8))[0] == msg.Revoked("fenced")


def test_step_down_of_a_standby_does_nothing(standby: Driver) -> None:
    assert standby(msg.StepDown("late", 3), msg.TokenSeen("whatever it is", LAST_OF_ALL)) == []


def test_step_down_while_suspended_is_made_good_after_reconnecting(leading: Driver) -> None:
    leading(msg.Disconnected(1))
    assert leading(msg.StepDown("fenced")) == [msg.Revoked("fenced")]
    assert leading(msg.Connected(1, "5")) == [msg.Join(1, rejoin=False)]


def test_a_coordinator_that_lost_leadership_yields_longer_each_time(leading: Driver) -> None:
    waits = []
    for token in (8, 9, 10):
        leading(msg.StepDown("fenced"), msg.Joined(1, MINE.name))
        vacancy = view(None, epoch=token, line=(MINE, FIRST))
        effect = leading(msg.Viewed(1, vacancy, 1))[-1]
        assert isinstance(effect, msg.WakeAt)
        waits.append(effect.at_ms - leading.now_ms)
        assert leading.later(waits[-1])[-1] == msg.Claim(1, MINE.name, token, token + 1, False)
        leading(msg.Claimed(1, token + 1))
    assert waits == [TIMING.penalty_ms, 2 * TIMING.penalty_ms, 4 * TIMING.penalty_ms]


def test_a_single_contender_gets_no_penalty(leading: Driver) -> None:
    leading(msg.StepDown("fenced"), msg.Joined(1, MINE.name))
    assert isinstance(leading(msg.Viewed(1, view(None, epoch=8, line=(MINE,)), 1))[-1], msg.Claim)


def test_stop_with_release_revokes_before_it_lets_go(leading: Driver) -> None:
    assert leading(msg.Stop(release=True)) == [
        msg.Revoked("the coordinator is stopping"),
        msg.Release(1, 8, MINE.name),
        msg.CloseSession(abandon=False),
    ]
    assert leading(msg.Connected(1, "5"), msg.Tick(), msg.Stop(release=True)) == []


def test_stop_without_release_leaves_the_session_to_expire(leading: Driver) -> None:
    assert leading(msg.Stop(release=False))[-1] == msg.CloseSession(abandon=True)


def test_failed_join_is_repeated_after_a_pause() -> None:
    drive = Driver()
    drive(msg.Connected(1, "5"))
    assert drive(msg.Failed(1)) == [msg.WakeAt(drive.now_ms + TIMING.retry_ms)]
    assert drive.later(TIMING.retry_ms) == [msg.Join(1, rejoin=False)]


def test_changes_are_looked_at(standby: Driver) -> None:
    assert standby(msg.Changed(1)) == [msg.ReadView(1)]
    standby(msg.Disconnected(1))
    assert standby(msg.Changed(1)) == []


def test_a_forbidden_transition_raises_with_the_story(standby: Driver) -> None:
    with pytest.raises(IllegalTransition, match=r"STANDBY -> VERIFYING(.|\n)*Joined"):
        standby.machine._to(Phase.VERIFYING)
