"""Elections among electors on both kinds of ZooKeeper."""

from __future__ import annotations

import contextlib
import logging
import threading
import time

import pytest
from lockgate_ha import elector as elector_module
from lockgate_ha import steps
from lockgate_ha.election_timing import ElectionTiming
from lockgate_ha.epoch import LAST_TOKEN
from lockgate_ha.errors import CorruptRecord, Fenced
from lockgate_ha.grant import LeadershipGrant
from lockgate_ha.paths import Paths
from lockgate_ha.records import JobRecords
from lockgate_ha.retrieval import LeaderRetrieval
from lockgate_ha.session import Session, SessionState
from lockgate_ha.store import Create, Put
from lockgate_proto.messages import JobRecord, LeaderRecord

from .conftest import KINDS, TLS, WAIT_S, Recorder, World

with_tls = pytest.mark.parametrize("world", [*KINDS, TLS], indirect=True)


def test_one_leads_and_the_others_stand_in_line(world: World) -> None:
    a = world.candidate("a").lead()
    b = world.candidate("b").start()
    assert a.grant().token == 1
    assert b.elector.grant is None
    assert b.elector.leader is not None
    assert b.elector.leader.coordinator_id == "a"
    assert [contender.coordinator_id for contender in b.elector.contenders()] == ["a", "b"]


def test_evidence_hands_over_before_the_session_of_the_failed_leader_expires(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "lockgate_ha.elector")
    a, b = world.candidate("a").lead(), world.candidate("b").start()
    a.elector.stop(release=False)
    a.close_port()
    started_us = time.time_ns() // 1_000
    b.elector.report_leader_gone(1)
    grant, detected = b.listener.wait("granted")  # type: ignore[misc]
    assert grant.token == 2
    assert started_us <= detected <= time.time_ns() // 1_000
    assert "token 2 was granted: nothing listens at the leader's address" in caplog.messages


def test_an_open_port_is_no_evidence(world: World) -> None:
    a, b = world.candidate("a").lead(), world.candidate("b").start()
    a.server.settimeout(0.1)
    probes = 0
    deadline = time.monotonic() + WAIT_S
    while probes < 2 and time.monotonic() < deadline:  # a second probe means that the first one's answer was taken in
        b.elector.report_leader_gone(1)
        with contextlib.suppress(TimeoutError):
            a.server.accept()[0].close()
            probes += 1
    assert probes == 2
    assert b.listener.count("granted") == 0
    assert a.grant().token == 1


UNREACHABLE = "vanished.invalid:7"
"""A name that never resolves (RFC 6761): nothing answers there and nothing refuses."""


def test_a_leader_that_vanished_with_its_host_does_not_answer_the_challenge(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "lockgate_ha.elector")
    a, b = world.candidate("a", address=UNREACHABLE).lead(), world.candidate("b").start()
    a.elector.stop(release=False)
    b.elector.report_leader_gone(1)
    grant, _ = b.listener.wait("granted")  # type: ignore[misc]
    assert grant.token == 2
    assert "token 2 was granted: the leader did not prove that it is alive" in caplog.messages


PATIENT = ElectionTiming(challenge_ms=30_000, spare_ms=0)
"""Whatever else the machine is busy with, a leader that lives has answered by then."""


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> threading.Semaphore:
    """One for each challenge that was answered."""
    counted = threading.Semaphore(0)
    answer = elector_module.steps.answer_challenge

    def count(session: Session, paths: Paths) -> None:
        answer(session, paths)
        counted.release()

    monkeypatch.setattr(elector_module.steps, "answer_challenge", count)
    return counted


def test_a_live_leader_that_cannot_be_reached_keeps_its_place_by_answering_the_challenge(
    world: World, answers: threading.Semaphore
) -> None:
    a, b = world.candidate("a", address=UNREACHABLE).lead(), world.candidate("b").start()
    b.elector._machine._detector._timing = PATIENT
    for _ in range(3):
        deadline = time.monotonic() + WAIT_S
        while not answers.acquire(timeout=0.1):
            assert time.monotonic() < deadline
            b.elector.report_leader_gone(1)
    assert b.listener.count("granted") == a.listener.count("revoked") == 0
    assert a.grant().token == 1


def test_a_live_leader_deposed_by_evidence_steps_down_and_is_fenced(world: World) -> None:
    a, b = world.candidate("a").lead(), world.candidate("b").start()
    zombie = a.grant()
    a.close_port()
    b.elector.report_leader_gone(1)
    b.listener.wait("granted")
    a.listener.wait("revoked")
    with pytest.raises(Fenced):
        JobRecords(a.elector.store, world.cluster).submit(zombie, JobRecord(job_key="k", run_id="r"))
    assert JobRecords(b.elector.store, world.cluster).jobs() == ()


