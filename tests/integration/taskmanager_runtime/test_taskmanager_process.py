"""The real process: Spark, ZooKeeper and the control stream, from the ready line to SIGTERM."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.csv
import pytest
from lockgate_proto.codec import encode
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
    JobGraph,
    KeyedAggregate,
    Operator,
    Partitioning,
    Placement,
    Register,
    SplitsDiscovered,
    SqlTransform,
    SubtaskId,
    SubtaskPhase,
    Vertex,
)

from ha.paths import Paths
from ha.store import Create
from ha.zookeeper import connect
from ha.zookeeper.server import ZooKeeperServer
from tests.integration.taskmanager_runtime.scripted_coordinator import Leader, ScriptedCoordinator

pytestmark = pytest.mark.integration

PROGRAM = """
import logging, sys
from lockgate_proto.security import Credentials
from taskmanager.runtime.process import run
from taskmanager.runtime.settings import TaskManagerSettings
logging.basicConfig(level=logging.INFO, format="%(asctime)s %(threadName)s %(name)s: %(message)s")
zookeeper, cluster, work_dir, secret = sys.argv[1:]
credentials = Credentials(secret=secret)
sys.exit(run(TaskManagerSettings(zookeeper, work_dir, cluster, credentials=credentials, task_manager_id="tm-0")))
"""


@pytest.fixture
def process(zookeeper: ZooKeeperServer, cluster_name: str, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    work = tmp_path / "work"
    work.mkdir()
    arguments = [sys.executable, "-c", PROGRAM, zookeeper.address, cluster_name, str(work), "a secret of this test"]
    with (tmp_path / "log").open("w") as log:
        started = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True)
        yield started
        if started.poll() is None:
            os.killpg(started.pid, signal.SIGKILL)
        started.wait()
        assert started.stdout is not None
        started.stdout.close()


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
    coordinator = new_coordinator()
    session = connect(zookeeper.address)
    paths = Paths(cluster_name)
    parents = ["/lockgate", paths.base]
    for path in [one for one in parents if session.get(one) is None]:
        session.transact([Create(path, b"")])
    session.transact([Create(paths.leader, encode(coordinator.record))])
    coordinator.wait_for(Register)

    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "text.txt").write_text("to be or not to be\n" * 100)
    leader = Leader(coordinator, _graph(tmp_path / "in", tmp_path / "out"), ("tm-0",))
    leader.attempt = AttemptId("job", "run", 1)
    directory = (tmp_path / "checkpoints").as_uri()
    places = tuple(Placement(one, 0, "tm-0", "127.0.0.1:1") for one in ("words", "count"))
    coordinator.send("tm-0", Deploy(leader.attempt, leader.graph, places, (), 0, directory))
    coordinator.send("tm-0", DiscoverSplits(leader.attempt, "words"))
    found = coordinator.wait_for(SplitsDiscovered)[0]
    assert (found.error, len(found.splits), found.complete) == ("", 1, True)
    coordinator.send("tm-0", AssignSplits(SubtaskId(leader.attempt, "words", 0), found.splits, True))
    leader.wait_phase(SubtaskPhase.SUBTASK_EXHAUSTED)
    assert coordinator.received(FirstRecord)
    leader.checkpoint(1, terminal=True)

    files = [one for one in (tmp_path / "out").rglob("*.csv") if not one.name.startswith((".", "_"))]
    rows = [row for file in files for row in pyarrow.csv.read_csv(file).to_pylist()]
    last: dict[str, int] = {}
    for row in rows:
        last[row["word"]] = max(last.get(row["word"], 0), row["n"])
    assert last == {"to": 200, "be": 200, "or": 100, "not": 100}

    session.close()
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0


def test_the_process_ends_when_its_jvm_does(process: subprocess.Popen[str], tmp_path: Path) -> None:
    assert process.stdout is not None
    assert process.stdout.readline().startswith("lockgate taskmanager ready"), (tmp_path / "log").read_text()
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    jvm = [int(pid) for pid in children if Path(f"/proc/{pid}/comm").read_text().strip() == "java"]
    assert len(jvm) == 1
    os.kill(jvm[0], signal.SIGKILL)
    assert process.wait(timeout=20) == 1
    assert "this task manager ends, too" in (tmp_path / "log").read_text()
