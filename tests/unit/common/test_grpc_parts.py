"""grpcio's internals, into which servers reach: what is installed is known, and what has changed is said."""

from __future__ import annotations

import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from grpc import _common, _server
from lockgate_common.security import Credentials
from lockgate_common.serving.grpc_parts import TESTED, cygrpc, unusable
from lockgate_common.settings import SettingsError
from lockgate_coordinator.runtime import rpc_server
from lockgate_taskmanager.exchange import server as exchange_server
from lockgate_taskmanager.exchange.fencing import TokenFence
from lockgate_taskmanager.exchange.registry import GateRegistry

ROOT = Path(__file__).parents[3]


def test_the_grpcio_that_is_installed_can_be_used() -> None:
    assert unusable() == ""


def test_no_other_versions_are_installed_than_those_that_were_tested() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["connect"]]
    found = {line for line in wanted if line.startswith("grpcio")}
    names = ("grpcio", "grpcio-health-checking", "grpcio-reflection", "grpcio-status")
    assert found == {f"{name}{TESTED}" for name in names}


class _OtherState(_server._RPCState):
    def __init__(self) -> None:
        super().__init__()
        del self.statused


def other(module: Any, **changed: Any) -> Any:
    return SimpleNamespace(**{**vars(module), **changed})


def without(module: Any, name: str) -> Any:
    found = other(module)
    delattr(found, name)
    return found


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        (
            {"server": other(_server, _possibly_finish_call=_server._is_rpc_state_active)},
            "_server._possibly_finish_call",
        ),
        ({"server": without(_server, "_unary_response_in_pool")}, "_server._unary_response_in_pool"),
        ({"server": other(_server, _RPCState=_OtherState)}, "_server._RPCState.statused"),
        ({"server": without(_server, "_CLOSED")}, "_server._CLOSED"),
        ({"wire": without(cygrpc, "SendMessageOperation")}, "cygrpc.SendMessageOperation"),
        ({"common": without(_common, "decode")}, "_common.decode"),
    ],
)
def test_a_changed_internal_is_reported_in_one_sentence(changed: dict[str, Any], what: str) -> None:
    reason = unusable(**changed)
    assert reason.startswith("grpcio ")
    assert reason.endswith(
        f"cannot serve lockgate's calls: its {what} is unknown to lockgate; install a tested version:"
        f" pip install 'grpcio{TESTED}'"
    )


def test_servers_say_so_before_they_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (rpc_server, exchange_server):
        monkeypatch.setattr(module, "unusable", lambda: unusable(server=without(_server, "_OPEN")))
    with pytest.raises(SettingsError, match="_OPEN is unknown to lockgate"):
        rpc_server.RpcServer(Credentials(), "127.0.0.1:0")
    with pytest.raises(SettingsError, match="_OPEN is unknown to lockgate"):
        exchange_server.ExchangeServer(Credentials(), TokenFence(), GateRegistry())
