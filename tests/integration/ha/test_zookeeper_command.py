"""`lockgate zookeeper` as one server of an ensemble, each a process as on a machine of its own."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from click.testing import CliRunner
from lockgate_devtools.zookeeper.server import ZooKeeperServer, free_ports, is_serving
from lockgate_ha import steps
from lockgate_ha.errors import AccessDenied
from lockgate_ha.paths import Paths
from lockgate_ha.protection import Protection
from lockgate_ha.zookeeper import connect

from lockgate.commands.health import health
from lockgate.commands.zookeeper import zookeeper
from lockgate.errors import UserError

pytestmark = [pytest.mark.integration, pytest.mark.rotating]

PATIENCE_S = 60.0


class Ensemble:
    """Three servers that know each other by host and ports."""

    def __init__(self, folder: Path) -> None:
        free = free_ports(9)
        self.ports = free[:3]
        self._folder = folder
        self._members = ",".join(
            f"localhost:{peer}:{election}" for peer, election in zip(free[3:6], free[6:], strict=True)
        )

    def start(self, number: int) -> subprocess.Popen[str]:
        options = {
            "--server-id": number,
            "--ensemble": self._members,
            "--port": self.ports[number - 1],
            "--dir": self._folder / str(number),
        }
        words = [str(word) for pair in options.items() for word in pair]
        return subprocess.Popen(
            [sys.executable, "-m", "lockgate", "zookeeper", *words], stdout=subprocess.PIPE, text=True
        )


@pytest.fixture
def ensemble(tmp_path: Path) -> Ensemble:
    return Ensemble(tmp_path)


@pytest.fixture
def running(ensemble: Ensemble) -> Iterator[list[subprocess.Popen[str]]]:
    with ExitStack() as stack:
        processes = [stack.enter_context(ensemble.start(number)) for number in (1, 2, 3)]
        try:
            yield processes
        finally:
            for process in processes:
                process.terminate()


def ready_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()  # the test's own time limit bounds it


def wait_listening(port: int) -> None:
    """Until something accepts connections there."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            assert time.monotonic() < deadline, f"nothing listens at {port}"
            threading.Event().wait(0.05)


def test_three_servers_form_one_ensemble_that_outlives_one(
    ensemble: Ensemble, running: list[subprocess.Popen[str]]
) -> None:
    for process, port in zip(running, ensemble.ports, strict=True):
        assert ready_line(process).startswith(f"lockgate zookeeper ready: address=0.0.0.0:{port} pid=")
    probe = ["--timeout", "60", "--zookeeper", f"127.0.0.1:{ensemble.ports[2]}"]
    assert CliRunner().invoke(health, probe, standalone_mode=False).return_value == 0
    running[0].send_signal(signal.SIGTERM)
    assert running[0].wait(PATIENCE_S) == 0
    assert not is_serving("127.0.0.1", ensemble.ports[0])
    again = ensemble.start(1)
    try:
        assert ready_line(again)  # it has joined the two that went on
        assert is_serving("127.0.0.1", ensemble.ports[1], PATIENCE_S)
    finally:
        again.terminate()
        assert again.wait(PATIENCE_S) == 0


def test_a_server_without_the_others_waits_and_is_not_ready(ensemble: Ensemble) -> None:
    alone = ensemble.start(1)
    try:
        wait_listening(ensemble.ports[0])
        answer = CliRunner().invoke(health, ["--zookeeper", f"127.0.0.1:{ensemble.ports[0]}"], standalone_mode=False)
        assert answer.return_value == 1
        assert "not ready" in answer.output
        assert alone.poll() is None
    finally:
        alone.terminate()
        assert alone.wait(PATIENCE_S) == 0


@pytest.mark.parametrize("shared", [[], ["--shared"]])
def test_with_a_secret_it_is_closed_to_others(shared: list[str], tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("the secret of this server")
    secret.chmod(0o600)
    (port,) = free_ports(1)
    words = [
        sys.executable,
        "-m",
        "lockgate",
        "zookeeper",
        "--port",
        str(port),
        "--dir",
        str(tmp_path / "data"),
        *shared,
    ]
    environment = {**os.environ, "LOCKGATE_SECRET_FILE": str(secret)}
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert ready_line(process)
            other = connect(f"127.0.0.1:{port}", protection=Protection("other", "another secret than its"))
            refused = pytest.raises(AccessDenied, match="--shared") if not shared else contextlib.nullcontext()
            with contextlib.closing(other), refused:
                steps.prepare(other, Paths("other"))
        finally:
            process.terminate()


def test_a_secret_that_is_named_and_missing_keeps_it_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCKGATE_SECRET_FILE", str(tmp_path / "secret"))
    with pytest.raises(UserError, match=f"secret file {tmp_path / 'secret'} does not exist; without it everyone could"):
        CliRunner().invoke(zookeeper, ["--dir", str(tmp_path)], catch_exceptions=False)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--server-id", "1"], "must be given together"),
        (["--ensemble", "a,b,c"], "must be given together"),
        (["--server-id", "4", "--ensemble", "a,b,c"], "names 3 servers only"),
        (["--server-id", "1", "--ensemble", "a,b,c", "--servers", "3"], "on this machine only"),
    ],
)
def test_options_that_do_not_fit_are_refused(words: list[str], said: str) -> None:
    answer = CliRunner().invoke(zookeeper, words)
    assert answer.exit_code == 2
    assert said in answer.output


def test_the_log_of_the_life_before_is_kept(own_zookeeper: ZooKeeperServer) -> None:
    """A supervisor starts a server that has died at once; what it said at its end must not go with that."""
    said = own_zookeeper.log_file.read_text(errors="replace")
    own_zookeeper.stop()
    own_zookeeper.start()
    former = own_zookeeper.log_file.with_name(f"{own_zookeeper.log_file.name}.1")
    assert former.read_text(errors="replace").startswith(said[:200])
    assert said[:200]
