"""The open gRPC channels of a client, one an address."""

from __future__ import annotations

import threading

import grpc
from lockgate_proto.security import Credentials, SecurityError

from lockgate.client.errors import ClientError


class Channels:
    """Opens each channel once. Thread-safe."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._channels: dict[str, grpc.Channel] = {}
        self._is_closed = False
        self._lock = threading.Lock()

    def to(self, address: str) -> grpc.Channel:
        """The channel to `host:port`. Raises ClientError when it is closed, or a TLS file cannot be read."""
        with self._lock:
            if self._is_closed:
                raise ClientError("the client is closed")
            if address not in self._channels:
                try:
                    self._channels[address] = self._credentials.channel(address)
                except SecurityError as error:
                    raise ClientError(str(error)) from error
            return self._channels[address]

    def close(self) -> None:
        """Closes all. Idempotent."""
        with self._lock:
            self._is_closed = True
            for channel in self._channels.values():
                channel.close()
            self._channels.clear()
