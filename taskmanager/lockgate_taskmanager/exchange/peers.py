"""PeerChannels: one warm gRPC channel to every other task manager, so that a redeployment connects at once."""

from __future__ import annotations

import threading
from collections import OrderedDict

import grpc
from lockgate_common.security import Credentials

IDLE_CHANNELS = 64


class PeerChannels:
    """Thread safe. Channels stay open after their last use; beyond IDLE_CHANNELS the longest unused one is closed.

    So is an unused one that would show an old certificate, when it is asked for again.
    """

    def __init__(self, credentials: Credentials, max_idle: int = IDLE_CHANNELS) -> None:
        self._credentials = credentials
        self._max_idle = max_idle
        self._lock = threading.Lock()
        self._channels: OrderedDict[str, grpc.Channel] = OrderedDict()
        self._editions: dict[str, object] = {}  # of the TLS files, by address
        self._users: dict[str, int] = {}

    @property
    def credentials(self) -> Credentials:
        """gRPC metadata for every call to a peer."""
        return self._credentials

    def acquire(self, address: str) -> grpc.Channel:
        """The channel to `host:port`, opened when there is none. Return it with `release`."""
        with self._lock:
            edition = self._credentials.edition()
            channel = self._channels.get(address)
            if channel is not None and self._editions[address] is not edition and not self._users.get(address):
                channel.close()
                channel = None
            if channel is None:
                channel = self._channels[address] = self._credentials.channel(address)
                self._editions[address] = edition
            self._channels.move_to_end(address)
            self._users[address] = self._users.get(address, 0) + 1
            return channel

    def release(self, address: str) -> None:
        """Returns a channel; it stays warm."""
        with self._lock:
            self._users[address] = self._users.get(address, 1) - 1
            idle = [channel for channel in self._channels if self._users.get(channel, 0) <= 0]
            surplus = idle[: max(0, len(idle) - self._max_idle)]
            closing = [self._channels.pop(excess) for excess in surplus]
            for excess in surplus:
                self._users.pop(excess, None)
                self._editions.pop(excess, None)
        for channel in closing:
            channel.close()

    def close(self) -> None:
        """Closes every channel; calls on them end."""
        with self._lock:
            closing = list(self._channels.values())
            self._channels.clear()
            self._users.clear()
            self._editions.clear()
        for channel in closing:
            channel.close()
