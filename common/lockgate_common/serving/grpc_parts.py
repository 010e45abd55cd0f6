"""The internals of grpcio that `calls` relies on, and a check that the installed version has them.

A changed internal would not fail loudly: a call that is never finished blocks its caller for ever. So a server checks
them before it opens its port.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

import grpc
from grpc import _common, _server
from grpc._cython import cygrpc  # type: ignore[attr-defined]

TESTED = ">=1.80,<1.86"
"""The versions that pyproject.toml admits; the tests have run with each of them."""

_FUNCTIONS: Mapping[str, tuple[str, ...]] = {  # the first parameters, in order
    "_is_rpc_state_active": ("state",),
    "_possibly_finish_call": ("state", "token"),
    "_unary_response_in_pool": ("rpc_event", "state", "behavior"),
    "_stream_response_in_pool": ("rpc_event", "state", "behavior"),
}
_STATE = ("condition", "due", "client", "initial_metadata_allowed", "statused", "callbacks")
_OPERATIONS = (
    "ReceiveMessageOperation",
    "SendInitialMetadataOperation",
    "SendMessageOperation",
    "SendStatusFromServerOperation",
)


def unusable(server: Any = _server, wire: Any = cygrpc, common: Any = _common) -> str:
    """Why `calls` cannot work with this grpcio, a sentence; "" when it can. The arguments are grpcio's modules."""
    changed = next(_changed(server, wire, common), "")
    return changed and (
        f"grpcio {grpc.__version__} cannot serve lockgate's calls: its {changed} is unknown to lockgate; install a "
        f"tested version: pip install 'grpcio{TESTED}'"
    )


def _changed(server: Any, wire: Any, common: Any) -> Iterator[str]:
    for name, wanted in _FUNCTIONS.items():
        if _parameters(getattr(server, name, None))[: len(wanted)] != wanted:
            yield f"_server.{name}"
    state = getattr(server, "_RPCState", None)
    known = vars(state()) if callable(state) else {}
    yield from (f"_server._RPCState.{name}" for name in _STATE if name not in known)
    yield from _missing(server, "_OPEN", "_CLOSED")
    yield from _missing(wire, *_OPERATIONS, "auth_context")
    yield from _missing(common, "decode", "STATUS_CODE_TO_CYGRPC_STATUS_CODE")


def _parameters(function: Any) -> tuple[str, ...]:
    return tuple(inspect.signature(function).parameters) if callable(function) else ()


def _missing(module: ModuleType | Any, *names: str) -> Iterator[str]:
    plain = getattr(module, "__name__", "").rpartition(".")[2]
    return (f"{plain}.{name}" for name in names if not hasattr(module, name))
