"""The real process: Spark, ZooKeeper and the control stream, from the ready line to SIGTERM."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow.csv
import pytest
from lockgate_devtools.zookeeper.server import ZooKeeperServer
from lockgate_ha import steps
from lockgate_ha.paths import Paths
from lockgate_ha.protection import Protection
from lockgate_ha.zookeeper import connect
from lockgate_proto.messages import (
    Aggregate,
    AggregateFunction,
    AssignSplits,
    AttemptId,
    Deploy,
    DiscoverSplits,
    Edge,
    FileFormat,
    FileSink,
    FileSource,
    FirstRecord,
    Goodbye,
    JobGraph,
    KeyedAggregate,
    Operator,
    Participant,
    Partitioning,
    Register,
    SplitsDiscovered,
    SqlTransform,
    SubtaskId,
    SubtaskPhase,
    Vertex,
)

from tests.integration.taskmanager_runtime.scripted_coordinator import Leader, ScriptedCoordinator
from tests.layouts import layout

pytestmark = pytest.mark.integration

PATIENCE_S = 120.0

PROGRAM = """
import logging, sys
from lockgate_common.security import Credentials
from lockgate_taskmanager.runtime.process import run
from lockgate_taskmanager.runtime.settings import TaskManagerSettings
logging.basicConfig(level=logging.INFO, format="%(asctime)s %(threadName)s %(name)s: %(message)s")
zookeeper, cluster, work_dir, secret, patience_ms = sys.argv[1:]
credentials = Credentials(secret=secret)
settings = TaskManagerSettings(
    zookeeper, work_dir, cluster, credentials=credentials, task_manager_id="tm-0", connect_timeout_ms=int(patience_ms)
)
sys.exit(run(settings))
"""


Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(zookeeper: ZooKeeperServer, cluster_name: str, tmp_path: Path) -> Iterator[Start]:
    made: list[subprocess.Popen[str]] = []

    def begin(address: str = zookeeper.address, patience_ms: int = 120_000) -> subprocess.Popen[str]:
        work = tmp_path / "work"
        work.mkdir()
        arguments = [address, cluster_name, str(work), "a secret of this test", str(patience_ms)]
        with (tmp_path / "log").open("w") as log:
            made.append(
                subprocess.Popen(
                    [sys.executable, "-c", PROGRAM, *arguments],
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                    start_new_session=True,
                )
            )
        return made[-1]

    yield begin
    for process in made:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


@pytest.fixture
def process(start: Start) -> subprocess.Popen[str]:
    return start()


def _graph(source: Path, sink: Path) -> JobGraph:
    split = SqlTransform("SELECT explode(split(value, ' ')) AS word FROM input")
    count = KeyedAggregate(("word",), (Aggregate("n", AggregateFunction.COUNT),))
    return JobGraph(
        name="word count",
        vertices=(
            Vertex(
                "words",
                "words",
                1,
                128,
                (
                    Operator("read", kind=FileSource(str(source), FileFormat.TEXT)),
                    Operator("split", kind=split),
                ),
            ),
            Vertex(
                "count",
                "count",
                1,
                128,
                (Operator("sum", kind=count), Operator("write", kind=FileSink(str(sink), FileFormat.CSV))),
            ),
        ),
        edges=(Edge("words", "count", Partitioning.HASH, ("word",)),),
    )


def test_the_process_runs_a_word_count_and_stops_on_sigterm(
    process: subprocess.Popen[str],
    new_coordinator: Callable[..., ScriptedCoordinator],
    zookeeper: ZooKeeperServer,
    cluster_name: str,
    tmp_path: Path,
) -> None:
    assert process.stdout is not None
    ready = process.stdout.readline()
    assert ready.startswith("lockgate taskmanager ready: id=tm-0 exchange=127.0.0.1:"), (tmp_path / "log").read_text()
    assert ready.rstrip().endswith(f" slots=2 pid={process.pid}")
    waiting = f"no coordinator leads cluster {cluster_name} at {zookeeper.address} yet; waiting"
    pause = threading.Event()
    while waiting not in (tmp_path / "log").read_text():
        assert not pause.wait(0.02)
    coordinator = new_coordinator()
    session = connect(zookeeper.address, protection=Protection(cluster_name, "a secret of this test"))
    paths = Paths(cluster_name)
    steps.prepare(session, paths)
    record = replace(coordinator.record, session=session.id)
    contender = steps.join(session, paths, record.coordinator_id, record, rejoin=False)
    steps.claim(session, paths, contender, record, 0, False)
    coordinator.wait_for(Register)

    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "text.txt").write_text("to be or not to be\n" * 100)
    leader = Leader(coordinator, _graph(tmp_path / "in", tmp_path / "out"), ("tm-0",))
    leader.attempt = AttemptId("job", "run", 1)
    directory = (tmp_path / "checkpoints").as_uri()
    places = layout(leader.graph, Participant("tm-0", "127.0.0.1:1"))
    coordinator.send("tm-0", Deploy(leader.attempt, (), 0, directory, places))
    coordinator.send("tm-0", DiscoverSplits(leader.attempt, "words"))
    found = coordinator.wait_for(SplitsDiscovered)[0]
    assert (found.error, len(found.splits), found.complete) == ("", 1, True)
    coordinator.send("tm-0", AssignSplits(SubtaskId(leader.attempt, "words", 0), found.splits, True))
    leader.wait_phase(SubtaskPhase.SUBTASK_EXHAUSTED)
    assert coordinator.received(FirstRecord)
    leader.checkpoint(1, terminal=True)

    files = [path for path in (tmp_path / "out").rglob("*.csv") if not path.name.startswith((".", "_"))]
    rows = [row for file in files for row in pyarrow.csv.read_csv(file).to_pylist()]
    last: dict[str, int] = {}
    for row in rows:
        last[row["word"]] = max(last.get(row["word"], 0), row["n"])
    assert last == {"to": 200, "be": 200, "or": 100, "not": 100}

    session.close()
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_S) == 0
    assert len(coordinator.received(Goodbye)) == 1


def test_the_process_ends_when_its_jvm_does(process: subprocess.Popen[str], tmp_path: Path) -> None:
    assert process.stdout is not None
    assert process.stdout.readline().startswith("lockgate taskmanager ready"), (tmp_path / "log").read_text()
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    jvm = [int(pid) for pid in children if Path(f"/proc/{pid}/comm").read_text().strip() == "java"]
    assert len(jvm) == 1
    os.kill(jvm[0], signal.SIGKILL)
    assert process.wait(PATIENCE_S) == 1
    assert "this task manager exits" in (tmp_path / "log").read_text()


def test_without_zookeeper_the_process_is_not_ready_and_ends_with_a_sentence(start: Start, tmp_path: Path) -> None:
    process = start("127.0.0.1:1", 500)
    assert process.wait(PATIENCE_S) == 2
    assert process.stdout is not None
    assert process.stdout.read() == "", "it was never ready"
    errors = [line for line in (tmp_path / "log").read_text().splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    assert errors[0].startswith("error: no ZooKeeper answered at 127.0.0.1:1 for 0 s; start it")
