"""gRPC calls that hold no thread: each is a coroutine on one loop.

The threads of grpcio's server block inside a call: for its request, for the next message of a stream, for a slow
reader. With as many such calls as threads the server answers nothing any more. Its asyncio server holds no threads, but
stops completely at the first method name that is not UTF-8, which any peer may send (grpcio 1.85). So `Calls` replaces
the thread pool: it receives each call before anything was read, and drives it by the same operations as grpcio's own
threads. This uses internals of grpcio; `grpc_parts` lists them and checks that they exist.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from typing import Any, Generic, NamedTuple, TypeVar

import grpc
from grpc import _common, _server
from grpc._cython import cygrpc  # type: ignore[attr-defined]

from lockgate_common.serving.event_loop import LoopThread

log = logging.getLogger(__name__)

_RECEIVE, _SEND, _GREET = "receive_message", "send_message", "send_initial_metadata"
_FOREVER_S = 10 * 365 * 86_400.0  # how grpcio represents "no deadline"


class PeerGone(Exception):
    """The call was ended by its peer, or with its connection."""


class ShownCertificate(NamedTuple):
    """names: the common name first, then alternative names; pem: the certificate itself. Both are empty for none."""

    names: tuple[str, ...]
    pem: bytes


class Call:
    """One call. Its coroutines run on the loop; one may receive while another sends."""

    def __init__(self, event: Any, state: Any, thread: LoopThread) -> None:
        self._event = event
        self._state = state
        self._thread = thread
        self.method: str = _common.decode(event.call_details.method)
        self.metadata: tuple[tuple[str, str | bytes], ...] = tuple(event.invocation_metadata or ())
        self.greeting: tuple[tuple[str, str], ...] = ()
        """Initial metadata of the answer."""

    @property
    def peer(self) -> str:
        """The caller's address, as gRPC names it."""
        return str(_common.decode(self._event.call.peer()))

    @property
    def certificate(self) -> ShownCertificate:
        """What the caller has shown."""
        known: dict[bytes, Sequence[bytes]] = cygrpc.auth_context(self._event.call) or {}
        names = (*known.get(b"x509_common_name", ()), *known.get(b"x509_subject_alternative_name", ()))
        pem = next(iter(known.get(b"x509_pem_cert", ())), b"")
        return ShownCertificate(tuple(name.decode(errors="replace") for name in names), pem)

    @property
    def is_active(self) -> bool:
        """False once the peer has gone, or a status was sent."""
        with self._state.condition:
            return bool(_server._is_rpc_state_active(self._state))

    def time_remaining(self) -> float | None:
        """Seconds until the caller's deadline, None when it has none."""
        remaining = float(self._event.call_details.deadline) - time.time()
        return None if remaining > _FOREVER_S else max(0.0, remaining)

    async def receive(self) -> bytes | None:
        """The next message; None at the end of the stream."""
        arrived: asyncio.Future[bytes | None] = self._thread.loop.create_future()
        with self._state.condition:
            if not _server._is_rpc_state_active(self._state):
                return None
            self._event.call.start_server_batch(
                (cygrpc.ReceiveMessageOperation(0),), lambda event: self._received(event, arrived)
            )
            self._state.due.add(_RECEIVE)
        return await arrived

    def _received(self, event: Any, arrived: asyncio.Future[bytes | None]) -> Any:
        """On grpcio's thread."""
        data = event.batch_operations[0].message()
        with self._state.condition:
            if data is None and self._state.client is _server._OPEN:
                self._state.client = _server._CLOSED
            finished = _server._possibly_finish_call(self._state, _RECEIVE)
        self._thread.post(lambda: _settle(arrived, data))
        return finished

    def greet(self) -> None:
        """Sends the initial metadata now, for callers that wait for it before they send anything."""
        with self._state.condition:
            if self.greeting and _server._is_rpc_state_active(self._state) and (operations := self._greeting()):
                self._event.call.start_server_batch(operations, lambda _event: self._done(_GREET, None))
                self._state.due.add(_GREET)

    async def send(self, data: bytes) -> None:
        """Sends a message; returns when the connection has taken it. Raises PeerGone."""
        sent: asyncio.Future[None] = self._thread.loop.create_future()
        with self._state.condition:
            if not _server._is_rpc_state_active(self._state):
                raise PeerGone
            operations = (*self._greeting(), cygrpc.SendMessageOperation(data, 0))
            self._event.call.start_server_batch(operations, lambda _event: self._done(_SEND, sent))
            self._state.due.add(_SEND)
        await sent
        if not self.is_active:
            raise PeerGone

    def finish(
        self,
        code: grpc.StatusCode = grpc.StatusCode.OK,
        details: str = "",
        data: bytes | None = None,
        trailing: Sequence[tuple[str, str]] = (),
    ) -> None:
        """Ends the call with a status, and a last message if there is one. No effect when it has ended already."""
        with self._state.condition:
            if not _server._is_rpc_state_active(self._state):
                return
            status = cygrpc.SendStatusFromServerOperation(
                tuple(trailing), _common.STATUS_CODE_TO_CYGRPC_STATUS_CODE[code], details.encode(errors="replace"), 0
            )
            message = () if data is None else (cygrpc.SendMessageOperation(data, 0),)
            token = "send_status_from_server"
            self._event.call.start_server_batch(
                (*self._greeting(), *message, status), lambda _event: self._done(token, None)
            )
            self._state.statused = True
            self._state.due.add(token)

    def on_over(self, call: Callable[[], None]) -> None:
        """Makes `call` on the loop when no operation of this call is pending any more, perhaps at once."""
        with self._state.condition:
            if self._state.callbacks is not None:
                self._state.callbacks.append(lambda: self._thread.post(call))
                return
        self._thread.post(call)

    def _greeting(self) -> tuple[Any, ...]:
        """Called under the lock."""
        if not self._state.initial_metadata_allowed:
            return ()
        self._state.initial_metadata_allowed = False
        return (cygrpc.SendInitialMetadataOperation(self.greeting or None, 0),)

    def _done(self, token: str, waiter: asyncio.Future[None] | None) -> Any:
        """On grpcio's thread."""
        with self._state.condition:
            finished = _server._possibly_finish_call(self._state, token)
        if waiter is not None:
            self._thread.post(lambda: _settle(waiter, None))
        return finished


