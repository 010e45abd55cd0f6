"""Maps advertised coordinator addresses to those in the client's own list at which they answered."""

from __future__ import annotations

import threading


class AddressMap:
    """Maps the address that a coordinator advertises to the one that it was asked at. Thread-safe.

    The two differ where the network translates addresses, as for containers behind published ports: the addresses that
    coordinators advertise are then not reachable from outside.
    """

    def __init__(self) -> None:
        self._addresses: dict[str, str] = {}
        self._lock = threading.Lock()

    def learn(self, advertised: str, asked: str) -> None:
        """The coordinator that advertises `advertised` has just answered at `asked`."""
        with self._lock:
            self._addresses[advertised] = asked

    def to(self, advertised: str) -> str:
        """The address at which to reach that coordinator."""
        with self._lock:
            return self._addresses.get(advertised, advertised)

    def forget(self, advertised: str) -> bool:
        """Connect to it as advertised from now on. False when that was already the case."""
        with self._lock:
            return self._addresses.pop(advertised, advertised) != advertised
