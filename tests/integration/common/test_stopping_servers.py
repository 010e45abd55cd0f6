"""Calls that begin while their server stops."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from lockgate_common.security import Credentials
from lockgate_proto.rpc import CHANNEL_OPTIONS, TLS_CHANNEL_OPTIONS

pytestmark = pytest.mark.integration

CALLERS = 16
ROUNDS = 60  # with gRPC's transparent retries about one call in 160 never ended
WAIT_S = 60.0


def serve(_request: bytes, _context: grpc.ServicerContext) -> Iterator[bytes]:
    yield b"answer"


def started(pool: ThreadPoolExecutor) -> tuple[grpc.Server, str]:
    server = grpc.server(pool)
    handlers = {"Ask": grpc.unary_stream_rpc_method_handler(serve)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    return server, f"127.0.0.1:{port}"


@pytest.mark.parametrize("options", [CHANNEL_OPTIONS, TLS_CHANNEL_OPTIONS], ids=["plain", "TLS"])
def test_no_channel_uses_grpcs_own_retries(options: tuple[tuple[str, int], ...]) -> None:
    assert dict(options)["grpc.enable_retries"] == 0


def test_every_stream_that_begins_as_its_server_stops_comes_to_an_end() -> None:
    outcomes: list[str] = []

    def ask(address: str, ready: threading.Barrier, delay_s: float) -> None:
        with Credentials().channel(address) as channel:
            ready.wait(WAIT_S)
            time.sleep(delay_s)  # spreads the calls over the moments of the stop, which report no event
            try:
                outcomes.append(next(channel.unary_stream("/test/Ask")(b"", timeout=1.0)).decode())
            except grpc.RpcError as error:
                outcomes.append(error.code().name)

    with ThreadPoolExecutor(4) as pool:
        for _ in range(ROUNDS):
            server, address = started(pool)
            ready = threading.Barrier(CALLERS + 1)
            callers = [
                threading.Thread(target=ask, args=(address, ready, each * 0.0005), name=f"caller-{each}", daemon=True)
                for each in range(CALLERS)
            ]
            for caller in callers:
                caller.start()
            ready.wait(WAIT_S)
            time.sleep(CALLERS // 2 * 0.0005)  # about half of the calls have begun
            server.stop(0)
            deadline = time.monotonic() + WAIT_S
            for caller in callers:
                caller.join(max(0.0, deadline - time.monotonic()))
            assert not [caller.name for caller in callers if caller.is_alive()], "a call outlived its deadline"
    assert len(outcomes) == ROUNDS * CALLERS
    assert "CANCELLED" in outcomes, Counter(outcomes)  # a server has stopped under a call