AnyCall = TypeVar("AnyCall", bound=Call)
CallBehaviour = Callable[[AnyCall], Awaitable[None]]
"""What is done with a call, on the loop. It finishes the call, or raises."""


class Calls(Generic[AnyCall]):
    """Replaces the thread pool of grpcio's server. The behaviours of its handlers take a Call and finish it."""

    def __init__(
        self,
        thread: LoopThread,
        on_failure: Callable[[AnyCall, Exception], None],
        make: Callable[[Any, Any, LoopThread], AnyCall],
    ) -> None:
        """on_failure: ends a call whose behaviour has raised; make: the kind of Call, of event, state and loop."""
        self._thread = thread
        self._on_failure = on_failure
        self._make = make

    def submit(self, _run: Any, _body: Any, event: Any, state: Any, behaviour: Any, *_more: Any) -> Future[None]:
        """Called on grpcio's thread like its pools. The future completes when the call does not count any more."""
        over: Future[None] = Future()
        if not self._thread.post(lambda: self._begin(event, state, behaviour, over)):
            event.call.cancel()
            over.set_result(None)
        return over

    def _begin(self, event: Any, state: Any, behaviour: CallBehaviour[AnyCall], over: Future[None]) -> None:
        call = self._make(event, state, self._thread)
        task = self._thread.run_task(self._follow(call, behaviour))
        task.add_done_callback(lambda _: over.set_result(None))
        call.on_over(lambda: _cancel(task))

    async def _follow(self, call: AnyCall, behaviour: CallBehaviour[AnyCall]) -> None:
        try:
            await behaviour(call)
        except PeerGone:
            log.debug("%s: its caller has disconnected", call.method)
        except asyncio.CancelledError:
            call.finish(grpc.StatusCode.UNAVAILABLE, "this process is shutting down")  # if the peer is still there
        except Exception as error:
            self._on_failure(call, error)


def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()


def _settle(waiter: asyncio.Future[Any], value: Any) -> None:
    if not waiter.done():
        waiter.set_result(value)
