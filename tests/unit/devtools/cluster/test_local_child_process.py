"""A real child process: ready line, log, end, and what happens to its own children."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from lockgate_devtools.cluster.errors import ClusterError
from lockgate_devtools.cluster.process import ChildProcess

WAIT_S = 60
Starter = Callable[[str], ChildProcess]
READY = "print('lockgate coordinator ready: id=c-0 address=127.0.0.1:7070 pid=' + str(os.getpid()), flush=True)"


@pytest.fixture
def changes() -> queue.Queue[ChildProcess]:
    return queue.Queue()


@pytest.fixture
def start(tmp_path: Path, changes: queue.Queue[ChildProcess]) -> Iterator[Starter]:
    started: list[ChildProcess] = []

    def run(code: str) -> ChildProcess:
        command = [sys.executable, "-c", f"import os, sys, signal, subprocess\n{code}"]
        started.append(ChildProcess("coordinator-0", command, tmp_path / "c.log", {"X_TEST": "1"}, changes.put))
        return started[-1]

    yield run
    for child in started:
        child.close()


def test_the_ready_line_is_read_and_kept_in_the_log(start: Starter, changes: queue.Queue[ChildProcess]) -> None:
    child = start(f"print('something else'); {READY}; signal.pause()")
    assert changes.get(timeout=WAIT_S) is child
    assert child.ready == {"id": "c-0", "address": "127.0.0.1:7070", "pid": str(child.pid)}
    assert child.main_pid == child.pid
    assert child.is_running
    assert "something else" in child.log.read_text()


def test_the_end_is_reported_with_the_exit_code(start: Starter, changes: queue.Queue[ChildProcess]) -> None:
    child = start("sys.exit(3)")
    assert changes.get(timeout=WAIT_S) is child
    assert not child.is_running
    assert child.exit_code == 3


def test_its_own_error_line_is_the_complaint(start: Starter) -> None:
    child = start("print('noise', file=sys.stderr); sys.exit('error: port 1 is taken')")
    assert child.join(WAIT_S)
    assert child.failure_text() == "port 1 is taken"


def test_else_the_last_lines_of_this_start_are(start: Starter) -> None:
    assert start("sys.exit('the first start failed')").join(WAIT_S)
    child = start("sys.exit('\\n'.join(f'line {n}' for n in range(40)))")
    assert child.join(WAIT_S)
    failure_text = child.failure_text()
    assert "line 39" in failure_text
    assert "line 10\n" not in failure_text
    assert "first start" not in failure_text


def test_close_kills_the_grandchildren_too(start: Starter, changes: queue.Queue[ChildProcess]) -> None:
    child = start(
        "p = subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()'])\n"
        "print(f'lockgate x ready: grandchild={p.pid}', flush=True); signal.pause()"
    )
    assert changes.get(timeout=WAIT_S) is child
    assert child.ready is not None
    grandchild = os.pidfd_open(int(child.ready["grandchild"]))
    try:
        child.close()
        signalled = _ends(grandchild)
    finally:
        os.close(grandchild)
    assert signalled


def test_a_stopped_process_can_be_terminated(start: Starter, changes: queue.Queue[ChildProcess]) -> None:
    child = start(f"{READY}; signal.pause()")
    assert changes.get(timeout=WAIT_S) is child
    child.send(signal.SIGSTOP)
    child.terminate()
    assert child.join(WAIT_S)
    assert child.exit_code == -signal.SIGTERM


def test_signals_to_a_dead_process_do_nothing(start: Starter) -> None:
    child = start("pass")
    assert child.join(WAIT_S)
    child.send(signal.SIGKILL)
    child.terminate()
    child.close()
    child.close()


def test_a_process_that_cannot_be_started_is_a_cluster_error(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="cannot start coordinator-0"):
        ChildProcess("coordinator-0", ["/nowhere/python"], tmp_path / "c.log", {}, lambda _: None)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="prctl is Linux's")
def test_a_child_dies_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    child = (
        "import os, signal, sys; from lockgate_devtools.cluster.child import die_with; "
        "die_with(int(sys.argv[1]), signal.SIGKILL); print(os.getpid(), flush=True); signal.pause()"
    )
    parent = (
        "import os, signal, subprocess, sys; "
        f"subprocess.Popen([sys.executable, '-c', {child!r}, str(os.getpid())], start_new_session=True); signal.pause()"
    )
    process = subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, cwd=tmp_path)
    assert process.stdout is not None
    with process.stdout, process:
        survivor = os.pidfd_open(int(process.stdout.readline()))
        try:
            process.kill()
            assert _ends(survivor)
        finally:
            os.close(survivor)


def _ends(pidfd: int) -> bool:
    """Waits for the end of a process that is not our child."""
    import select

    readable, _, _ = select.select([pidfd], [], [], WAIT_S)
    return bool(readable)
