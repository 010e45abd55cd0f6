"""Wrong credentials, by the address that they come from: each is answered later than the one before.

Only answers to wrong ones wait, so others are not locked out. The secret and proofs are looked at whatever has been
tried; while many wrong answers to one address wait, its bearers and calls that show nothing are refused unseen.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager

from lockgate_coordinator.runtime.errors import TooMuch

_FIRST_S = 0.3
_LONGEST_S = 5.0
_FORGOTTEN_S = 60.0
_KEPT = 10_000
_WAITING = 1_000  # answers, of all addresses
_WAITING_OF_ONE = 50


class _Address:
    """wrong: tries since it was last quiet; waiting: of them, those not answered yet."""

    def __init__(self) -> None:
        self.wrong = 0
        self.waiting = 0
        self.last_s = 0.0


class WrongTries:
    """On the loop only. Times in monotonic seconds."""

    def __init__(self) -> None:
        self._addresses: OrderedDict[str, _Address] = OrderedDict()  # the one that tried last is the last
        self._waiting = 0

    def check(self, address: str) -> None:
        """Before credentials are looked at that may be guessed. Raises TooMuch where too many were wrong just now."""
        known = self._addresses.get(address)
        if known is not None and known.waiting >= _WAITING_OF_ONE:
            raise TooMuch("too many wrong credentials come from this address", int(_LONGEST_S * 1000))

    @contextmanager
    def one(self, address: str, now_s: float) -> Iterator[float]:
        """A wrong try, and the seconds after which it is answered, within the block."""
        known = self._addresses.setdefault(address, _Address())
        self._addresses.move_to_end(address)
        if len(self._addresses) > _KEPT:
            self._addresses.popitem(last=False)
        known.wrong = 0 if now_s - known.last_s > _FORGOTTEN_S else known.wrong
        delay_s = min(_LONGEST_S, _FIRST_S * 2 ** min(known.wrong, 10)) if self._waiting < _WAITING else 0.0
        known.wrong, known.last_s = known.wrong + 1, now_s
        known.waiting, self._waiting = known.waiting + 1, self._waiting + 1
        try:
            yield delay_s
        finally:
            known.waiting, self._waiting = known.waiting - 1, self._waiting - 1
