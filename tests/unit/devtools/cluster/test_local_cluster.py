"""Starting, watching and stopping a cluster, with stand-ins for the real processes."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from lockgate_common.tls import TlsFiles
from lockgate_devtools.cluster import ClusterError, LocalCluster, inquiry, run_cluster
from lockgate_devtools.cluster import cluster as cluster_module

pytestmark = pytest.mark.spark

WAIT_S = 60

# Prints the ready line of its role, then waits. X_MODE (first start only, where set): die, hang, stubborn, late.
STAND_IN = """
import json, os, signal, socket, sys
role, spec = sys.argv[1], json.load(sys.stdin)
settings = spec["settings"]
print("ZooKeeper is reached with", spec["zookeeper_tls"], file=sys.stderr, flush=True)
mode = os.environ.get("X_MODE", "")
if mode == "die":
    sys.exit("error: the disk is full")
if mode == "hang":
    print("waiting for better times", file=sys.stderr, flush=True)
    signal.pause()
if mode == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
fields = f"pid={os.getpid()}"
if role == "coordinator":
    host, port = settings["bind"].split(":")
    server = socket.create_server((host, int(port)))
    fields += f" id={settings['coordinator_id']} address={host}:{server.getsockname()[1]}"
print(f"lockgate {role} ready: {fields}", flush=True)
while True:
    signal.pause()
