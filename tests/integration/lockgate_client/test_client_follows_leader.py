"""The client against scripted coordinators over real gRPC."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from lockgate_common.security import Credentials
from lockgate_proto import messages as m

from lockgate.client import (
    Client,
    ClientError,
    ClusterUnreachable,
    InvalidJob,
    JobFailed,
    JobHandle,
    KeyTaken,
    NotAllowed,
    UnknownJob,
)
from lockgate.client.deadline import Deadline
from lockgate.client.directory import CoordinatorList
from tests.certificates import make_certificates
from tests.integration.lockgate_client.fake_cluster import PATIENCE_MS, SECRET, Cluster, status

pytestmark = pytest.mark.integration

GRAPH = m.JobGraph("wordcount", (m.Vertex("v", "v", 1, 128),))
LOSS = m.JobEvent(m.JobEventKind.LEADER_LOSS_DETECTED, 1_000, token=2)
GRANT = m.JobEvent(m.JobEventKind.LEADER_GRANTED, 2_000, token=2)


@pytest.fixture
def client(cluster: Cluster) -> Iterator[Client]:
    with Client(cluster.addresses, patience_ms=PATIENCE_MS) as made:
        yield made


def test_submit_goes_to_the_leader_and_is_idempotent(cluster: Cluster, client: Client) -> None:
    assert client.submit("k", GRAPH).created
    assert not client.submit("k", GRAPH).created
    assert cluster.coordinators[1].calls.count("Submit") == 0


def test_a_standby_that_is_the_only_known_address_leads_to_the_leader(cluster: Cluster) -> None:
    with Client([cluster.addresses[1]], patience_ms=PATIENCE_MS) as client:
        assert client.submit("k", GRAPH).created
        assert client.leader().address == cluster.addresses[0]


def test_a_demoted_leader_redirects_by_its_metadata(cluster: Cluster, client: Client) -> None:
    client.submit("k", GRAPH)
    cluster.lead(cluster.coordinators[1])
    asked = cluster.coordinators[1].calls.count("GetLeader")
    assert client.job("k").state is m.JobState.RUNNING
    assert cluster.coordinators[1].calls.count("GetLeader") == asked  # the hint was enough
    assert cluster.coordinators[1].calls.count("Get") == 1


def test_the_leader_dies_and_a_submit_is_sent_again_to_the_next(cluster: Cluster, client: Client) -> None:
    client.submit("k", GRAPH)
    cluster.coordinators[0].die()
    takeover = threading.Timer(0.3, cluster.lead, [cluster.coordinators[1]])
    takeover.start()
    assert not client.submit("k", GRAPH).created  # the same job, found again
    takeover.join()


def test_a_leader_that_recovers_is_asked_again(cluster: Cluster, client: Client) -> None:
    left = [3]

    def not_yet(method: str, context: grpc.ServicerContext) -> None:
        if method == "List" and left[0]:
            left[0] -= 1
            context.abort(grpc.StatusCode.UNAVAILABLE, "recovering the jobs")

    cluster.coordinators[0].fail = not_yet
    assert client.jobs() == ()
    assert cluster.coordinators[0].calls.count("List") == 4


def test_a_frozen_leader_is_left_for_the_new_one(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lockgate.client.client.CALL_TIMEOUT_S", 2.0)  # the second one answers within it
    thaw = threading.Event()
    cluster.coordinators[0].fail = lambda _method, _context: _wait(thaw)
    with Client(cluster.addresses, patience_ms=PATIENCE_MS) as client:
        try:
            cluster.lead(cluster.coordinators[1])
            client._leader = cluster.coordinators[0].record()  # last known
            client.submit("k", GRAPH)
        finally:
            thaw.set()
    assert "Submit" in cluster.coordinators[1].calls


def _wait(thaw: threading.Event) -> None:
    thaw.wait(PATIENCE_MS / 1000)


@pytest.mark.parametrize(
    ("code", "details", "kind", "words"),
    [
        (
            grpc.StatusCode.INVALID_ARGUMENT,
            "no column `x`\nno path /y",
            InvalidJob,
            "  - no column `x`\n  - no path /y",
        ),
        (grpc.StatusCode.INVALID_ARGUMENT, "4 slots needed, 2 there", InvalidJob, "refuses the job: 4 slots needed"),
        (grpc.StatusCode.ALREADY_EXISTS, "'k' was submitted from /a", KeyTaken, "'k' was submitted from /a"),
        (grpc.StatusCode.UNAUTHENTICATED, "pickled functions need the secret", NotAllowed, "LOCKGATE_SECRET_FILE"),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "70 MB", ClientError, "exceeds a limit of the coordinator"),
        (grpc.StatusCode.INTERNAL, "boom", ClientError, "boom; see its log for details"),
        (grpc.StatusCode.FAILED_PRECONDITION, "the job has ended", ClientError, "the job has ended"),
        (grpc.StatusCode.UNIMPLEMENTED, "what?", ClientError, "not a Lockgate coordinator"),
    ],
)
def test_a_final_answer_is_one_readable_error_and_not_repeated(
    cluster: Cluster, client: Client, code: grpc.StatusCode, details: str, kind: type[Exception], words: str
) -> None:
    def refuse(method: str, context: grpc.ServicerContext) -> None:
        if method == "Submit":
            context.abort(code, details)

    cluster.coordinators[0].fail = refuse
    with pytest.raises(kind) as caught:
        client.submit("k", GRAPH)
    assert words in str(caught.value)
    assert cluster.coordinators[0].calls.count("Submit") == 1


def test_unknown_job_and_taken_key(client: Client) -> None:
    with pytest.raises(UnknownJob, match="no job 'nope'"):
        client.job("nope")
    client.submit("k", GRAPH)
    with pytest.raises(KeyTaken, match="'k' belongs to another job graph"):
        client.submit("k", m.JobGraph("other", GRAPH.vertices))


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without any answer a client gives up soon."""
    monkeypatch.setattr("lockgate.client.directory.FIRST_ANSWER_MS", 100)


