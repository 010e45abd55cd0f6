"""The open gRPC channels of a client, one per address, and a new one when the client has new certificates."""

from __future__ import annotations

import threading

import grpc
from lockgate_common.addresses import is_loopback
from lockgate_common.security import Credentials, SecurityError

from lockgate.client.errors import ClientError


class Channels:
    """Opens each channel once for each edition of the TLS files. Thread-safe."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._channels: dict[str, tuple[object, grpc.Channel]] = {}
        self._replaced: list[grpc.Channel] = []  # by one with newer certificates; a watch may still use it
        self._is_closed = False
        self._lock = threading.Lock()

    def to(self, address: str) -> grpc.Channel:
        """The channel to `host:port`.

        Raises ClientError when it is closed, a TLS file cannot be read, or it would leave this machine in plain text.
        """
        if self._credentials.tls is None and not is_loopback(address):
            raise ClientError(
                f"{address} is on another machine, where the cluster is reached with TLS only; set "
                "LOCKGATE_TLS_AUTHORITY (or tls.authority) to the certificate of the cluster's authority"
            )
        with self._lock:
            if self._is_closed:
                raise ClientError("the client is closed")
            try:
                edition = self._credentials.edition()
                known, channel = self._channels.get(address, (None, None))
                if channel is not None and known is edition:
                    return channel
                opened = self._credentials.channel(address)
            except SecurityError as error:
                raise ClientError(str(error)) from error
            if channel is not None:
                self._replaced.append(channel)
            self._channels[address] = edition, opened
            return opened

    def close(self) -> None:
        """Closes all channels. Idempotent."""
        with self._lock:
            self._is_closed = True
            for channel in (*self._replaced, *(channel for _, channel in self._channels.values())):
                channel.close()
            self._replaced.clear()
            self._channels.clear()
