"""LeaderElection: what it does on every message, also late, twice, out of order, and from an earlier session."""

from __future__ import annotations

import dataclasses

import pytest
from lockgate_proto.messages import LeaderRecord

from ha.election import ElectionTiming, IllegalTransition, LeaderElection, Phase
from ha.election_messages import (
    Changed,
    Claim,
    Claimed,
    ClaimFailed,
    ClaimFailure,
    CloseSession,
    Connected,
    Contender,
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
    Probe,
    Probed,
    ReadView,
    Release,
    Resumed,
    Revoked,
    StepDown,
    Stop,
    Suspended,
    Tick,
    View,
    Viewed,
    WakeAt,
)
from ha.grant import LeadershipGrant

ME = LeaderRecord(coordinator_id="me", address="me:1", pid=1)
MINE = Contender("c-me-0000000005", LeaderRecord(coordinator_id="me", address="me:1", session="5"))
OLD_LEADER = Contender("c-old-0000000001", LeaderRecord(coordinator_id="old", address="old:1", session="1"))
FIRST = Contender("c-first-0000000002", LeaderRecord(coordinator_id="first", address="first:1", session="2"))
LEADER = LeaderRecord(token=7, address="old:1", session="1", coordinator_id="old")
TIMING = ElectionTiming()


def view(
    leader: LeaderRecord | None = LEADER,
    *,
    epoch: int = 7,
    mine: bool = False,
    line: tuple[Contender, ...] = (OLD_LEADER, MINE),
) -> View:
    return View(epoch, epoch, leader, mine, line)


class Driver:
    """A machine, its time, and what it asked for last."""

    def __init__(self) -> None:
        self.machine = LeaderElection(ME)
        self.now_ms = 10_000
        assert self.machine.start() == [OpenSession(1)]

    def __call__(self, *events: Event) -> list[Effect]:
        effects: list[Effect] = []
        for event in events:
            effects += self.machine.handle(event, self.now_ms)
        return effects

    def later(self, ms: int) -> list[Effect]:
        self.now_ms += ms
        return self(Tick())

    @property
    def phase(self) -> Phase:
        return self.machine.phase


@pytest.fixture
def joined() -> Driver:
    drive = Driver()
    assert drive(Connected(1, "5")) == [Join(1, rejoin=False)]
    assert drive(Joined(1, MINE.name)) == [ReadView(1)]
    return drive


@pytest.fixture
def standby(joined: Driver) -> Driver:
    assert joined(Viewed(1, view(), 1)) == [LeaderChanged(LEADER)]
    assert joined.phase is Phase.STANDBY
    return joined


@pytest.fixture
def leading(joined: Driver) -> Driver:
    own = view(None, line=(MINE,))
    assert joined(Viewed(1, own, 1)) == [LeaderChanged(None), Claim(1, MINE.name, 7, 8, False)]
    granted = Granted(LeadershipGrant(8, "me", "5"), None)
    assert joined(Claimed(1, 8)) == [granted, ReadView(1)]
    return joined


def my_leader(token: int = 8) -> LeaderRecord:
    return LeaderRecord(token=token, address="me:1", session="5", coordinator_id="me")


def my_view(token: int = 8) -> View:
    return view(my_leader(token), epoch=token, mine=True, line=(MINE,))


# -- the first in line ------------------------------------------------------------------------------------------------


def test_first_in_line_claims_a_vacancy_at_once(leading: Driver) -> None:
    assert leading.phase is Phase.LEADING


def test_second_in_line_waits_its_turn_and_then_claims(joined: Driver) -> None:
    effects = joined(Viewed(1, view(None, line=(FIRST, MINE)), 1))
    assert effects == [LeaderChanged(None), WakeAt(joined.now_ms + TIMING.rank_delay_ms)]
    assert joined.later(TIMING.rank_delay_ms - 1)[-1] == WakeAt(joined.now_ms + 1)
    assert joined.later(1) == [Claim(1, MINE.name, 7, 8, False)]


def test_no_claim_while_a_leader_is_there(standby: Driver) -> None:
    assert standby.later(1_000_000) == []


def test_losing_the_race_looks_again_and_stands_by(joined: Driver) -> None:
    joined(Viewed(1, view(None), 1))
    assert joined.phase is Phase.STANDBY  # the other contender is first
    joined.later(TIMING.rank_delay_ms)
    assert joined(ClaimFailed(1, ClaimFailure.REFUSED)) == [ReadView(1)]
    assert joined(Viewed(1, view(dataclasses.replace(LEADER, token=8), epoch=8), 1))[0].leader.token == 8  # type: ignore[union-attr]
    assert joined.later(1_000_000) == []


