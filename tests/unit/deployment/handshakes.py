"""Real TLS handshakes with the certificates of a deployment."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from lockgate_common.security import Credentials, TlsFiles


def connects(server: TlsFiles, client: TlsFiles) -> bool:
    """Whether a client with its files comes through to a server with its own, on this machine."""
    grpc_server = grpc.server(ThreadPoolExecutor(1))
    port = Credentials(tls=server).bind(grpc_server, "127.0.0.1:0")
    grpc_server.start()
    with Credentials(tls=client).channel(f"127.0.0.1:{port}") as channel, pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary("/nobody/Home")(b"", timeout=120)
    grpc_server.stop(None).wait()
    code = caught.value.code()
    assert code in (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.UNAVAILABLE), caught.value.details()
    return code is grpc.StatusCode.UNIMPLEMENTED  # there is no such method
