"""A stream of which nothing is taken before its server has proved that it knows the secret."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lockgate_common.proof import Introduction


class ProvenStream:
    """call: of grpcio, made with the introduction's metadata."""

    def __init__(self, call: Any, introduction: Introduction) -> None:
        self._call, self._introduction = call, introduction

    def __iter__(self) -> Iterator[Any]:
        """What the server sends. Raises grpc.RpcError, also UnprovenPeer."""
        self._introduction.wait_proven(self._call)
        yield from self._call

    def cancel(self) -> None:
        """Ends it, from any thread."""
        self._call.cancel()
