"""What a run leaves behind: none of the secrets that it was given, and nothing that another user can read."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import pyarrow.fs as pafs
import pytest
from lockgate_common.security import Credentials, TlsFiles
from lockgate_common.storage import locate, read_all
from lockgate_common.token import parse_jwt
from lockgate_proto.rpc import SERVICES

from lockgate import Job
from lockgate.client import Client, JobFailed, JobHandle, NotAllowed
from tests import nobody, spark_ports
from tests.certificates import make_certificates
from tests.chaos.testing_cluster import TestingCluster
from tests.jwts import TestingIssuer
from tests.postgresql_server import server_for_tests as postgresql_server
from tests.s3_server import CREDENTIALS
from tests.s3_server import server_for_tests as s3_server

pytestmark = [pytest.mark.chaos, pytest.mark.first, pytest.mark.rotating, pytest.mark.timeout(600)]

IN_ENVIRONMENT = "of-the-environment-4711"
IN_URL, IN_QUERY, IN_BUCKET = "of-the-url-4712", "of-the-query-4713", "of-the-bucket-4714"
WAIT_S = 240.0


def failed(testing: TestingCluster, name: str, url: str) -> str:
    """The error of a job that writes to a database which does not take its password."""
    job = Job(name, parallelism=1)
    job.generate(rows=100).write_sql(url, "rows", mode="append")
    return error_of(testing, name, job)


def error_of(testing: TestingCluster, name: str, job: Job) -> str:
    """Runs the job until it fails."""
    testing.client.submit(name, job.graph())
    with pytest.raises(JobFailed) as failure:
        JobHandle(testing.client, name).wait(WAIT_S)
    return str(failure.value)


def lines_of_processes() -> Iterator[bytes]:
    """The command line of every process of this machine."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield path.read_bytes()
        except OSError:
            continue  # ended in between


def left(testing: TestingCluster, storage: str) -> dict[str, bytes]:
    """What others may read, by its name: files of the cluster, the storage, states, command lines."""
    folder = testing.cluster.directory
    found = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    del found["secret"]
    bucket = locate(storage)
    for path, size in stored(storage).items():
        with contextlib.suppress(FileNotFoundError):  # a checkpoint that was subsumed in between
            found[f"storage: {path}"] = read_all(replace(bucket, path=path), size).to_pybytes()
    assert any(name.startswith("storage: ") for name in found), "the storage is empty"
    found["states"] = repr(testing.client.jobs()).encode()
    found["cluster"] = repr(testing.client.cluster()).encode()
    return found | {f"process {number}": line for number, line in enumerate(lines_of_processes())}


def stored(storage: str) -> dict[str, int]:
    """The files in the storage, and their sizes."""
    bucket = locate(storage)
    found = bucket.fs.get_file_info(pafs.FileSelector(bucket.path, recursive=True, allow_not_found=True))
    return {info.path: info.size for info in found if info.is_file}


def holders(found: dict[str, bytes], secret: str) -> list[str]:
    """Where it is."""
    return [name for name, content in found.items() if secret.encode() in content]


@dataclass(frozen=True)
class Remains:
    """What a run has left. content: by name, see `left`; readable: what another user of the machine may read;

    kept: snapshots of the job after its end, but its savepoint; intrusion: see tests.chaos.intruder."""

    content: dict[str, bytes]
    readable: list[str]
    errors: list[str]
    kept: list[str]
    secret: str
    tls_key: str
    jwt: str
    intrusion: dict[str, dict[str, str]]


@pytest.fixture(scope="module")
def remains() -> Iterator[Remains]:
    """Of jobs with wrong passwords and of one that takes checkpoints while its leader dies.

    They are in a folder that every user may enter, and the umask takes nothing away.
    """
    folder = Path(tempfile.mkdtemp(prefix="lockgate-secrets-"))
    folder.chmod(0o755)
    (folder / "cluster").mkdir(mode=0o755)
    umask = os.umask(0)
    try:
        yield run(folder)
    finally:
        os.umask(umask)
        shutil.rmtree(folder, ignore_errors=True)


def run(folder: Path) -> Remains:
    with s3_server(str(folder / "s3.log")) as s3, postgresql_server() as postgresql:
        storage = s3.uri("lockgate")
        options = {"spark.hadoop.fs.s3a.secret.key": IN_ENVIRONMENT}
        tls, issuer = make_certificates(folder / "tls"), TestingIssuer(folder)
        issuer.file.chmod(0o644)
        testing = TestingCluster(
            folder,
            storage=storage,
            coordinators=1,
            taskmanagers=1,
            coordinator={"jwt": asdict(issuer.settings)},
            taskmanager={"spark_options": options},
            tls=tls,
        )
        testing.environment["SHOP_PASSWORD"] = IN_ENVIRONMENT
        with testing:
            address = postgresql.url(user="stranger", password="x").rpartition("@")[2]
            errors = [
                failed(testing, "named", f"postgresql://stranger:${{SHOP_PASSWORD}}@{address}"),
                failed(testing, "written", f"postgresql://stranger:{IN_URL}@{address}"),
                failed(testing, "asked", f"postgresql://{address}?user=stranger&password={IN_QUERY}"),
            ]
            job = Job("bucket", parallelism=1)
            job.read_text(f"s3://AKIA:{IN_BUCKET}@nowhere/x?{s3.options}").write_parquet(str(folder / "out"))
            errors.append(error_of(testing, "bucket", job))
            with testing.ledger() as ledger:
                ledger.wait_checkpoints(2)
                testing.kill_leader()
                ledger.wait_attempt(2)
                jwt = show_jwts(testing, issuer)
                content, readable = (
                    left(testing, storage),
                    nobody.readable(testing.cluster.directory) if os.geteuid() == 0 else [],
                )
                intrusion = intrude(testing, tls)
                ledger.check_exact()
                own = f"/chk-{ledger.drain().checkpoint_id}/"  # the savepoint of its end
                kept = [name for name in stored(storage) if "/chk-" in name and own not in name]
        secret = (testing.cluster.directory / "secret").read_text().strip()
    key = Path(tls.key).read_text().splitlines()[1]
    return Remains(content, readable, errors, kept, secret, key, jwt, intrusion)


