"""`lockgate health` against what coordinators and task managers answer with."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from lockgate_common.security import Credentials
from lockgate_coordinator.runtime.health import Health
from lockgate_coordinator.runtime.rpc_server import RpcServer
from lockgate_taskmanager.exchange.fencing import TokenFence
from lockgate_taskmanager.exchange.registry import GateRegistry
from lockgate_taskmanager.exchange.server import ExchangeServer

from lockgate.commands.health import health

pytestmark = pytest.mark.integration


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOCKGATE_SECRET_FILE", str(tmp_path / "secret"))


@pytest.fixture
def coordinator() -> Iterator[tuple[Health, str]]:
    server = RpcServer(Credentials(), "127.0.0.1:0")
    answers = Health()
    answers.add_to(server)
    server.start()
    yield answers, f"127.0.0.1:{server.port}"
    server.stop(0)


def ask(*words: str) -> tuple[int, str]:
    answer = CliRunner().invoke(health, ("--timeout", "60", *words), standalone_mode=False)
    assert answer.exception is None, answer.exception
    return answer.return_value, answer.output


def test_a_coordinator_is_ready_from_joining_to_stopping(coordinator: tuple[Health, str]) -> None:
    answers, address = coordinator
    assert ask(address) == (1, f"{address} is not ready: it has not joined the cluster yet, or is shutting down\n")
    answers.ready()
    assert ask(address) == (0, f"{address} is ready\n")
    answers.stop()
    assert ask(address)[0] == 1


def test_a_standby_is_ready_but_does_not_lead(coordinator: tuple[Health, str]) -> None:
    answers, address = coordinator
    answers.ready()
    assert ask(address, "--leader") == (1, f"{address} is not ready: it is not the leader\n")
    answers.leading(True)
    assert ask(address, "--leader")[0] == 0


def test_a_task_manager_is_alive_while_its_exchange_is_open_and_ready_once_a_leader_has_taken_it() -> None:
    server = ExchangeServer(Credentials(secret="a-secret-of-this-test"), TokenFence(), GateRegistry())
    address = server.start("127.0.0.1:0")
    assert ask(address) == (1, f"{address} is not ready: it has not joined the cluster yet, or is shutting down\n")
    assert ask(address, "--alive") == (0, f"{address} is alive\n")
    server.ready()
    assert ask(address) == (0, f"{address} is ready\n")
    server.stop()
    assert ask(address)[0] == 1
    assert ask(address, "--alive")[0] == 1


def test_a_coordinator_is_alive_before_it_is_ready(coordinator: tuple[Health, str]) -> None:
    answers, address = coordinator
    assert ask(address)[0] == 1
    assert ask(address, "--alive") == (0, f"{address} is alive\n")
    answers.stop()
    assert ask(address, "--alive") == (1, f"{address} is not alive: it is stopping\n")


def test_an_unreachable_process_is_not_ready() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        code, said = ask(f"127.0.0.1:{taken.getsockname()[1]}")
    assert code == 1
    assert "is not ready: " in said


def test_an_address_without_a_port_is_a_mistake() -> None:
    answer = CliRunner().invoke(health, ["localhost"])
    assert answer.exit_code == 2
    assert "is not HOST:PORT" in answer.output


def test_one_question_at_a_time() -> None:
    answer = CliRunner().invoke(health, ["localhost:1", "--leader", "--alive"])
    assert answer.exit_code == 2
    assert "give one of" in answer.output
