"""What every call passes before it is served: who calls, is that too much of one client, and may it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor

from grpc import StatusCode
from lockgate_common.roles import ANONYMOUS, OWNER
from lockgate_common.serving.event_loop import LoopThread
from lockgate_common.serving.refusals import Refused
from lockgate_common.serving.wrong_tries import WrongTries
from lockgate_common.token import authorization_of

from lockgate_coordinator.runtime.access import FORWARDED_METADATA, HEALTH_CHECK, is_of_a_process, refusal
from lockgate_coordinator.runtime.audit import AuditedCall
from lockgate_coordinator.runtime.callers import Admission, Callers
from lockgate_coordinator.runtime.calls import Behaviour, ClientCall
from lockgate_coordinator.runtime.client_limits import EXEMPT, Client, ClientLimits
from lockgate_coordinator.runtime.guard import Guard

_LOOK_AGAIN_S = 5.0  # whether the token, JWT or certificate of an open stream is still valid


class Entrance:
    """Of one server. On its loop only. now_s: monotonic."""

    def __init__(
        self,
        guard: Guard,
        callers: Callers,
        limits: ClientLimits,
        asking: Executor,
        thread: LoopThread,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """asking: where the slow part of finding out who calls is done."""
        self._guard = guard
        self._callers = callers
        self._limits = limits
        self._asking = asking
        self._thread = thread
        self._now_s = now_s
        self._wrong = WrongTries(now_s)

    def guarded(self, behaviour: Behaviour, *, is_stream: bool) -> Behaviour:
        """The behaviour, for permitted callers. is_stream: the server sends as long as it likes."""

        async def run(call: ClientCall) -> None:
            admission = await self._admission(call)
            call.caller, call.greeting = admission.caller, admission.greeting
            call.client = self._client(call)
            call.client.request(self._now_s())
            self._check(call, admission)
            if is_stream:
                with call.client.stream():
                    await self._while_valid(call, behaviour(call))
            else:
                await behaviour(call)

        return run

    def _client(self, call: ClientCall) -> Client:
        forwarded = any(name == FORWARDED_METADATA for name, _ in call.metadata)
        if call.method == HEALTH_CHECK or is_of_a_process(call.method, call.caller, forwarded=forwarded):
            return EXEMPT
        return self._limits.client(call.caller, call.peer, self._now_s())

    def _check(self, call: ClientCall, admission: Admission) -> None:
        """Raises Refused for a caller that may not do that."""
        if why := refusal(call.method, admission.caller, is_free=self._guard.is_free(call.method)):
            AuditedCall(call.method, admission.caller, call.peer).end(StatusCode.PERMISSION_DENIED.name)
            raise Refused(StatusCode.PERMISSION_DENIED, why)

    async def _admission(self, call: ClientCall) -> Admission:
        """Raises Refused."""
        known = self._callers.with_certificate(call) or self._guard.at_once(call.method, call.metadata)
        if known is not None:
            return known
        try:
            return await self._looked_up(call)
        except Refused:
            await self._wrong.refuse(call)

    async def _looked_up(self, call: ClientCall) -> Admission:
        return await self._thread.loop.run_in_executor(self._asking, self._guard.admit, call.method, call.metadata)

    async def _while_valid(self, call: ClientCall, work: Awaitable[None]) -> None:
        """Ends a stream when what its caller has shown has ended, or does not allow it any more. Raises Refused."""
        if call.caller in (OWNER, ANONYMOUS):
            await work
            return
        task = asyncio.ensure_future(work)
        try:
            while not (await asyncio.wait({task}, timeout=_LOOK_AGAIN_S))[0]:
                self._check(call, await self._again(call))
            await task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _again(self, call: ClientCall) -> Admission:
        """The admission of a call that was let in before. Raises Refused."""
        if authorization_of(call.metadata):
            return await self._looked_up(call)
        known = self._callers.with_certificate(call)
        if known is None and not self._guard.is_free(call.method):
            text = "the certificate of this connection has expired; connect again with a new one"
            raise Refused(StatusCode.UNAVAILABLE, text)  # a caller that has a new one then does
        return known or Admission()
