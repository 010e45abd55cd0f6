"""How much one client may have at a time, so that there is something left for the others.

A client is the holder of a token, a JWT or a certificate, at any address. A caller with the secret, or without
credentials, is identified by its address; the two are kept apart. Clients that do nothing are
forgotten. While more of them are busy than are kept apart, those that come last count as one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from lockgate_common.addresses import address_of
from lockgate_common.roles import ANONYMOUS, OWNER, Principal
from lockgate_common.serving.refusals import TooMuch

_KEPT_APART = 10_000
_SWEEP_S = 1.0
_BURST_S = 2.0  # of requests, at once
_RETRY_MS = 1_000  # where it depends on the client itself


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one client. calls: at a time, beside streams; requests: a second; bytes: of requests not yet answered."""

    streams: int = 500
    calls: int = 200
    requests: int = 500
    bytes: int = 256 * 1024 * 1024


class Client:
    """What one client has now. On the loop only. Raises TooMuch instead of giving more than its limits."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._left = self._most = limits.requests * _BURST_S
        self._counted_s = 0.0
        self._streams = self._calls = self._bytes = 0

    def request(self, now_s: float) -> None:
        """Counts a request. now_s: monotonic."""
        rate = self._limits.requests
        self._left = min(self._most, self._left + (now_s - self._counted_s) * rate)
        self._counted_s = now_s
        if self._left < 1:
            text = f"this client makes more than {rate} requests a second (coordinator.max_client_requests)"
            raise TooMuch(text, max(100, 1 + math.ceil((1 - self._left) / rate * 1000)))
        self._left -= 1

    @contextmanager
    def stream(self) -> Iterator[None]:
        """An open stream, for as long as the block runs."""
        if self._streams >= self._limits.streams:
            text = f"this client has {self._streams} streams open, the limit (coordinator.max_client_streams)"
            raise TooMuch(text, _RETRY_MS)
        self._streams += 1
        try:
            yield
        finally:
            self._streams -= 1

    @contextmanager
    def call(self) -> Iterator[None]:
        """A call that is not a stream, for as long as the block runs."""
        if self._calls >= self._limits.calls:
            text = f"this client waits for {self._calls} calls, the limit (coordinator.max_client_calls)"
            raise TooMuch(text, _RETRY_MS)
        self._calls += 1
        try:
            yield
        finally:
            self._calls -= 1

    @contextmanager
    def holds(self, count: int) -> Iterator[None]:
        """A request of so many bytes, for as long as the block runs. One alone may always be as large as a message."""
        if self._bytes and self._bytes + count > self._limits.bytes:
            text = f"requests of this client have {self._bytes + count:,} bytes (coordinator.max_client_bytes)"
            raise TooMuch(text, _RETRY_MS)
        self._bytes += count
        try:
            yield
        finally:
            self._bytes -= count

    def is_idle(self, now_s: float) -> bool:
        """True when forgetting it changes nothing."""
        return not (self._streams or self._calls or self._bytes) and now_s - self._counted_s >= _BURST_S


class _Exempt(Client):
    """Nothing is counted, so all servers of this process may share it, whatever their clocks."""

    def request(self, now_s: float) -> None:
        """Always fine."""

    @contextmanager
    def stream(self) -> Iterator[None]:
        """Always fine."""
        yield

    @contextmanager
    def call(self) -> Iterator[None]:
        """Always fine."""
        yield

    @contextmanager
    def holds(self, count: int) -> Iterator[None]:
        """Always fine."""
        del count
        yield


EXEMPT: Client = _Exempt(Limits())
"""The cluster's own processes."""


class ClientLimits:
    """Every client of a server. On the loop only."""

    def __init__(self, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()
        self._clients: dict[str, Client] = {}
        self._others = Client(self._limits)
        self._swept_s = -_SWEEP_S

    def client(self, caller: Principal, peer: str, now_s: float) -> Client:
        """Who makes this call. peer: as gRPC names it; now_s: monotonic."""
        if caller in (OWNER, ANONYMOUS):
            name = f"{'the owner' if caller == OWNER else 'an anonymous caller'} at {address_of(peer)}"
        else:
            name = f"as {caller.name}"
        found = self._clients.get(name)
        if found is not None:
            return found
        if len(self._clients) >= _KEPT_APART and now_s - self._swept_s >= _SWEEP_S:
            self._swept_s = now_s
            self._clients = {name: client for name, client in self._clients.items() if not client.is_idle(now_s)}
        if len(self._clients) >= _KEPT_APART:
            return self._others
        return self._clients.setdefault(name, Client(self._limits))
