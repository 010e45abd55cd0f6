"""`lockgate zookeeper protect`: a cluster that was made without a secret, or with another one, is moved."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from kazoo.client import KazooClient
from lockgate_common.checksums import checksum
from lockgate_devtools.zookeeper.server import ZooKeeperServer
from lockgate_ha import steps
from lockgate_ha.errors import AccessDenied, UnsealedRecord
from lockgate_ha.grant import LeadershipGrant
from lockgate_ha.paths import ROOT, Paths
from lockgate_ha.protection import UNPROTECTED, Protection
from lockgate_ha.records import JobRecords
from lockgate_ha.session import Session
from lockgate_ha.session_store import SessionStore
from lockgate_ha.store import Put
from lockgate_ha.zookeeper import connect
from lockgate_proto.codec import encode
from lockgate_proto.messages import CompletedCheckpoint, JobRecord, JobResult, LeaderRecord

from lockgate.cli import cli
from lockgate.errors import UserError

pytestmark = [pytest.mark.integration, pytest.mark.rotating]

SECRET, OTHER = "the secret of this cluster", "the one that comes after it"
Protect = Callable[..., Result]


@pytest.fixture
def secret_file(tmp_path: Path) -> Callable[[str], str]:
    def write(secret: str) -> str:
        path = tmp_path / secret.replace(" ", "-")
        path.write_text(secret)
        path.chmod(0o600)
        return str(path)

    return write


@pytest.fixture
def protect(own_zookeeper: ZooKeeperServer, cluster_name: str, secret_file: Callable[[str], str]) -> Protect:
    """Runs the command."""

    def run(secret: str, former: str = "") -> Result:
        words = ["zookeeper", "protect", "--zookeeper", own_zookeeper.address, "--cluster-name", cluster_name]
        words += ["--secret-file", secret_file(secret)]
        words += ["--former-secret-file", secret_file(former)] if former else []
        return CliRunner().invoke(cli, words, standalone_mode=False)

    return run


@pytest.fixture
def open_session(own_zookeeper: ZooKeeperServer) -> Iterator[Callable[[Protection], Session]]:
    made: list[Session] = []

    def open_one(protection: Protection) -> Session:
        made.append(connect(own_zookeeper.address, protection=protection))
        return made[-1]

    yield open_one
    for session in made:
        session.close()


def make_cluster(session: Session, cluster: str) -> JobRecords:
    """One with a job, a checkpoint and a result, without a leader by now."""
    paths = Paths(cluster)
    steps.prepare(session, paths)
    contender = steps.join(session, paths, "a", LeaderRecord(address="a:1"), rejoin=False)
    steps.claim(session, paths, contender, LeaderRecord(1, "a:1", session.id), 0, False)
    grant, records = LeadershipGrant(1, "a", session.id), JobRecords(SessionStore(cluster, session), cluster)
    records.submit(grant, JobRecord("a job.", "run", graph=b"its graph"))
    records.write_checkpoint_id(grant, "a job.", 7)
    records.add_checkpoint(grant, "a job.", CompletedCheckpoint(7, pointer="file:///chk-7"))
    records.write_result(grant, JobResult("ended", "run-2", outcome="FINISHED"))
    assert steps.release(session, paths, 1, contender)
    assert not steps.release(session, paths, 1, contender), "it has gone"
    return records


def check_cluster(session: Session, cluster: str) -> None:
    """It is all there."""
    steps.check_mark(session, Paths(cluster))
    records = JobRecords(SessionStore(cluster, session), cluster)
    assert [job.graph for job in records.jobs()] == [b"its graph"]
    point = records.restart_point("a job.")
    assert point.attempt is not None
    assert (point.checkpoint_id, [kept.pointer for kept in point.checkpoints]) == (7, ["file:///chk-7"])
    assert [result.outcome for result in records.results()] == ["FINISHED"]


def test_a_cluster_of_an_earlier_version_is_protected(
    protect: Protect, open_session: Callable[[Protection], Session], cluster_name: str
) -> None:
    stranger, own = open_session(UNPROTECTED), open_session(Protection(cluster_name, SECRET))
    make_cluster(stranger, cluster_name)
    with pytest.raises(UnsealedRecord, match="lockgate zookeeper protect"):
        steps.prepare(own, Paths(cluster_name))
    done = protect(SECRET)
    assert done.exception is None
    assert "records were sealed now" in done.output
    assert "jobs: a job." in done.output
    check_cluster(own, cluster_name)
    paths = Paths(cluster_name)
    for path in (paths.base, paths.epoch, paths.jobs, paths.graph("a job."), paths.checkpoint("a job.", 7)):
        with pytest.raises(AccessDenied):
            stranger.get(path)
    assert stranger.get(ROOT) is not None
    with pytest.raises(AccessDenied):
        stranger.transact([Put(ROOT, b"mine")])
    again = protect(SECRET)
    assert again.exception is None
    assert "0 records were sealed now" in again.output


def test_a_start_that_an_earlier_version_has_not_sealed_is_pinned_as_it_is(
    protect: Protect, open_session: Callable[[Protection], Session], cluster_name: str, tmp_path: Path
) -> None:
    """Of jobs that need it: that have no checkpoint of their own, and do not know the snapshot's checksum yet."""
    records = make_cluster(stranger := open_session(UNPROTECTED), cluster_name)
    file = tmp_path / "savepoint" / "_metadata"
    file.parent.mkdir()
    file.write_bytes(b"a snapshot without a seal")
    known, lost = checksum(b"when it was submitted"), str(tmp_path / "lost")
    submitted = {
        "waits": JobRecord("waits", "run", restore_from=str(file.parent)),
        "knows": JobRecord("knows", "run", restore_from=str(file.parent), restore_checksum=known),
        "goes on": JobRecord("goes on", "run", restore_from=lost),
        "lost": JobRecord("lost", "run", restore_from=lost),
    }
    grant = LeadershipGrant(1, "a", stranger.id)
    for record in submitted.values():
        records.submit(grant, record)
    records.write_checkpoint_id(grant, "goes on", 1)
    records.add_checkpoint(grant, "goes on", CompletedCheckpoint(1, pointer="file:///chk-1"))
    done = protect(SECRET)
    assert done.return_value == 1
    assert f"job waits starts from {file.parent}, which an earlier version has not sealed, as it is now" in done.output
    assert "job lost will be held back: cannot read" in done.output
    assert "job goes on" not in done.output
    own = JobRecords(SessionStore(cluster_name, open_session(Protection(cluster_name, SECRET))), cluster_name)
    assert own.job("waits") == replace(submitted["waits"], restore_checksum=checksum(file.read_bytes()))
    assert [own.job(key) for key in ("knows", "goes on", "lost")] == list(submitted.values())[1:]
    file.write_bytes(b"another one")
    again = protect(SECRET)
    assert "job waits" not in again.output, "it was looked at once"


