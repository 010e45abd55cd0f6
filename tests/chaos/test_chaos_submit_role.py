"""A holder of the role `submit` tries to become the cluster, on a cluster of real processes with its default settings.

Each try is refused in a sentence, at submission or by the task manager; with the role `code` the same job runs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from lockgate_common.security import Credentials
from lockgate_common.token_book import issue
from lockgate_proto.messages import JobGraph, NoRestart, RestartStrategy

from lockgate import Job
from lockgate.client import Client, JobFailed, JobHandle, KeyTaken, NotAllowed
from lockgate.pipeline.stream import Stream
from tests.chaos.testing_cluster import TestingCluster

pytestmark = [pytest.mark.chaos, pytest.mark.rotating, pytest.mark.first, pytest.mark.timeout(600)]

WAIT_S = 240.0
PASSWORD = "of-the-environment-4731"
LISTED = "of-the-list-4732"


@dataclass
class Field:
    """A cluster, a client for each of two roles, and a folder of data with links out of it."""

    testing: TestingCluster
    submit: Client
    code: Client
    data: Path
    jobs: int = 0

    @property
    def own(self) -> Path:
        return self.testing.cluster.directory

    def tried(self, client: Client, graph: JobGraph) -> str:
        """Why the job was refused or failed; "" when it has run."""
        self.jobs += 1
        key = f"try-{self.jobs}"
        try:
            client.submit(key, replace(graph, name=key))
            JobHandle(client, key).wait(WAIT_S)
        except (NotAllowed, JobFailed) as error:
            return str(error)
        return ""

    def out(self) -> Path:
        """A new folder for a sink, which makes it."""
        self.jobs += 1
        return self.data / "out" / f"{self.jobs}"


Make = Callable[[Field, Path], JobGraph]


@pytest.fixture(scope="module")
def field(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Field]:
    folder = tmp_path_factory.mktemp("submit-role")
    data = folder / "data"
    data.mkdir()
    tokens = folder / "tokens" / "tokens.json"  # the cluster's own folder is private anyway
    testing = TestingCluster(
        folder / "cluster",
        coordinators=1,
        taskmanagers=1,
        start_timeout_ms=300_000,
        coordinator={"tokens_file": str(tokens)},
        taskmanager={"variables": ["LISTED_*"]},
    )
    testing.environment |= {"SHOP_PASSWORD": PASSWORD, "LISTED_PASSWORD": LISTED}
    with testing, contextlib.ExitStack() as clients:
        secret = testing.cluster.credentials().secret
        (data / "in.txt").write_text("a\nb\n")
        (data / "links").mkdir()
        (data / "links" / "x.txt").symlink_to(testing.cluster.secret_file)
        (data / "folder").symlink_to(testing.cluster.directory)
        made = [
            clients.enter_context(
                Client(
                    testing.cluster.coordinators,
                    credentials=Credentials(token=issue(tokens, secret, role, (role,), 0)),
                    patience_ms=60_000,
                )
            )
            for role in ("submit", "code")
        ]
        yield Field(testing, *made, data)


def reading(path: str | Path) -> Make:
    def graph(field: Field, out: Path) -> JobGraph:
        job = Job("reads", parallelism=1)
        where = str(path).format(own=field.own, data=field.data)
        job.read_text(where).write_json(str(out))
        return job.graph()

    return graph


def computing(query: str) -> Make:
    def graph(field: Field, out: Path) -> JobGraph:
        job = Job("computes", parallelism=1)
        job.read_text(str(field.data / "in.txt")).sql(query.format(own=field.own, data=field.data)).write_json(str(out))
        return job.graph()

    return graph


def writing(sink: Callable[[Field, Stream], object]) -> Make:
    def graph(field: Field, _: Path) -> JobGraph:
        job = Job("writes", parallelism=1)
        sink(field, job.generate(rows=2))
        return job.graph()

    return graph


TRIES = {
    "the secret": reading("{own}/secret"),
    "the secret by a URI": reading("file://{own}/secret"),
    "the secret by a way around": reading("{data}/../data/folder/secret"),
    "a link to the secret": reading("{data}/links"),
    "a link to the cluster": reading("{data}/folder/logs"),
    "tokens": reading("{data}/../tokens/tokens.json"),
    "snapshots": reading("{own}/storage"),
    "logs": reading("{own}/logs"),
    "the environment": reading("/proc/self/environ"),
    "SQL on a file": computing("SELECT f.value FROM input, text.`{own}/secret` AS f"),
    "SQL on a file in a subquery": computing("SELECT (SELECT max(value) FROM text . `{own}/secret`) AS x FROM input"),
    "a variable in SQL": computing("SELECT '${{env:SHOP_PASSWORD}}' AS x FROM input"),
    "Java in SQL": computing("SELECT try_reflect('java.lang.System', 'getenv', 'SHOP_PASSWORD') AS x FROM input"),
    "files over the cluster": writing(lambda field, rows: rows.write_json(str(field.own / "new"))),
    "files over a link": writing(lambda field, rows: rows.write_json(str(field.data / "folder/x"))),
    "a database over the cluster": writing(
        lambda field, rows: rows.write_sql(f"sqlite:///{field.own}/x.db", "t", mode="append")
    ),
    "a database by a URI": writing(
        lambda field, rows: rows.write_sql(f"sqlite:///file:{field.own}/y.db?uri=true", "t", mode="append")
    ),
}


@pytest.mark.parametrize("name", TRIES)
def test_it_gets_nothing_of_the_cluster(field: Field, name: str) -> None:
    out = field.out()
    refusal = field.tried(field.submit, TRIES[name](field, out))
    assert "role code" in refusal
    assert "Traceback" not in refusal
    assert not list(out.rglob("*.json"))
    assert not (field.own / "new").exists()
    assert not (field.own / "x").exists()
    assert not list(field.own.glob("*.db"))


def test_a_variable_is_one_that_the_operator_allows(field: Field) -> None:
    def failed(name: str, place: str = "postgresql://u:{}@127.0.0.1:1/d") -> str:
        url = place.format(f"${{{name}}}")
        graph = writing(lambda _, rows: rows.write_sql(url, "t", mode="append"))(field, field.out())
        return field.tried(field.submit, replace(graph, restart=RestartStrategy(NoRestart())))

    assert "an operator who adds the name to taskmanager.variables" in failed("SHOP_PASSWORD")
    assert "stands only for a password or key" in failed("LISTED_PASSWORD", "postgresql://u:x@127.0.0.1:1/{}")
    assert "stands only for a password or key" in failed("LISTED_PASSWORD", f"sqlite:///{field.data}/{{}}.db")
    allowed = failed("LISTED_PASSWORD")
    assert "failed" in allowed  # nothing listens there
    assert LISTED not in allowed
    assert not any(secret in repr(field.testing.client.jobs()) for secret in (PASSWORD, LISTED))


def test_allowed_files_can_be_read_and_written(field: Field) -> None:
    out = field.out()
    assert field.tried(field.submit, computing("SELECT upper(value) AS value FROM input")(field, out)) == ""
    assert any("A" in path.read_text() for path in out.rglob("part-*.json*"))
    writes = writing(lambda _, rows: rows.write_sql(f"sqlite:///{field.data}/t.db", "t", mode="append"))
    assert field.tried(field.submit, writes(field, out)) == ""


@pytest.mark.parametrize("name", ["the secret", "a link to the secret", "SQL on a file", "a variable in SQL"])
def test_with_the_role_code_the_same_job_runs(field: Field, name: str) -> None:
    out = field.out()
    assert field.tried(field.code, TRIES[name](field, out)) == ""
    assert list(out.rglob("part-*.json*"))


def test_the_rights_of_the_first_submission_apply(field: Field) -> None:
    graph = computing("SELECT * FROM input")(field, field.out())
    field.submit.submit("shared", graph)
    assert not field.submit.submit("shared", graph).created
    with pytest.raises(KeyTaken, match="submitted with other rights"):
        field.code.submit("shared", graph)