def show_jwts(testing: TestingCluster, issuer: TestingIssuer) -> str:
    """The signature of one with which a caller was let in; another one is refused with it."""
    jwt = issuer.sign("read")
    for shown, verdict in ((jwt, contextlib.nullcontext()), (jwt.replace(".", ".x", 1), pytest.raises(NotAllowed))):
        credentials = Credentials(token=parse_jwt(shown), tls=testing.cluster.credentials().tls)
        with Client(testing.cluster.coordinators, credentials=credentials) as client, verdict:
            assert client.jobs()
    return jwt.rpartition(".")[2]


def intrude(testing: TestingCluster, tls: TlsFiles) -> dict[str, dict[str, str]]:
    """What tests.chaos.intruder says of its attempts; nothing where only root could become another user."""
    if os.geteuid() != 0:
        return {}
    managers = testing.client.cluster().task_managers
    targets = {
        "zookeeper": testing.cluster.zookeeper,
        "coordinator": testing.cluster.coordinators[0],
        "dashboard": testing.cluster.dashboard.partition("//")[2],
        "metrics": list(testing.cluster.metrics.values()),
        "authority": tls.authority,
        "exchanges": [manager.address for manager in managers],
        "spark": [port for pid in testing.pids("taskmanager") for port in spark_ports.listening(pid)],
        "pids": list(testing.cluster.pids().values()),
    }
    found: dict[str, dict[str, str]] = nobody.run_module("tests.chaos.intruder", targets)
    return found


def test_no_secret_of_a_run_is_left_behind(remains: Remains) -> None:
    assert [name for name in remains.content if name.startswith("storage: ")], "snapshots are there to be read"
    for known in (IN_ENVIRONMENT, CREDENTIALS["AWS_SECRET_ACCESS_KEY"], remains.secret, remains.tls_key, remains.jwt):
        assert holders(remains.content, known) == []
    for written in (IN_URL, IN_QUERY, IN_BUCKET):  # a job graph is stored with what its author has written into it
        assert [name for name in holders(remains.content, written) if not name.startswith("zookeeper")] == []
        assert not [error for error in remains.errors if written in error]
    assert all("password authentication failed" in error for error in remains.errors[:3]), remains.errors


def test_a_leader_that_dies_leaves_the_result_exact_and_no_snapshot_on_s3(remains: Remains) -> None:
    assert any(name.startswith("storage: ") and "/chk-" in name for name in remains.content), "there were snapshots"
    assert remains.kept == []


@nobody.needs_root
def test_another_user_of_the_machine_can_read_nothing_of_a_cluster(remains: Remains) -> None:
    assert remains.readable == []


@nobody.needs_root
def test_another_user_of_the_machine_has_no_access_anywhere(remains: Remains) -> None:
    tried = remains.intrusion["tried"]
    expected = {"zookeeper": {"NoAuthError"}, "environ": {"PermissionError"}, "web": {"401"}}
    for kind, allowed in expected.items():
        results = {name: result for name, result in tried.items() if name.startswith(kind)}
        assert len(results) >= 3, f"nothing of {kind} was tried"
        assert {name: result for name, result in results.items() if result not in allowed} == {}
    rpcs = {name: result for name, result in tried.items() if " " in name and name.startswith("127.")}
    assert {name.split()[1] for name in rpcs} == {name for methods in SERVICES.values() for name in methods}
    refused = {name: result for name, result in rpcs.items() if name.split()[1] != "GetLeader"}
    assert set(refused.values()) == {"UNAUTHENTICATED"}, refused


@nobody.needs_root
def test_spark_reads_nothing_that_another_user_sends(remains: Remains) -> None:
    answers = {name: answer for name, answer in remains.intrusion["tried"].items() if name.startswith("spark ")}
    assert len({name.split()[1] for name in answers}) >= 3, "the driver, its block manager and its gateway listen"
    read = [name for name, answer in answers.items() if spark_ports.MARK in answer or "ClassCastException" in answer]
    assert read == []
    for question in (spark_ports.spark_question, spark_ports.spark_block):
        refused = [
            answer for name, answer in answers.items() if name.endswith(question.__name__) and "Unknown" in answer
        ]
        assert len(refused) >= 2, "the driver and its block manager have answered, so they were not merely slow"
    assert [name for name, answer in answers.items() if name.endswith("py4j_call") and answer.startswith("!y")] == []
    assert [answer for answer in answers.values() if "Authentication error" in answer], "the gateway was asked"


@nobody.needs_root
def test_no_secret_is_on_a_command_line(remains: Remains) -> None:
    lines = remains.intrusion["lines"].values()
    assert any("lockgate" in line for line in lines), "the cluster's processes can be listed"
    for known in (remains.secret, IN_ENVIRONMENT, CREDENTIALS["AWS_SECRET_ACCESS_KEY"], remains.tls_key, remains.jwt):
        assert [line for line in lines if known in line] == []