def test_a_refused_claim_is_never_repeated_hot(joined: Driver) -> None:
    vacancy = view(None, line=(MINE,))
    joined(Viewed(1, vacancy, 1), ClaimFailed(1, ClaimFailure.REFUSED))
    assert joined(Viewed(1, vacancy, 1)) == [WakeAt(joined.now_ms + TIMING.retry_ms)]


def test_an_own_contender_that_is_gone_is_made_again(standby: Driver) -> None:
    assert standby(Viewed(1, view(line=(OLD_LEADER,)), 1)) == [Join(1, rejoin=True)]


# -- evidence ---------------------------------------------------------------------------------------------------------


def test_refused_connection_is_evidence_and_the_first_in_line_claims_at_once(standby: Driver) -> None:
    assert standby(LeaderGone(7, 123)) == [Probe(7, "old:1")]
    assert standby(Probed(7, refused=True)) == [Claim(1, MINE.name, 7, 8, True)]
    assert standby(Claimed(1, 8))[0] == Granted(LeadershipGrant(8, "me", "5"), 123)


def test_evidence_makes_the_second_in_line_wait(joined: Driver) -> None:
    joined(Viewed(1, view(line=(OLD_LEADER, FIRST, MINE)), 1), LeaderGone(7, 123))
    assert joined(Probed(7, refused=True)) == [WakeAt(joined.now_ms + TIMING.rank_delay_ms)]
    taken = dataclasses.replace(LEADER, token=8, address="first:1", session="2")
    joined(Viewed(1, view(taken, epoch=8, line=(FIRST, MINE)), 1))
    assert joined.later(TIMING.rank_delay_ms) == []


def test_an_earlier_process_at_the_dead_leaders_address_is_not_waited_for(joined: Driver) -> None:
    earlier = dataclasses.replace(OLD_LEADER, record=dataclasses.replace(OLD_LEADER.record, session="77"))
    joined(Viewed(1, view(line=(earlier, OLD_LEADER, MINE)), 1), LeaderGone(7, 123))
    assert joined(Probed(7, refused=True)) == [Claim(1, MINE.name, 7, 8, True)]


def test_an_answering_leader_is_left_alone(standby: Driver) -> None:
    standby(LeaderGone(7, 123))
    assert standby(Probed(7, refused=False)) == []
    assert standby.later(1_000_000) == []


def test_repeated_reports_probe_once_at_a_time(standby: Driver) -> None:
    assert standby(LeaderGone(7, 1), LeaderGone(7, 2)) == [Probe(7, "old:1")]
    standby(Probed(7, refused=False))
    assert standby(LeaderGone(7, 3)) == [Probe(7, "old:1")]


def test_late_report_of_a_former_leader_is_ignored(standby: Driver) -> None:
    assert standby(LeaderGone(6, 1)) == []


def test_late_probe_answer_about_a_former_leader_is_ignored(standby: Driver) -> None:
    standby(LeaderGone(7, 1))
    standby(Viewed(1, view(dataclasses.replace(LEADER, token=8), epoch=8), 1))
    assert standby(Probed(7, refused=True)) == []


def test_second_probe_answer_does_nothing(standby: Driver) -> None:
    standby(LeaderGone(7, 1), Probed(7, refused=True))
    assert standby(Probed(7, refused=True)) == []


def test_report_about_a_leader_not_yet_seen_makes_it_look_first(standby: Driver) -> None:
    assert standby(LeaderGone(8, 1)) == [ReadView(1)]
    newer = dataclasses.replace(LEADER, token=8)
    assert standby(Viewed(1, view(newer, epoch=8), 1)) == [LeaderChanged(newer), Probe(8, "old:1")]


def test_not_leading_counts_only_after_the_grace(standby: Driver) -> None:
    assert standby(NotLeading(7, 5)) == []
    standby.now_ms += TIMING.not_leading_grace_ms
    assert standby(NotLeading(6, 5)) == []
    assert standby(NotLeading(7, 5)) == [Claim(1, MINE.name, 7, 8, True)]


def test_a_restarted_coordinator_replaces_its_former_self_without_waiting(joined: Driver) -> None:
    former = Contender("c-x-0000000001", LeaderRecord(coordinator_id="x", address="me:1", session="1"))
    held = dataclasses.replace(LEADER, address="me:1")
    effects = joined(Viewed(1, view(held, line=(former, MINE)), 1))
    assert effects == [LeaderChanged(held), Claim(1, MINE.name, 7, 8, True)]


