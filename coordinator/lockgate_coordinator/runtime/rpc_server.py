"""The gRPC server of a coordinator: admission, limits, and the threads on which calls are handled.

```
            +-- unary: request read on the loop --> a worker decodes, handles, encodes --> answer
            |                                          | Later: holds no thread while it waits
 Call --> guard
            +-- unary, by a coroutine: all of it on the loop, but for what is large or blocks
            +-- stream: a coroutine of its service, sending and receiving on the loop
```

Blocking work runs on bounded pools: one for calls that write or read storage, one for the others, so that a hanging
storage does not block queries. Large messages are encoded and decoded on a third.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Protocol, TypeVar, cast

import grpc
from grpc import StatusCode
from lockgate_common.addresses import is_loopback
from lockgate_common.proof import Peer, new_instance
from lockgate_common.security import Credentials
from lockgate_common.serving.call_places import CallPlaces
from lockgate_common.serving.calls import Call, Calls
from lockgate_common.serving.event_loop import LoopThread, settled
from lockgate_common.serving.grpc_parts import unusable
from lockgate_common.serving.requests import one_request
from lockgate_common.settings import SettingsError
from lockgate_proto.codec import decode, encode
from lockgate_proto.rpc import CONTROL_OPTIONS, MAX_MESSAGE_ELEMENTS, SERVER_OPTIONS, SERVICES, Method, full_name

from lockgate_coordinator.runtime.audit import AuditedCall
from lockgate_coordinator.runtime.callers import Callers
from lockgate_coordinator.runtime.calls import Behaviour, ClientCall
from lockgate_coordinator.runtime.client_limits import ClientLimits
from lockgate_coordinator.runtime.entrance import Entrance
from lockgate_coordinator.runtime.errors import Busy
from lockgate_coordinator.runtime.guard import INSTANCE_METADATA, WRITING, Guard, check_request, status

T = TypeVar("T")

_STORING = (*WRITING, "ListCheckpoints")  # what writes or reads storage: the latter for offsets
_THREADS = 32  # of each pool
_CODING_THREADS = 2
_ADMITTING_THREADS = 8  # find out who calls, whatever the others wait for
_IN_HAND = 4_096  # unary calls that are running or queued, and as many that wait for an outcome
_SMALL_BYTES = 16 * 1024  # decoded on the loop: some 100 us
_MOST_ELEMENTS = 100_000  # of a client's request, in all its repeated fields: some 500 ms to decode


class Work(Protocol):
    """Runs a step of a call on a worker."""

    def __call__(self, step: Callable[[], T], /) -> Awaitable[T]: ...


class UnaryCall:
    """The context of a call for its handler."""

    def __init__(self, call: ClientCall, thread: LoopThread, work: Work) -> None:
        self.metadata = call.metadata
        self.time_remaining = call.time_remaining
        self.trailing: tuple[tuple[str, str], ...] = ()
        self.caller = call.caller
        self.audited = AuditedCall(call.method, call.caller, call.peer)
        self.thread = thread
        self.work = work
        """For a coroutine: runs what blocks, or takes long, on a worker."""
        self.is_large = False
        """Whether encoding the answer of a coroutine would hold up the loop."""

    async def outcome(self, answer: Future[T], late: str, limit_s: float | None) -> T:
        """Of another thread's future. late: what Busy says if it does not come within `limit_s`, or the caller's time.

        None: as long as the caller waits.
        """
        limits = [item for item in (self.time_remaining(), limit_s) if item is not None]
        try:
            return await settled(answer, self.thread, min(limits) if limits else None)
        except TimeoutError:
            raise Busy(late) from None


@dataclass(frozen=True, slots=True)
class Later(Generic[T]):
    """A deferred answer, the outcome of a future. No thread waits for it.

    late: the error when it does not come within `limit_s` (None: as long as the caller waits)
    then: converts the outcome to the response, on a worker
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
        """The next message, None at the end. Raises MalformedMessage, PeerGone."""
        data = await self._call.receive()
        if data is None:
            return None
        if len(data) <= _SMALL_BYTES:
            return decode(self._method.request, data, MAX_MESSAGE_ELEMENTS)
        return await self.thread.loop.run_in_executor(
            self._coding, decode, self._method.request, data, MAX_MESSAGE_ELEMENTS
        )

    async def work(self, call: Callable[[], T]) -> T:
        """Runs a blocking call on a worker."""
        return await self.thread.loop.run_in_executor(self._asking, call)

    async def send(self, message: Any, *, large: bool = False) -> None:
        """Sends a message; returns when the connection has taken it. large: encode off the loop. Raises PeerGone."""
        await self.send_bytes(await self.encoded(lambda: message, large=large))

    async def encoded(self, make: Callable[[], Any], *, large: bool) -> bytes:
        """The message that `make` returns, encoded. large: make and encode it off the loop."""
        if not large:
            return encode(make())
        return await self.thread.loop.run_in_executor(self._coding, lambda: encode(make()))

    async def send_bytes(self, data: bytes) -> None:
        """As `send`, for an encoded message."""
        await self._call.send(data)


