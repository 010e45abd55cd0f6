"""PeerChannels: one warm gRPC channel to every other task manager, so that a redeployment connects at once."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass

import grpc
from lockgate_common.proof import Peer
from lockgate_common.security import Credentials

IDLE_CHANNELS = 64


@dataclass(eq=False)
class _Shared:
    """One channel. edition: of the TLS files that it was opened with, and that it shows whenever it connects."""

    channel: grpc.Channel
    peer: Peer
    edition: object
    users: int = 0


class PeerChannels:
    """Thread safe. Channels stay open after their last use; beyond IDLE_CHANNELS the longest unused one is closed.

    A channel is for one process and one edition of the TLS files. Once another one is asked for at the same address, it
    is no longer given out, and closed after its last use.
    """

    def __init__(self, credentials: Credentials, max_idle: int = IDLE_CHANNELS) -> None:
        self._credentials = credentials
        self._max_idle = max_idle
        self._lock = threading.Lock()
        self._newest: OrderedDict[str, _Shared] = OrderedDict()  # by address
        self._open: dict[grpc.Channel, _Shared] = {}

    @property
    def credentials(self) -> Credentials:
        """gRPC metadata for every call to a peer."""
        return self._credentials

    def acquire(self, peer: Peer) -> grpc.Channel:
        """The channel to a process, opened when there is none. Return it with `release`."""
        with self._lock:
            edition = self._credentials.edition()
            found = self._newest.get(peer.address)
            former = None
            if found is not None and (found.peer != peer or found.edition is not edition):
                found, former = None, found
            if found is None:
                found = _Shared(self._credentials.channel(peer.address), peer, edition)
                self._newest[peer.address] = self._open[found.channel] = found
            self._newest.move_to_end(peer.address)
            found.users += 1
            closing = self._closed([former] if former is not None else [])
        _close(closing)
        return found.channel

    def release(self, channel: grpc.Channel) -> None:
        """Returns a channel; it stays warm if it is still the newest one."""
        with self._lock:
            returned = self._open.get(channel)
            if returned is None:
                return
            returned.users -= 1
            former = [returned] if self._newest.get(returned.peer.address) is not returned else []
            idle = [shared for shared in self._newest.values() if shared.users <= 0]
            surplus = idle[: max(0, len(idle) - self._max_idle)]
            for shared in surplus:
                del self._newest[shared.peer.address]
            closing = self._closed([*former, *surplus])
        _close(closing)

    def close(self) -> None:
        """Closes every channel; calls on them end."""
        with self._lock:
            closing = list(self._open)
            self._newest.clear()
            self._open.clear()
        _close(closing)

    def _closed(self, former: list[_Shared]) -> list[grpc.Channel]:
        """The unused ones among retired channels; they count as closed from now on."""
        unused = [shared.channel for shared in former if shared.users <= 0]
        for channel in unused:
            del self._open[channel]
        return unused


def _close(channels: list[grpc.Channel]) -> None:
    for channel in channels:
        channel.close()