def test_a_report_while_suspended_is_acted_on_when_the_view_is_back(standby: Driver) -> None:
    standby(Disconnected(1))
    assert standby(LeaderGone(7, 9)) == []
    standby(Connected(1, "5"), Joined(1, MINE.name))
    assert standby(Viewed(1, view(), 1)) == [Probe(7, "old:1")]


def test_the_leader_ignores_reports_about_itself(leading: Driver) -> None:
    leading(Viewed(1, my_view(), 1))
    assert leading(LeaderGone(8, 1), NotLeading(8, 1), Probed(8, refused=True)) == []


# -- holding on -------------------------------------------------------------------------------------------------------


def test_suspended_leader_keeps_its_grant_however_long(leading: Driver) -> None:
    assert leading(Disconnected(1)) == [Suspended()]
    assert leading.later(10_000_000) == []
    assert leading.machine.grant == LeadershipGrant(8, "me", "5")


def test_resumed_only_after_verifying(leading: Driver) -> None:
    leading(Disconnected(1))
    assert leading(Connected(1, "5")) == [ReadView(1)]
    assert leading.phase is Phase.VERIFYING
    assert leading(Viewed(1, my_view(), 1))[-1] == Resumed()


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
def test_a_leader_that_no_longer_holds_everything_is_revoked(leading: Driver, now_there: View, away: bool) -> None:
    if away:
        leading(Disconnected(1), Connected(1, "5"))
    effects = leading(Viewed(1, now_there, 1))
    assert isinstance(effects[0], Revoked)
    assert effects[-1] == Join(1, rejoin=True)
    assert leading.machine.grant is None


def test_expired_session_revokes_and_contends_in_a_new_one(leading: Driver) -> None:
    leading(Disconnected(1))
    assert leading(Expired(1)) == [Revoked("ZooKeeper has expired the session"), OpenSession(2)]
    assert leading(Connected(2, "6")) == [Join(2, rejoin=False)]


def test_suspension_while_verifying_is_not_told_twice(leading: Driver) -> None:
    leading(Disconnected(1), Connected(1, "5"))
    assert leading(Disconnected(1)) == []
    assert leading.phase is Phase.PAUSED


def test_failed_verification_read_is_repeated_after_a_pause(leading: Driver) -> None:
    leading(Disconnected(1), Connected(1, "5"))
    assert leading(Failed(1)) == [WakeAt(leading.now_ms + TIMING.retry_ms)]
    assert leading.later(TIMING.retry_ms) == [ReadView(1)]


def test_a_view_older_than_the_grant_revokes_nothing(leading: Driver) -> None:
    effects = leading(Viewed(1, view(), 1))
    assert not any(isinstance(one, Revoked) for one in effects)
    assert leading.phase is Phase.LEADING


# -- claims whose answer is lost or late -----------------------------------------------------------------------------


def test_a_claim_with_unknown_outcome_is_taken_up_when_the_node_is_ours(joined: Driver) -> None:
    joined(Viewed(1, view(None, line=(MINE,)), 1))
    joined(ClaimFailed(1, ClaimFailure.UNKNOWN), Disconnected(1), Connected(1, "5"), Joined(1, MINE.name))
    assert Granted(LeadershipGrant(8, "me", "5"), None) in joined(Viewed(1, my_view(), 1))


def test_a_claim_with_unknown_outcome_is_made_again_when_nobody_leads(joined: Driver) -> None:
    joined(Viewed(1, view(None, line=(MINE,)), 1), ClaimFailed(1, ClaimFailure.UNKNOWN))
    assert joined.later(TIMING.retry_ms) == [ReadView(1)]
    assert joined(Viewed(1, view(None, line=(MINE,)), 1)) == [Claim(1, MINE.name, 7, 8, False)]


def test_a_late_claim_answer_after_disconnection_waits_for_the_view(joined: Driver) -> None:
    joined(Viewed(1, view(None, line=(MINE,)), 1), Disconnected(1))
    assert joined(Claimed(1, 8)) == []
    assert joined.machine.grant is None


def test_a_second_claim_answer_does_nothing(leading: Driver) -> None:
    assert leading(Claimed(1, 8), ClaimFailed(1, ClaimFailure.REFUSED)) == []


