"""Wrong credentials, by the address that they come from: each is answered later than the one before.

Credentials are looked at before anything else, so valid ones are never refused or delayed for what others have tried.
While many wrong answers to one address wait, further wrong ones are refused at once.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

from lockgate_common.addresses import address_of
from lockgate_common.proof import SCHEME
from lockgate_common.serving.calls import Call
from lockgate_common.serving.refusals import TooMuch, unknown_caller
from lockgate_common.token import authorization_of

log = logging.getLogger(__name__)

_FIRST_S = 0.3
_LONGEST_S = 5.0
_FORGOTTEN_S = 60.0
_KEPT = 10_000
_WAITING = 1_000  # answers, of all addresses
_WAITING_OF_ONE = 50
_STALE_PROOFS = 20  # of one address: its callers of a process that has just been replaced
_LOGGED = frozenset({1, 10, 100, 1_000, 10_000, 100_000})


class _Address:
    """Since it was last quiet: wrong tries that waited or still do (waiting), and wrong proofs."""

    def __init__(self) -> None:
        self.wrong = 0
        self.proofs = 0
        self.waiting = 0
        self.last_s = 0.0


class WrongTries:
    """On the loop only. Times in monotonic seconds."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._addresses: OrderedDict[str, _Address] = OrderedDict()  # the one that tried last is the last
        self._waiting = 0

    async def refuse(self, call: Call) -> NoReturn:
        """Answers a call that has shown nothing that is valid: raises Refused when it is time to.

        The first proofs of an address do not wait: they may be for the process that was here before.
        """
        address = address_of(call.peer)
        if not (authorization_of(call.metadata).startswith(SCHEME) and self.is_stale(address, self._now_s())):
            await self.wait(address)
        raise unknown_caller()

    async def wait(self, address: str) -> None:
        """For a wrong try: returns when it is to be answered. Raises TooMuch."""
        self.check(address)
        with self.one(address, self._now_s()) as delay_s:
            await asyncio.sleep(delay_s)

    def is_stale(self, address: str, now_s: float) -> bool:
        """For a wrong proof: True while the address has shown so few that they may come from good callers."""
        known = self._known(address, now_s)
        known.proofs += 1
        return known.proofs <= _STALE_PROOFS

    def check(self, address: str) -> None:
        """For a wrong try. Raises TooMuch where too many answers wait."""
        known = self._addresses.get(address)
        if known is not None and known.waiting >= _WAITING_OF_ONE:
            raise TooMuch("too many wrong credentials from this address", int(_LONGEST_S * 1000))

    @contextmanager
    def one(self, address: str, now_s: float) -> Iterator[float]:
        """A wrong try, and the seconds after which it is answered, within the block."""
        known = self._known(address, now_s)
        delay_s = min(_LONGEST_S, _FIRST_S * 2 ** min(known.wrong, 10)) if self._waiting < _WAITING else 0.0
        known.wrong += 1
        if known.wrong in _LOGGED:
            log.warning("%d calls with wrong or missing credentials from %s in a row", known.wrong, address)
        known.waiting, self._waiting = known.waiting + 1, self._waiting + 1
        try:
            yield delay_s
        finally:
            known.waiting, self._waiting = known.waiting - 1, self._waiting - 1

    def _known(self, address: str, now_s: float) -> _Address:
        """The address, which tries something now."""
        known = self._addresses.setdefault(address, _Address())
        self._addresses.move_to_end(address)
        if len(self._addresses) > _KEPT:
            self._addresses.popitem(last=False)
        if now_s - known.last_s > _FORGOTTEN_S:
            known.wrong = known.proofs = 0
        known.last_s = now_s
        return known