@with_tls
def test_an_expired_leader_is_revoked_and_the_standby_takes_over(world: World) -> None:
    a, b = world.candidate("a").lead(), world.candidate("b").start()
    world.expire(a.session())
    a.listener.wait("revoked")
    grant, detected = b.listener.wait("granted")  # type: ignore[misc]
    assert grant.token == 2
    assert detected is not None
    a.listener.wait("leader", 3)  # it contends again in a new session and learns of b


def test_a_lone_expired_leader_leads_again_under_a_higher_token(world: World) -> None:
    a = world.candidate("a").lead()
    first = a.grant()
    world.expire(a.session())
    a.listener.wait("granted", 2)
    assert a.grant().token == first.token + 1
    assert a.grant().session != first.session


@pytest.mark.parametrize(
    ("name", "is_ephemeral"),
    [
        ("backup", False),
        ("backup", True),
        ("c-backup", False),
        ("c-0000000000", False),  # no nonce
        ("c-backup-0000000000", False),  # as a coordinator names its own, but it goes with no session
        ("c-backup-000000000x", True),
        ("c-backup-\u0665\u0665\u0665\u0665\u0665\u0665\u0665\u0665\u0665\u0665", True),
    ],
)
def test_other_nodes_below_contenders_stop_no_election(
    world: World, caplog: pytest.LogCaptureFixture, name: str, is_ephemeral: bool
) -> None:
    a, b = world.candidate("a").lead(), world.candidate("b").start()
    stranger = world.connector.open()
    assert stranger.wait_connected(int(WAIT_S * 1000))
    stray = f"{Paths(world.cluster).contenders}/{name}"
    stranger.transact([Create(stray, b"\xff", ephemeral=is_ephemeral)])
    a.elector.stop(release=True)
    b.listener.wait("granted")
    c = world.candidate("c").start()
    assert [contender.coordinator_id for contender in c.elector.contenders()] == ["b", "c"]
    assert f"the ZooKeeper node {stray} was not created by a coordinator" in caplog.text
    assert "internal error in the elector" not in caplog.text
    b.elector.stop(release=True)
    c.listener.wait("granted")
    assert b.listener.count("granted") == c.listener.count("granted") == 1
    stranger.close()


def test_release_hands_over_at_once(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "lockgate_ha.elector")
    a, b = world.candidate("a").lead(), world.candidate("b").start()
    a.elector.stop(release=True)
    assert a.listener.heard[-1][0] == "revoked"
    b.listener.wait("granted")
    assert "token 2 was granted: there was no leader" in caplog.messages


@with_tls
def test_a_broken_connection_suspends_and_resumes_the_same_grant(world: World) -> None:
    a, b = world.candidate("a").lead(), world.candidate("b").start()
    before = a.grant()
    world.cut(a.session())
    a.listener.wait("resumed")
    assert a.grant() == before
    assert a.listener.count("suspended") == 1
    assert a.listener.count("revoked") == b.listener.count("granted") == 0
    JobRecords(a.elector.store, world.cluster).submit(before, JobRecord(job_key="k", run_id="r"))


def test_a_restarted_coordinator_on_the_same_address_leads_at_once(world: World) -> None:
    a = world.candidate("a").lead()
    a.elector.stop(release=False)
    again = world.candidate("a2", address=a.address).lead()
    assert again.grant().token == 2


def test_two_live_coordinators_that_advertise_one_address_leave_each_other_in_peace(
    world: World, answers: threading.Semaphore
) -> None:
    """A mistake in the settings of two machines: the one that leads goes on, the other waits."""
    a = world.candidate("a").lead()
    b = world.candidate("b", address=a.address)
    b.elector._machine._detector._timing = PATIENT
    b.start()
    for _ in range(3):
        deadline = time.monotonic() + WAIT_S
        while not answers.acquire(timeout=0.1):
            assert time.monotonic() < deadline
            b.elector.report_leader_gone(1)  # as its own follower finds at its own port
            b.elector.report_not_leading(1)
    assert a.listener.count("revoked") == b.listener.count("granted") == 0


def test_a_token_that_was_never_granted_deposes_no_leader(world: World) -> None:
    a, b = world.candidate("a").lead(), world.candidate("b").start()
    for item in (a, b):
        item.elector.report_token("a peer names the last token of all", LAST_TOKEN)
    a.elector.stop(release=True)
    b.listener.wait("granted")
    assert b.grant().token == 2
    assert a.listener.count("revoked") == 1  # by its stop