def test_the_secret_can_be_changed(
    protect: Protect, open_session: Callable[[Protection], Session], cluster_name: str
) -> None:
    make_cluster(open_session(Protection(cluster_name, SECRET)), cluster_name)
    refused = protect(OTHER)
    assert isinstance(refused.exception, UserError)
    assert "another secret" in str(refused.exception)
    assert protect(OTHER, former=SECRET).exception is None
    check_cluster(open_session(Protection(cluster_name, OTHER)), cluster_name)
    with pytest.raises(AccessDenied):
        open_session(Protection(cluster_name, SECRET)).get(Paths(cluster_name).base)


def test_the_lockgate_node_moves_to_the_new_secret(
    protect: Protect, open_session: Callable[[Protection], Session], cluster_name: str
) -> None:
    former, own = (open_session(Protection(cluster_name, secret)) for secret in (SECRET, OTHER))
    make_cluster(former, cluster_name)
    check_handed_over((ROOT,), former, own, lambda: protect(OTHER, former=SECRET))


def test_nodes_restricted_under_the_former_secret_move_to_the_new_one(
    own_zookeeper: ZooKeeperServer,
    protect: Protect,
    open_session: Callable[[Protection], Session],
    cluster_name: str,
) -> None:
    own_zookeeper.stop()
    server = ZooKeeperServer(own_zookeeper.data_dir, port=own_zookeeper.port, secret=SECRET)
    server.start()
    try:
        former, own = (open_session(Protection(cluster_name, secret)) for secret in (SECRET, OTHER))
        make_cluster(former, cluster_name)
        paths = (ROOT, "/", "/zookeeper", "/zookeeper/quota")
        check_handed_over(paths, former, own, lambda: protect(OTHER, former=SECRET))
        with pytest.raises(AccessDenied):
            steps.prepare(former, Paths(f"{cluster_name}-beside"))
        steps.prepare(own, Paths(f"{cluster_name}-beside"))
    finally:
        server.stop()


def check_handed_over(paths: Sequence[str], former: Session, own: Session, protect: Callable[[], Result]) -> None:
    for path in paths:
        former.transact([Put(path, b"")])
    assert protect().exception is None
    for path in paths:
        with pytest.raises(AccessDenied):
            former.transact([Put(path, b"mine")])
        own.transact([Put(path, b"")])


def test_a_planted_record_is_not_sealed_when_the_secret_is_changed(
    protect: Protect, open_session: Callable[[Protection], Session], cluster_name: str
) -> None:
    session = open_session(Protection(cluster_name, SECRET))
    make_cluster(session, cluster_name)
    session.transact([Put(Paths(cluster_name).graph("a job."), encode(JobRecord("a job.", "run", graph=b"another")))])
    refused = protect(OTHER, former=SECRET)
    assert isinstance(refused.exception, UserError)
    assert "/graph cannot be read: it is not sealed" in str(refused.exception)


def test_a_running_or_missing_cluster_is_left_alone(
    protect: Protect, open_session: Callable[[Protection], Session], cluster_name: str
) -> None:
    missing = protect(SECRET)
    assert isinstance(missing.exception, UserError)
    assert f"has no cluster '{cluster_name}'" in str(missing.exception)
    session = open_session(UNPROTECTED)
    make_cluster(session, cluster_name)
    steps.join(session, Paths(cluster_name), "b", LeaderRecord(address="b:1"), rejoin=False)
    running = protect(SECRET)
    assert isinstance(running.exception, UserError)
    assert "1 coordinators of cluster" in str(running.exception)
    assert JobRecords(SessionStore(cluster_name, session), cluster_name).job("a job.") is not None


def test_the_line_for_zookeepers_own_client_opens_the_nodes(
    own_zookeeper: ZooKeeperServer,
    open_session: Callable[[Protection], Session],
    cluster_name: str,
    secret_file: Callable[[str], str],
) -> None:
    make_cluster(open_session(Protection(cluster_name, SECRET)), cluster_name)
    words = ["zookeeper", "user", "--cluster-name", cluster_name, "--secret-file", secret_file(SECRET)]
    line = CliRunner().invoke(cli, words, standalone_mode=False).output.split()
    assert line[:2] == ["addauth", "digest"]
    client = KazooClient(own_zookeeper.address, auth_data=[("digest", line[2])])
    client.start()
    assert client.get_children(Paths(cluster_name).jobs)
    client.stop()
    client.close()