"""

Make = Callable[..., LocalCluster]


class LastMoment(threading.Condition):
    """The time of every wait is up when everything has happened that will, however long that takes."""

    def __init__(self, has_happened: Callable[[], object]) -> None:
        super().__init__()
        self._has_happened = has_happened

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        assert timeout is not None
        deadline = time.monotonic() + WAIT_S
        while not (predicate() or self._has_happened()) and time.monotonic() < deadline:
            self.wait(0.02)
        return predicate()


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    script = tmp_path / "stand_in.py"
    script.write_text(STAND_IN)

    def command(role: str) -> list[str]:
        return [sys.executable, str(script), role]

    monkeypatch.setattr(cluster_module, "child_command", command)
    monkeypatch.setattr(inquiry, "registered_task_managers", lambda *_: 99)  # stand-ins speak no gRPC

    def build(**changes: Any) -> LocalCluster:
        return LocalCluster(
            tmp_path / "cluster", **{"restart_delay_ms": 10, "zookeeper_restart_delay_ms": 10, **changes}
        )

    return build


def _description(cluster: LocalCluster) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((cluster.directory / "cluster.json").read_text())
    return found


def _is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_a_second_cluster_in_the_same_folder_is_refused_and_leaves_the_first_alone(make: Make) -> None:
    with make() as cluster:
        description = _description(cluster)
        with pytest.raises(ClusterError, match=r"another cluster runs in .*cluster; .* with --dir"):
            make().start()
        assert _description(cluster) == description
        assert all(not _is_gone(pid) for pid in cluster.pids().values())
    with make():
        pass  # the folder is free again


def test_every_process_and_client_gets_the_files_for_tls_with_zookeeper(make: Make) -> None:
    tls = TlsFiles("/certificate", "/key", "/authority")
    with make(zookeeper_tls=tls) as cluster:
        for name in cluster.pids():
            log = (cluster.directory / "logs" / f"{name}.log").read_text()
            assert f"ZooKeeper is reached with {asdict(tls)}\n" in log
        assert _description(cluster)["zookeeper_tls"] == asdict(tls)
        assert cluster.credentials().zookeeper == tls


def test_all_processes_run_and_are_described(make: Make) -> None:
    with make(coordinators=3, taskmanagers=2) as cluster:
        pids = cluster.pids()
        assert sorted(pids) == [
            "coordinator-0",
            "coordinator-1",
            "coordinator-2",
            "taskmanager-0",
            "taskmanager-1",
            "zookeeper-0",
        ]
        assert len(set(cluster.coordinators)) == 3
        description = _description(cluster)
        assert description["coordinators"] == list(cluster.coordinators)
        assert description["zookeeper"] == cluster.zookeeper
        assert description["pids"] == dict(pids)
        assert Path(description["secret_file"]).stat().st_mode & 0o077 == 0
        assert (cluster.directory / "logs" / "coordinator-0.log").read_text()
    assert all(_is_gone(pid) for pid in pids.values())
    assert _description(cluster)["pids"] == {}


def test_no_setting_is_on_a_command_line(make: Make) -> None:
    options = {"spark.authenticate.secret": "known-to-few"}
    with make(taskmanager={"spark_options": options}) as cluster:
        lines = [Path(f"/proc/{pid}/cmdline").read_text() for pid in cluster.pids().values()]
    assert lines
    assert not [line for line in lines if "known-to-few" in line]


def test_a_killed_coordinator_is_restarted_with_its_port_and_a_new_pid(make: Make) -> None:
    with make() as cluster:
        addresses = cluster.coordinators
        old = cluster.kill("coordinator", 1)
        new = cluster.wait_ready("coordinator", 1, WAIT_S, other_than=old)
        assert new != old
        assert cluster.coordinators == addresses
        assert _description(cluster)["pids"]["coordinator-1"] == new


@pytest.mark.parametrize("role", ["zookeeper", "taskmanager"])
def test_others_come_back_too(make: Make, role: str) -> None:
    with make() as cluster:
        address = cluster.zookeeper
        old = cluster.kill(role, 0)
        assert cluster.wait_ready(role, 0, WAIT_S, other_than=old) != old
        assert cluster.zookeeper == address


def test_an_unsupervised_process_stays_dead_until_it_is_started(make: Make) -> None:
    with make(supervise=False) as cluster:
        old = cluster.kill("taskmanager", 0)
        with pytest.raises(ClusterError, match="taskmanager-0 was not ready within"):
            cluster.wait_ready("taskmanager", 0, 0.2, other_than=old)
        cluster.respawn("taskmanager", 0)
        cluster.wait_ready("taskmanager", 0, WAIT_S, other_than=old)


def test_a_process_that_dies_at_the_start_is_explained_and_nothing_is_left(make: Make) -> None:
    cluster = make(first_environment={"taskmanager-1": {"X_MODE": "die"}})
    with pytest.raises(ClusterError, match="taskmanager-1 did not start: the disk is full"):
        cluster.start()
    assert cluster.pids() == {}


def test_a_process_that_is_never_ready_is_named_with_its_last_lines(make: Make) -> None:
    cluster = make(first_environment={"coordinator-1": {"X_MODE": "hang"}}, start_timeout_ms=1500)
    cluster._condition = LastMoment(
        lambda: re.match(r"(?s)coordinator-1:[^;]*better times", cluster._unready_processes())
    )
    with pytest.raises(ClusterError, match=r"(?s)not ready within 1.5 s: coordinator-1.*better times"):
        cluster.start()
    assert cluster.pids() == {}


def test_the_first_environment_is_for_the_first_start_only(make: Make) -> None:
    with make(first_environment={"taskmanager-0": {"X_MODE": "stubborn"}}) as cluster:
        old = cluster.kill("taskmanager", 0)
        pid = cluster.wait_ready("taskmanager", 0, WAIT_S, other_than=old)
        cluster.kill("taskmanager", 0, signal.SIGTERM)  # the second start does not ignore it
        cluster.wait_ready("taskmanager", 0, WAIT_S, other_than=pid)


def test_a_process_that_ignores_sigterm_is_killed_at_the_deadline(make: Make) -> None:
    cluster = make(first_environment={"taskmanager-0": {"X_MODE": "stubborn"}}, stop_timeout_ms=300)
    cluster.start()
    pid = cluster.pids()["taskmanager-0"]
    cluster.stop()
    assert _is_gone(pid)


def test_a_frozen_process_is_stopped_too(make: Make) -> None:
    with make() as cluster:
        pid = cluster.kill("coordinator", 0, signal.SIGSTOP)
    assert _is_gone(pid)


def test_stopping_twice_is_fine_and_killing_a_dead_process_is_an_error(make: Make) -> None:
    cluster = make()
    cluster.start()
    cluster.stop()
    cluster.stop()
    with pytest.raises(ClusterError, match="coordinator-0 is not running"):
        cluster.kill("coordinator", 0)


def test_there_is_no_leader_where_no_process_answers(make: Make) -> None:
    with make(coordinators=1, taskmanagers=0) as cluster:
        assert cluster.leader(timeout_s=0.3) is None
        assert cluster.leader_number(timeout_s=0.3) is None


def test_a_cluster_is_not_ready_before_its_task_managers_have_registered(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = iter([0, 1, 1, 2])
    monkeypatch.setattr(inquiry, "registered_task_managers", lambda *_: next(counts))
    with make(taskmanagers=2):
        assert next(counts, None) is None
    monkeypatch.setattr(inquiry, "registered_task_managers", lambda *_: 1)
    monkeypatch.setattr(cluster_module, "_REGISTRATION_LIMIT_S", 0.2)
    cluster = make(taskmanagers=2)
    with pytest.raises(ClusterError, match="did not find the leader"):
        cluster.start()
    assert cluster.pids() == {}


def _signalled(folder: Path, number: int, is_time: Callable[[dict[str, int]], bool]) -> threading.Thread:
    """A thread that waits until it is time by the processes that run, and then signals this process."""

    def watch() -> None:
        file, deadline = folder / "cluster.json", time.monotonic() + WAIT_S
        while not (file.exists() and is_time(json.loads(file.read_text())["pids"])):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        os.kill(os.getpid(), number)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


def test_a_process_that_dies_is_reported_with_its_end_and_its_new_start(make: Make) -> None:
    lines: list[str] = []
    cluster = make(notice=lines.append)
    cluster.start()
    pid = cluster.kill("coordinator", 0)
    cluster.wait_ready("coordinator", 0, other_than=pid)
    killed = [
        line for line in lines if line.startswith(f"coordinator-0 (pid {pid}) was killed by SIGKILL; starting it")
    ]
    assert len(killed) == 1
    cluster.stop()  # by then everything is noted
    assert [line for line in lines if line.startswith("coordinator-0 is ready again after ")]


@pytest.fixture
def _no_nohup() -> Iterator[None]:
    """Around these tests themselves."""
    former = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, former)


@pytest.mark.usefixtures("_no_nohup")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_stops_a_cluster_in_the_foreground(
    make: Make, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], number: int
) -> None:
    pids: dict[str, int] = {}
    whole = LocalCluster.wait

    def wait(self: LocalCluster) -> None:
        pids.update(self.pids())
        _signalled(self.directory, number, lambda _: True)
        whole(self)

    monkeypatch.setattr(LocalCluster, "wait", wait)
    folder = make().directory
    assert run_cluster(folder, taskmanagers=1, secret_file=str(folder / "secret")) == 0
    out, progress = capsys.readouterr()
    assert out.startswith("lockgate cluster ready: ")
    assert out.count("\n") == 1
    lines = [line.partition(" ")[2] for line in progress.splitlines()]
    assert lines[0] == f"starting 1 ZooKeeper server, 2 coordinators, 1 task manager in {folder}; Ctrl-C ends them"
    ready = [line for line in lines if " is ready after " in line]
    assert sorted(line.partition(" ")[0] for line in ready) == sorted(pids)
    assert lines[-1] == "stopping 4 processes"
    assert len(pids) == 4
    assert all(map(_is_gone, pids.values()))


def test_a_signal_stops_a_cluster_that_is_starting(make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    folder, pids = make().directory, []

    def is_time(found: dict[str, int]) -> bool:
        pids[:] = found.values()
        return "coordinator-1" in found

    hanging = {"coordinator-1": {"X_MODE": "hang"}}
    thread = _signalled(folder, signal.SIGTERM, is_time)
    limit_ms, secret = WAIT_S * 1000, str(folder / "secret")
    assert run_cluster(folder, first_environment=hanging, start_timeout_ms=limit_ms, secret_file=secret) == 0
    thread.join()
    out, progress = capsys.readouterr()
    assert out == ""
    assert "error" not in progress
    assert pids
    assert all(map(_is_gone, pids))


class _Gone(io.StringIO):
    """A pipe whose reader has ended, as that of `lockgate cluster 2>&1 | tee log` after Ctrl-C."""

    def write(self, _text: str) -> int:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")


def test_a_cluster_outlives_the_readers_of_its_output_and_stops_in_order(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    pids: dict[str, int] = {}
    whole = LocalCluster.wait

    def wait(self: LocalCluster) -> None:
        old = self.kill("coordinator", 1)  # which is noted
        self.wait_ready("coordinator", 1, WAIT_S, other_than=old)
        pids.update(self.pids())
        _signalled(self.directory, signal.SIGINT, lambda _: True)
        whole(self)

    monkeypatch.setattr(LocalCluster, "wait", wait)
    folder = make().directory
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, _Gone())
    assert run_cluster(folder, taskmanagers=1, secret_file=str(folder / "secret"), restart_delay_ms=10) == 0
    assert len(pids) == 4
    assert all(map(_is_gone, pids.values()))
    assert json.loads((folder / "cluster.json").read_text())["pids"] == {}


def test_no_notice_keeps_a_cluster_from_stopping(make: Make) -> None:
    def notice(line: str) -> None:
        if line.startswith("stopping"):
            raise BrokenPipeError

    with make(notice=notice) as cluster:
        pids = cluster.pids()
    assert pids
    assert all(map(_is_gone, pids.values()))
    assert _description(cluster)["pids"] == {}


@pytest.mark.parametrize("home", ["~/", ""])
def test_every_path_of_a_cluster_is_found_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    cluster = LocalCluster(f"{home}cluster", storage=f"{home}snapshots", secret_file=f"{home}secret")
    assert (cluster.directory, cluster.secret_file) == (tmp_path / "cluster", tmp_path / "secret")
    assert cluster.storage == str(tmp_path / "snapshots")
    assert LocalCluster("cluster").storage == str(tmp_path / "cluster" / "storage")
    assert LocalCluster("cluster", storage="s3://bucket/snapshots").storage == "s3://bucket/snapshots"