def test_the_end_of_the_tokens_is_reported_and_can_be_repaired_by_hand(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    a = world.candidate("a").lead()
    session = world.connector.open()
    assert session.wait_connected(int(WAIT_S * 1000))
    session.transact([Put(Paths(world.cluster).epoch, str(LAST_TOKEN).encode())])
    a.listener.wait("revoked")
    deadline = time.monotonic() + WAIT_S
    while "the largest possible token" not in caplog.text:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert "Stop every coordinator and task manager" in caplog.text
    a.elector.stop()
    session.transact([Put(Paths(world.cluster).epoch, b"7")])
    assert world.candidate("b").lead().grant().token == 8
    session.close()


@pytest.mark.parametrize("content", [b"", b"seven", b"-1", str(2**63).encode(), b"9" * 5000])
def test_an_epoch_that_is_not_a_token_is_named(world: World, content: bytes) -> None:
    world.candidate("a").lead()
    session = world.connector.open()
    assert session.wait_connected(int(WAIT_S * 1000))
    session.transact([Put(Paths(world.cluster).epoch, content)])
    with pytest.raises(CorruptRecord, match="/epoch cannot be read") as caught:
        steps.read_view(session, Paths(world.cluster), {}, lambda: None)
    assert len(str(caught.value)) < 300
    session.close()


def test_a_standby_that_is_not_first_takes_over_when_the_first_does_not(world: World) -> None:
    a, b, c = world.candidate("a").lead(), world.candidate("b").start(), world.candidate("c").start()
    for dead in (a, b):
        dead.elector.stop(release=False)
        dead.close_port()
    c.elector.report_leader_gone(1)
    c.listener.wait("granted")
    assert c.grant().token == 2


def test_a_listener_that_fails_on_a_grant_does_not_hold_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing(Recorder):
        def on_granted(self, grant: LeadershipGrant, detected_unix_us: int | None) -> None:
            super().on_granted(grant, detected_unix_us)
            if grant.token == 1:
                raise RuntimeError("a mistake in the listener")

    monkeypatch.setattr(elector_module, "_FAULT_PAUSE_S", 0.0)
    a = world.candidate("a", listener=Failing()).lead()
    a.listener.wait("revoked")
    a.listener.wait("granted", 2)
    assert [grant.token for grant in a.listener.grants()] == [1, 2]
    assert not a.broken.is_set()


def test_an_elector_that_cannot_start_over_says_so_and_has_the_process_ended(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Failing(Recorder):
        def on_revoked(self, reason: str) -> None:
            super().on_revoked(reason)
            raise RuntimeError("a second mistake, in the listener")

    monkeypatch.setattr(elector_module, "_FAULT_PAUSE_S", 0.0)
    a = world.candidate("a", listener=Failing()).lead()
    monkeypatch.setattr(a.elector._machine, "handle", _fail)
    a.elector.step_down("anything")
    assert a.broken.wait(WAIT_S)
    assert "the elector cannot continue" in caplog.text
    assert "a mistake in the machine" in caplog.text
    assert "a second mistake, in the listener" in caplog.text


def test_an_elector_that_cannot_even_start_has_the_process_ended(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    a = world.candidate("a")
    monkeypatch.setattr(a.elector._machine, "start", _fail)
    a.elector.start()
    assert a.broken.wait(WAIT_S)


def test_an_order_to_stop_that_meets_a_fault_is_carried_out(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    a = world.candidate("a").lead()
    monkeypatch.setattr(a.elector._machine, "handle", _fail)
    a.elector.stop()
    assert a.session().state is SessionState.LOST
    assert not a.broken.is_set()


def _fail(*_args: object) -> None:
    raise RuntimeError("a mistake in the machine")


def test_a_fault_in_the_elector_ends_the_grant_and_it_starts_over(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elector_module, "_FAULT_PAUSE_S", 0.0)
    a = world.candidate("a").lead()
    monkeypatch.setattr(a.elector._machine, "handle", _fail)
    a.elector.step_down("anything")
    a.listener.wait("revoked")
    a.listener.wait("granted", 2)
    assert [grant.token for grant in a.listener.grants()] == [1, 2]


def test_retrieval_follows_the_leader(world: World) -> None:
    heard: list[LeaderRecord | None] = []
    changed = threading.Event()

    def on_leader(leader: LeaderRecord | None) -> None:
        heard.append(leader)
        changed.set()

    retrieval = LeaderRetrieval(world.connector, world.cluster, on_leader)
    retrieval.start()
    try:
        assert changed.wait(WAIT_S)
        assert heard == [None]
        a = world.candidate("a").lead()
        first = retrieval.wait(round(WAIT_S * 1000))
        assert first is not None
        assert (first.address, first.token) == (a.address, 1)
        b = world.candidate("b").start()
        a.close_port()
        a.elector.stop(release=False)
        b.elector.report_leader_gone(1)
        second = retrieval.wait(round(WAIT_S * 1000), newer_than=1)
        assert second is not None
        assert (second.address, second.token) == (b.address, 2)
        assert retrieval.current() == second
    finally:
        retrieval.stop()
    assert retrieval.wait(0, newer_than=2) is None
