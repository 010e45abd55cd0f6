"""The gRPC server of a coordinator: who is let in, how much at a time, and where the work of a call is done.

```
            +-- unary: request read on the loop --> a worker decodes, handles, encodes --> answer
 Call --> guard                                        | Later: nothing is held while it waits
            +-- stream: a coroutine of its service, sending and receiving on the loop
```

What blocks runs on bounded pools: one for calls that write or read storage, one for the others, so that a storage that
hangs takes no answer from those who only ask. Large messages are coded on a third.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

import grpc
from lockgate_proto.codec import decode, encode
from lockgate_proto.rpc import SERVER_OPTIONS, SERVICES, Method, full_name
from lockgate_proto.security import LOOPBACK_HOSTS, Credentials

from coordinator.runtime.admission import Places
from coordinator.runtime.calls import Call, Calls
from coordinator.runtime.errors import Busy, Refused
from coordinator.runtime.event_loop import LoopThread, settled
from coordinator.runtime.guard import WRITING, Guard, check_request, status

T = TypeVar("T")

_THREADS = 32  # of each pool
_CODING_THREADS = 2
_IN_HAND = 4_096  # unary calls that a worker has or is to have, and as many that wait for an outcome
_REQUEST_WAIT_S = 30.0
_SMALL_BYTES = 16 * 1024  # decoded on the loop: some 100 us

Behaviour = Callable[[Call], Awaitable[None]]


class UnaryCall:
    """What a handler on a worker knows of its call."""

    def __init__(self, call: Call) -> None:
        self.metadata = call.metadata
        self.time_remaining = call.time_remaining
        self.trailing: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Later(Generic[T]):
    """A handler's word for: the answer comes with this future. No thread waits for it.

    late: what the caller is told when it does not come within `limit_s` (None: as long as the caller waits)
    then: makes the response of the outcome, on a worker
    """

    answer: Future[T]
    late: str
    limit_s: float | None
    then: Callable[[T], Any]


class Stream:
    """A streaming call, in frozen messages."""

    def __init__(self, call: Call, method: Method, coding: Executor, asking: Executor, thread: LoopThread) -> None:
        self._call = call
        self._method = method
        self._coding = coding
        self._asking = asking
        self.thread = thread
        self.peer = call.peer

    async def receive(self) -> Any:
        """The next message, None at their end. Raises MalformedMessage, PeerGone."""
        data = await self._call.receive()
        if data is None:
            return None
        if len(data) <= _SMALL_BYTES:
            return decode(self._method.request, data)
        return await self.thread.loop.run_in_executor(self._coding, decode, self._method.request, data)

    async def work(self, call: Callable[[], T]) -> T:
        """Something that blocks, on a worker."""
        return await self.thread.loop.run_in_executor(self._asking, call)

    async def send(self, message: Any, *, large: bool = False) -> None:
        """Returns when the connection has taken it. large: encoded beside the loop. Raises PeerGone."""
        await self.send_bytes(await self.encoded(message) if large else encode(message))

    async def encoded(self, message: Any) -> bytes:
        """The message as it is sent, made beside the loop."""
        return await self.thread.loop.run_in_executor(self._coding, encode, message)

    async def send_bytes(self, data: bytes) -> None:
        """As `send`, of a message that is encoded already."""
        await self._call.send(data)


class RpcServer:
    """One per coordinator."""

    def __init__(self, credentials: Credentials, bind: str) -> None:
        """Opens the port. Raises SecurityError, OSError."""
        everything = bind.rpartition(":")[0] not in LOOPBACK_HOSTS
        self._guard = Guard(credentials, everything=everything)
        self.thread = LoopThread("rpc-loop")
        self._server = grpc.server(Calls(self.thread, self._failed), options=SERVER_OPTIONS)  # type: ignore[arg-type]
        self._asking = ThreadPoolExecutor(_THREADS, "rpc-asks")
        self._writing = ThreadPoolExecutor(_THREADS, "rpc-writes")
        self._coding = ThreadPoolExecutor(_CODING_THREADS, "rpc-coding")
        self._in_hand = Places(_IN_HAND, "calls are in hand")
        self._waits = Places(_IN_HAND, "calls wait for savepoints and the like")
        try:
            self.port = credentials.bind(self._server, bind)
        except BaseException:
            self.stop(0)
            raise

    def serve(self, service: str, implementation: Any, places: dict[str, Places]) -> None:
        """Adds a service of lockgate.v1. Its unary methods take (request, UnaryCall) and return a response or Later.

        Its streaming methods are coroutines of (Stream), or (request, Stream) where only the answer is a stream.
        places: of each streaming method.
        """
        behaviours = {}
        for name, method in SERVICES[service].items():
            bound = getattr(implementation, name)
            if method.server_streams:
                behaviours[name] = (method, self._streaming(bound, method, places[name]))
            else:
                behaviours[name] = (
                    method,
                    self._unary(bound, method, self._writing if name in WRITING else self._asking),
                )
        self.add(
            full_name(service),
            {name: (one.client_streams, one.server_streams, do) for name, (one, do) in behaviours.items()},
        )

    def add(self, service: str, behaviours: dict[str, tuple[bool, bool, Behaviour]]) -> None:
        """Adds any service. behaviours: (client streams, server streams, what to do with the Call), by method."""
        handlers = {
            name: _MAKERS[client, server](self._guarded(behaviour))
            for name, (client, server, behaviour) in behaviours.items()
        }
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))

    def start(self) -> None:
        """Serves."""
        self._server.start()

    def stop(self, grace_s: float) -> None:
        """Takes no new call, gives those there are `grace_s`, ends them, joins every thread. Idempotent."""
        self._server.stop(grace_s).wait()
        self.thread.close()
        for pool in (self._asking, self._writing, self._coding):
            pool.shutdown(wait=True)

    # -- inside -------------------------------------------------------------------------------------------------------

    def _guarded(self, behaviour: Behaviour) -> Behaviour:
        async def run(call: Call) -> None:
            self._guard.admit(call.method, call.metadata)
            await behaviour(call)

        return run

    def _failed(self, call: Call, error: Exception) -> None:
        code, details, trailing = status(error, call.method)
        call.finish(code, details, trailing=trailing)

    def _unary(self, handle: Callable[[Any, UnaryCall], Any], method: Method, pool: ThreadPoolExecutor) -> Behaviour:
        async def run(call: Call) -> None:
            data = await self._request(call)
            if data is None:
                return
            known = UnaryCall(call)

            def begin() -> Any:
                request = decode(method.request, data)
                check_request(request)
                return _encoded(handle(request, known))

            found = await self._done(begin, pool)
            while isinstance(found, Later):
                found = await self._done(partial(_then, found, await self._outcome(found, call)), pool)
            call.finish(data=found, trailing=known.trailing)

        return run

    async def _done(self, step: Callable[[], T], pool: ThreadPoolExecutor) -> T:
        """A part of a call, on a worker."""
        with self._in_hand.one():
            return await self.thread.loop.run_in_executor(pool, step)

    async def _outcome(self, later: Later[T], call: Call) -> T:
        limits = [one for one in (call.time_remaining(), later.limit_s) if one is not None]
        with self._waits.one():
            try:
                return await settled(later.answer, self.thread, min(limits) if limits else None)
            except TimeoutError:
                raise Busy(later.late) from None

    def _streaming(self, serve: Callable[..., Awaitable[None]], method: Method, places: Places) -> Behaviour:
        async def run(call: Call) -> None:
            with places.one():
                stream = Stream(call, method, self._coding, self._asking, self.thread)
                if method.client_streams:
                    await serve(stream)
                else:
                    data = await self._request(call)
                    if data is None:
                        return
                    request = decode(method.request, data)
                    check_request(request)
                    await serve(request, stream)
                call.finish()

        return run

    async def _request(self, call: Call) -> bytes | None:
        """The one request of a call; None when it was given up before that."""
        try:
            data = await asyncio.wait_for(call.receive(), _REQUEST_WAIT_S)
        except TimeoutError:
            raise Refused("DEADLINE_EXCEEDED", f"no request came within {_REQUEST_WAIT_S:.0f} s") from None
        if data is None and call.is_active:
            raise Refused("UNIMPLEMENTED", f"{call.method} needs exactly one request")
        return data


def _then(later: Later[T], outcome: T) -> Any:
    return _encoded(later.then(outcome))


def _encoded(response: Any) -> Any:
    return response if isinstance(response, Later) else encode(response)


_MAKERS: dict[tuple[bool, bool], Callable[[Behaviour], Any]] = {
    (False, False): grpc.unary_unary_rpc_method_handler,
    (False, True): grpc.unary_stream_rpc_method_handler,
    (True, False): grpc.stream_unary_rpc_method_handler,
    (True, True): grpc.stream_stream_rpc_method_handler,
}
