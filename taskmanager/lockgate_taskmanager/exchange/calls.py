"""Serves the calls of an exchange: a channel on its own thread, once its caller is authenticated; others on a
loop.

So no caller without the cluster's secret holds a thread, even with a call whose request never comes.
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import Executor, Future
from typing import Any

from grpc import StatusCode
from lockgate_common.proof import Peer
from lockgate_common.security import Credentials
from lockgate_common.serving.calls import Call, Calls
from lockgate_common.serving.event_loop import LoopThread
from lockgate_common.serving.refusals import Refused
from lockgate_common.serving.wrong_tries import WrongTries
from lockgate_proto import rpc

log = logging.getLogger(__name__)

OPEN = rpc.path("ExchangeService", "Open")


class ExchangeCalls(Calls[Call]):
    """Of one server. The behaviour of `Open` is one of grpcio's; those of all other methods take a Call."""

    def __init__(
        self, credentials: Credentials, thread: LoopThread, channels: Executor, most: int, wait_s: float
    ) -> None:
        """channels: runs each channel as long as it is open, `most` at a time; wait_s: for one that ends."""
        super().__init__(thread, _failed, Call)
        self.me = Peer("", "")
        self._credentials = credentials
        self._channels, self._most = channels, most
        self._free, self._wait_s = asyncio.Semaphore(most), wait_s  # on the loop
        self._wrong = WrongTries()

    def submit(self, run: Any, body: Any, event: Any, state: Any, behaviour: Any, *more: Any) -> Future[None]:
        """Called on grpcio's thread like its pools."""

        async def begin(call: Call) -> None:
            if call.method != OPEN:
                await behaviour(call)
                return
            await self._admit(call)
            call.greet()  # a sender waits for it before it sends anything
            await self._wait_for_thread()
            channel = self._channels.submit(run, body, event, state, behaviour, *more)
            channel.add_done_callback(lambda _: self._thread.post(self._free.release))

        return super().submit(run, body, event, state, begin)

    async def _wait_for_thread(self) -> None:
        """Those of an attempt that is cancelled are free soon. Raises Refused."""
        try:
            async with asyncio.timeout(self._wait_s):
                await self._free.acquire()
        except TimeoutError:
            raise Refused(
                StatusCode.RESOURCE_EXHAUSTED,
                f"{self._most} channels from other task managers are open there, which is the most: use more task"
                " managers, or a lower parallelism",
            ) from None

    async def _admit(self, call: Call) -> None:
        """Raises Refused unless the caller knows the cluster's secret."""
        answer = self._credentials.answer(self.me, call.method, call.metadata)
        if answer is None:
            await self._wrong.refuse(call)
        call.greeting = answer


def _failed(call: Call, error: Exception) -> None:
    if isinstance(error, Refused):
        call.finish(error.code, str(error), trailing=error.trailing)
    else:
        log.error("%s failed", call.method, exc_info=error)
        call.finish(StatusCode.INTERNAL, f"internal error: {type(error).__name__}: {error}")
