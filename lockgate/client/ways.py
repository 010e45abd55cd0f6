"""The ways to coordinators: under which address of the client's own list each one has answered."""

from __future__ import annotations

import threading


class Ways:
    """Maps the address that a coordinator advertises to the one that it was asked at. Thread-safe.

    The two differ where the network translates addresses, as for containers behind published ports: what coordinators
    call each other by then means nothing outside.
    """

    def __init__(self) -> None:
        self._ways: dict[str, str] = {}
        self._lock = threading.Lock()

    def learn(self, advertised: str, asked: str) -> None:
        """The coordinator that advertises the one address has just answered at the other."""
        with self._lock:
            self._ways[advertised] = asked

    def to(self, advertised: str) -> str:
        """Where to connect in order to reach that coordinator."""
        with self._lock:
            return self._ways.get(advertised, advertised)

    def forget(self, advertised: str) -> bool:
        """Connect to it as advertised from now on. False when that was so already."""
        with self._lock:
            return self._ways.pop(advertised, advertised) != advertised