class RpcServer:
    """One per coordinator."""

    def __init__(
        self,
        credentials: Credentials,
        bind: str,
        advertise: str = "",
        callers: Callers | None = None,
        limits: ClientLimits | None = None,
    ) -> None:
        """Opens the port. Raises SettingsError for a grpcio that cannot be used, SecurityError, OSError.

        advertise: `host:port` that others use, "" for the bound one; callers: without the secret.
        """
        if problem := unusable():
            raise SettingsError(problem)
        self.thread = LoopThread("rpc-loop")
        options = SERVER_OPTIONS + CONTROL_OPTIONS
        self._server = grpc.server(Calls(self.thread, self._failed, ClientCall), options=options)  # type: ignore[arg-type]
        self._asking = ThreadPoolExecutor(_THREADS, "rpc-asks")
        self._admitting = ThreadPoolExecutor(_ADMITTING_THREADS, "rpc-admits")
        self._storing = ThreadPoolExecutor(_THREADS, "rpc-stores")
        self._coding = ThreadPoolExecutor(_CODING_THREADS, "rpc-coding")
        self._in_hand = CallPlaces(_IN_HAND, "calls are in progress")
        self._waits = CallPlaces(_IN_HAND, "calls wait for savepoints and the like")
        self._is_started = False
        try:
            self.port = credentials.bind(self._server, bind)
        except BaseException:
            self.stop(0)
            raise
        self.peer = Peer(advertise or f"{bind.rpartition(':')[0]}:{self.port}", new_instance())
        callers = callers or Callers()
        self._guard = Guard(credentials, self.peer, callers, everything=not is_loopback(bind))
        self._entrance = Entrance(self._guard, callers, limits or ClientLimits(), self._admitting, self.thread)

    def serve(self, service: str, implementation: Any, places: dict[str, CallPlaces]) -> None:
        """Adds a service of lockgate.v1. Its unary methods take (request, UnaryCall) and return a response or Later.

        One that is a coroutine runs on the loop, and must not block there. Its streaming methods are coroutines of
        (Stream), or of (request, Stream) if only the answer is a stream. places: for each streaming method.
        """
        behaviours = {}
        for name, method in SERVICES[service].items():
            bound = getattr(implementation, name)
            if method.server_streams:
                behaviours[name] = (method, self._streaming(bound, method, places[name]))
            else:
                pool = self._storing if name in _STORING else self._asking
                behaviours[name] = (method, self._unary(bound, method, pool))
        self.add(
            full_name(service),
            {name: (method.client_streams, method.server_streams, do) for name, (method, do) in behaviours.items()},
        )

    def add(self, service: str, behaviours: dict[str, tuple[bool, bool, Behaviour]]) -> None:
        """Adds any service. behaviours: (client streams, server streams, handler of the Call), by method."""
        handlers = {
            name: _MAKERS[client, server](self._entrance.guarded(behaviour, is_stream=server))
            for name, (client, server, behaviour) in behaviours.items()
        }
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))

    def start(self) -> None:
        """Serves."""
        self._is_started = True
        self._server.start()

    def stop(self, grace_s: float) -> None:
        """Refuses new calls, gives open ones `grace_s`, ends them, joins every thread. Idempotent."""
        if not self._is_started:
            self.start()  # gRPC leaves the port of a server open that was never started
        self._server.stop(grace_s).wait()
        self.thread.close()
        for pool in (self._asking, self._admitting, self._storing, self._coding):
            pool.shutdown(wait=True)

    # -- inside -------------------------------------------------------------------------------------------------------

    def _failed(self, call: ClientCall, error: Exception) -> None:
        code, details, trailing = status(error, call.method)
        if code is StatusCode.UNAUTHENTICATED:  # a caller may have meant the process that was here before
            trailing = (*trailing, (INSTANCE_METADATA, self.peer.instance))
        call.finish(code, details, trailing=trailing)

    def _unary(self, handle: Callable[[Any, UnaryCall], Any], method: Method, pool: ThreadPoolExecutor) -> Behaviour:
        async def run(call: ClientCall) -> None:
            data = await one_request(call, is_free=self._guard.is_free(call.method))
            if data is None:
                return
            known = UnaryCall(call, self.thread, lambda step: self._done(step, pool))
            try:
                with call.client.call(), call.client.holds(len(data)):  # one that sends no request holds nothing
                    found = await answer(data, known)
            except asyncio.CancelledError:  # the caller has gone; what it asked for may be done
                known.audited.end(StatusCode.CANCELLED.name)
                raise
            except Exception as error:
                known.audited.end(status(error, call.method)[0].name)
                raise
            known.audited.end(StatusCode.OK.name)
            call.finish(data=found, trailing=known.trailing)

        def asked(data: bytes, known: UnaryCall) -> Any:
            request = decode(method.request, data, _MOST_ELEMENTS)
            check_request(request)
            trusted = request.restore_from if getattr(request, "trust_snapshot", False) else ""
            known.audited.begin(getattr(request, "job_key", ""), trusted)
            return request

        async def on_worker(data: bytes, known: UnaryCall) -> bytes:
            found = await known.work(lambda: _encoded(handle(asked(data, known), known)))
            while isinstance(found, Later):
                with self._waits.one():
                    outcome = await known.outcome(found.answer, found.late, found.limit_s)
                found = await known.work(partial(_then, found, outcome))
            return cast(bytes, found)

        async def on_loop(data: bytes, known: UnaryCall) -> bytes:
            with self._waits.one():
                is_small = len(data) <= _SMALL_BYTES
                request = asked(data, known) if is_small else await known.work(lambda: asked(data, known))
                response = await handle(request, known)
                return await known.work(lambda: encode(response)) if known.is_large else encode(response)

        answer = on_loop if inspect.iscoroutinefunction(handle) else on_worker
        return run

    async def _done(self, step: Callable[[], T], pool: ThreadPoolExecutor) -> T:
        """Runs a step of a call on a worker."""
        with self._in_hand.one():
            return await self.thread.loop.run_in_executor(pool, step)

    def _streaming(self, serve: Callable[..., Awaitable[None]], method: Method, places: CallPlaces) -> Behaviour:
        async def run(call: ClientCall) -> None:
            with places.one():
                stream = Stream(call, method, self._coding, self._asking, self.thread)
                call.greet()
                if method.client_streams:
                    await serve(stream)
                else:
                    data = await one_request(call)
                    if data is None:
                        return
                    request = decode(method.request, data, _MOST_ELEMENTS)
                    check_request(request)
                    await serve(request, stream)
                call.finish()

        return run


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