@pytest.mark.usefixtures("soon")
def test_an_unreachable_cluster_is_reported_with_the_addresses_and_the_remedy() -> None:
    with (
        Client(["127.0.0.1:1", "127.0.0.1:2"], origin="--cluster") as client,
        pytest.raises(ClusterUnreachable) as caught,
    ):
        client.jobs()
    assert "127.0.0.1:1, 127.0.0.1:2 (from --cluster" in str(caught.value)
    assert "lockgate cluster" in str(caught.value)


def test_another_machine_is_reached_with_tls_only() -> None:
    with (
        Client(["coordinator.invalid:7070"], credentials=Credentials(SECRET)) as client,
        pytest.raises(ClientError, match=r"on another machine.*LOCKGATE_TLS_AUTHORITY"),
    ):
        client.jobs()


@pytest.mark.usefixtures("soon")
def test_a_name_that_does_not_resolve_has_no_listener(tmp_path: Path) -> None:
    tls = make_certificates(tmp_path)
    with (
        Client(["coordinator.invalid:7070"], credentials=Credentials(SECRET, tls)) as client,
        pytest.raises(ClusterUnreachable, match=r"no coordinator answers at coordinator\.invalid:7070 ") as caught,
    ):
        client.jobs()
    assert caught.value.silent


def test_coordinators_without_a_leader_are_distinguished_from_no_coordinators(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.lead(None)
    directory = CoordinatorList(cluster.addresses, Credentials(), "the test")
    monkeypatch.setattr(Deadline, "expired", property(lambda _deadline: directory._met))  # when one has answered
    try:
        with pytest.raises(ClusterUnreachable, match="none of them is the leader"):
            directory.locate(Deadline(PATIENCE_MS))
    finally:
        directory.close()


def test_watch_continues_at_the_next_leader_without_repeating_events(cluster: Cluster, client: Client) -> None:
    first, second = cluster.coordinators
    client.submit("k", GRAPH)
    lost: list[str] = []
    watch = client.watch("k", on_lost=lost.append)
    opening = watch.poll(PATIENCE_MS)
    assert isinstance(opening, m.JobStatus)
    assert first.watched.acquire(timeout=PATIENCE_MS / 1000)
    first.send(LOSS)
    assert watch.poll(PATIENCE_MS) == LOSS
    second.first_updates = [LOSS, GRANT]  # a leader repeats what it keeps
    cluster.lead(second)
    first.die()
    assert isinstance(watch.poll(PATIENCE_MS), m.JobStatus)
    assert watch.poll(PATIENCE_MS) == GRANT
    second.send(status("k", m.JobState.FINISHED))
    second.send(None)
    final = watch.poll(PATIENCE_MS)
    assert isinstance(final, m.JobStatus)
    assert final.state is m.JobState.FINISHED
    assert watch.ended
    assert watch.poll(0) is None
    assert len(lost) == 1


def test_watch_of_an_ended_job_gives_its_events_before_its_end(cluster: Cluster, client: Client) -> None:
    client.submit("k", GRAPH)
    cluster.jobs["k"] = (GRAPH, status("k", m.JobState.FINISHED))
    cluster.coordinators[0].first_updates = [GRANT, None]
    assert [type(update).__name__ for update in client.watch("k")] == ["JobEvent", "JobStatus"]


def test_watch_leaves_a_frozen_leader(cluster: Cluster, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lockgate.client.watch.LOOK_EVERY_S", 0.2)
    client.submit("k", GRAPH)
    watch = client.watch("k")
    assert isinstance(watch.poll(PATIENCE_MS), m.JobStatus)
    cluster.lead(cluster.coordinators[1])  # the first stays silent and keeps the stream open
    assert isinstance(watch.poll(PATIENCE_MS), m.JobStatus)
    assert cluster.coordinators[1].calls.count("Watch") == 1
    watch.close()


def test_watch_leaves_a_leader_that_does_not_know_that_it_was_replaced(
    cluster: Cluster, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lockgate.client.watch.LOOK_EVERY_S", 0.2)
    client.submit("k", GRAPH)
    watch = client.watch("k")
    assert isinstance(watch.poll(PATIENCE_MS), m.JobStatus)
    former, later = cluster.coordinators
    former.cut_off()
    cluster.lead(later)
    deadline = time.monotonic() + PATIENCE_MS / 1000
    while not later.calls.count("Watch"):  # the former goes on to tell, and the watch is polled in short turns
        assert time.monotonic() < deadline
        former.send(m.JobEvent(m.JobEventKind.STATE_CHANGED, time.time_ns(), token=1))
        watch.poll(10)
    watch.close()


def test_calls_leave_a_leader_that_does_not_know_that_it_was_replaced(
    cluster: Cluster, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lockgate.client.client.TRUST_S", 0.1)
    client.submit("k", GRAPH)
    former, later = cluster.coordinators
    former.cut_off()
    cluster.lead(later)
    deadline = time.monotonic() + PATIENCE_MS / 1000
    while not later.calls.count("Get"):
        assert time.monotonic() < deadline
        assert client.job("k").state is m.JobState.RUNNING


def test_a_client_never_goes_back_to_a_leader_that_was_replaced(
    cluster: Cluster, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lockgate.client.client.TRUST_S", 0.3)
    monkeypatch.setattr("lockgate.client.directory.SECOND_OPINION_S", PATIENCE_MS / 1000)  # both answer in time
    client.submit("k", GRAPH)
    former, later = cluster.coordinators
    former.cut_off()
    cluster.lead(later)
    assert client.leader().address == later.address
    is_slow = threading.Event()
    later.fail = lambda method, _context: _wait(is_slow) if method == "GetLeader" else None
    try:  # only the former says at once who leads: itself
        client._doubt_at = 0.0
        assert client.locate(Deadline(PATIENCE_MS)).address == later.address
        with pytest.raises(ClusterUnreachable, match="has taken over"):
            client.locate_again(Deadline(1_000))
        assert client.job("k").state is m.JobState.RUNNING
    finally:
        is_slow.set()
    assert former.calls.count("Get") == 0


def test_a_leader_that_another_thread_loses_meanwhile_is_still_answered(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.submit("k", GRAPH)
    known = client.locate(Deadline(PATIENCE_MS))

    def no_leader(_deadline: Deadline) -> m.LeaderRecord:
        client.forget_leader()  # the other thread
        raise ClusterUnreachable("there is no leader")

    monkeypatch.setattr(client, "locate_again", no_leader)
    client._doubt_at = 0.0
    assert client.locate(Deadline(1_000)) == known


def test_a_leader_without_contrary_evidence_is_asked_again(
    cluster: Cluster, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lockgate.client.client.TRUST_S", 0.05)
    client.submit("k", GRAPH)

    def refuse(method: str, context: grpc.ServicerContext) -> None:
        if method == "GetLeader":
            context.abort(grpc.StatusCode.UNAVAILABLE, "there is no leader at the moment; try again")

    for coordinator in cluster.coordinators:
        coordinator.fail = refuse
    never = threading.Event()
    for _ in range(3):
        never.wait(0.06)  # past the trust
        assert client.job("k").state is m.JobState.RUNNING


def test_watch_times_out_without_ending(client: Client) -> None:
    client.submit("k", GRAPH)
    watch = client.watch("k")
    watch.poll(PATIENCE_MS)
    assert watch.poll(50) is None
    assert not watch.ended
    watch.close()


def test_watch_of_an_unknown_job_is_an_error(client: Client) -> None:
    with pytest.raises(UnknownJob):
        client.watch("nope").poll(PATIENCE_MS)


def test_wait_raises_the_jobs_own_error(cluster: Cluster, client: Client) -> None:
    client.submit("k", GRAPH)
    cluster.coordinators[0].first_updates = [status("k", m.JobState.FAILED, error="no column `wrod`"), None]
    with pytest.raises(JobFailed, match="no column `wrod`"):
        JobHandle(client, "k").wait(PATIENCE_MS / 1000)


def test_wait_has_a_limit(client: Client) -> None:
    client.submit("k", GRAPH)
    with pytest.raises(ClientError, match="has not ended after"):
        JobHandle(client, "k").wait(0.1)


def test_the_repeats_of_a_savepoint_carry_one_request_id_and_two_savepoints_two(
    cluster: Cluster, client: Client
) -> None:
    client.submit("k", m.JobGraph())

    def refuse_once(method: str, context: grpc.ServicerContext) -> None:
        if method == "TriggerSavepoint" and len(cluster.savepoints) == 1:
            context.abort(grpc.StatusCode.UNAVAILABLE, "a takeover is under way")

    for coordinator in cluster.coordinators:
        coordinator.fail = refuse_once
    client.savepoint("k")
    first, repeated = cluster.savepoints
    assert first == repeated != ""
    client.savepoint("k")
    client.savepoint("k", request_id="mine")
    assert cluster.savepoints[2] not in ("", first)
    assert cluster.savepoints[3] == "mine"


def test_cancel_savepoint_and_checkpoints(client: Client) -> None:
    client.submit("k", GRAPH)
    handle = JobHandle(client, "k")
    assert handle.cancel() is m.JobState.CANCELING
    assert handle.savepoint().pointer == "file:///s/chk-9/_metadata"
    assert [checkpoint.checkpoint_id for checkpoint in client.checkpoints("k")] == [7, 6, 5], (
        "savepoints are listed with them"
    )
    assert [part.size_bytes for part in client.checkpoint_parts("k", 7)] == [2048]
    assert client.checkpoint_parts("k", 6) == ()


def test_a_closed_client_says_so(client: Client) -> None:
    client.jobs()
    client.close()
    with pytest.raises(ClientError, match="closed"):
        client.jobs()