def test_events_of_an_earlier_session_do_nothing(leading: Driver) -> None:
    leading(Expired(1))
    late: list[Event] = [
        Connected(1, "5"),
        Disconnected(1),
        Expired(1),
        Joined(1, MINE.name),
        Viewed(1, my_view(), 1),
        Failed(1),
        Changed(1),
        Claimed(1, 8),
        ClaimFailed(1, ClaimFailure.REFUSED),
    ]
    assert leading(*late) == []
    assert leading.phase is Phase.OFFLINE


# -- giving up --------------------------------------------------------------------------------------------------------


def test_step_down_releases_rejoins_and_goes_above_the_seen_token(leading: Driver) -> None:
    effects = leading(StepDown("a task manager has seen token 40", 40))
    assert effects == [
        Revoked("a task manager has seen token 40"),
        Release(1, 8, MINE.name),
        Join(1, rejoin=True),
    ]
    leading(Joined(1, MINE.name))
    assert leading(Viewed(1, view(None, epoch=8, line=(MINE,)), 1))[-1] == Claim(1, MINE.name, 8, 41, False)


def test_a_token_that_was_given_up_is_never_taken_up_again(leading: Driver) -> None:
    leading(StepDown("fenced", 0), Joined(1, MINE.name))
    effects = leading(Viewed(1, my_view(), 1))  # the release did not come through
    assert effects[-1] == Claim(1, MINE.name, 8, 9, True)


def test_what_was_said_of_an_earlier_grant_does_not_end_a_later_one(leading: Driver) -> None:
    assert leading(StepDown("fenced, long ago", 0, token=7)) == []
    assert leading(StepDown("a task manager had seen token 8", 8, token=7)) == []
    assert leading.phase is Phase.LEADING
    assert leading(StepDown("fenced", 0, token=8))[0] == Revoked("fenced")


def test_a_token_above_the_own_ends_the_grant_whoever_was_asked(leading: Driver) -> None:
    assert leading(StepDown("a task manager has seen token 40", 40, token=7))[0] == Revoked(
        "a task manager has seen token 40"
    )


def test_step_down_of_a_standby_does_nothing(standby: Driver) -> None:
    assert standby(StepDown("late", 3)) == []


def test_step_down_while_suspended_is_made_good_after_reconnecting(leading: Driver) -> None:
    leading(Disconnected(1))
    assert leading(StepDown("fenced", 0)) == [Revoked("fenced")]
    assert leading(Connected(1, "5")) == [Join(1, rejoin=False)]


def test_who_lost_leadership_lets_others_go_first_longer_each_time(leading: Driver) -> None:
    waits = []
    for token in (8, 9, 10):
        leading(StepDown("fenced", 0), Joined(1, MINE.name))
        vacancy = view(None, epoch=token, line=(MINE, FIRST))
        effect = leading(Viewed(1, vacancy, 1))[-1]
        assert isinstance(effect, WakeAt)
        waits.append(effect.at_ms - leading.now_ms)
        assert leading.later(waits[-1])[-1] == Claim(1, MINE.name, token, token + 1, False)
        leading(Claimed(1, token + 1))
    assert waits == [TIMING.penalty_ms, 2 * TIMING.penalty_ms, 4 * TIMING.penalty_ms]


def test_nobody_else_in_line_means_no_penalty(leading: Driver) -> None:
    leading(StepDown("fenced", 0), Joined(1, MINE.name))
    assert isinstance(leading(Viewed(1, view(None, epoch=8, line=(MINE,)), 1))[-1], Claim)


def test_stop_with_release_revokes_before_it_lets_go(leading: Driver) -> None:
    assert leading(Stop(release=True)) == [
        Revoked("the coordinator stops"),
        Release(1, 8, MINE.name),
        CloseSession(abandon=False),
    ]
    assert leading(Connected(1, "5"), Tick(), Stop(release=True)) == []


def test_stop_without_release_leaves_the_session_to_expire(leading: Driver) -> None:
    assert leading(Stop(release=False))[-1] == CloseSession(abandon=True)


def test_failed_join_is_repeated_after_a_pause() -> None:
    drive = Driver()
    drive(Connected(1, "5"))
    assert drive(Failed(1)) == [WakeAt(drive.now_ms + TIMING.retry_ms)]
    assert drive.later(TIMING.retry_ms) == [Join(1, rejoin=False)]


def test_changes_are_looked_at(standby: Driver) -> None:
    assert standby(Changed(1)) == [ReadView(1)]
    standby(Disconnected(1))
    assert standby(Changed(1)) == []


def test_a_forbidden_transition_tells_the_story(standby: Driver) -> None:
    with pytest.raises(IllegalTransition, match=r"standby -> verifying(.|\n)*Joined"):
        standby.machine._to(Phase.VERIFYING)
