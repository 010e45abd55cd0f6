"""ExchangeServer: accepts channels from other task managers and puts their elements into the input gates."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from concurrent import futures
from dataclasses import replace
from typing import Any

import grpc
import pyarrow as pa
from lockgate_common.proof import Peer
from lockgate_common.security import Credentials
from lockgate_common.serving.event_loop import LoopThread
from lockgate_common.serving.grpc_parts import unusable
from lockgate_common.serving.health import HEALTH, HealthService
from lockgate_common.settings import SettingsError
from lockgate_proto import rpc
from lockgate_proto.codec import MalformedMessage
from lockgate_proto.messages import ChannelOpen, ExchangeSignal, RecordBatch, StreamElement, SubtaskId

from lockgate_taskmanager.exchange.calls import ExchangeCalls
from lockgate_taskmanager.exchange.elements import ChannelId, Element, from_message
from lockgate_taskmanager.exchange.errors import CannotRejoin, ChannelClosed, ChannelRefused
from lockgate_taskmanager.exchange.fencing import TokenFence
from lockgate_taskmanager.exchange.gate import InputGate
from lockgate_taskmanager.exchange.registry import GateRegistry

log = logging.getLogger(__name__)

DEPLOYMENT_WAIT_S = 10.0  # senders wait for 15 s
MAX_CHANNELS = 4096  # one thread each, started when needed


class ExchangeService:
    """The implementation of `ExchangeService`, for callers that have been let in."""

    def __init__(self, fence: TokenFence, registry: GateRegistry, wait_s: float = DEPLOYMENT_WAIT_S) -> None:
        self._fence = fence
        self._registry = registry
        self._wait_s = wait_s

    def Open(self, requests: Iterator[StreamElement], context: grpc.ServicerContext) -> Iterator[ExchangeSignal]:
        """One channel, from ChannelOpen until either side closes it."""
        first = _first(requests)
        if first is None or not isinstance(first.element, ChannelOpen):
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the first element of a channel is ChannelOpen")
        assert first is not None
        assert isinstance(first.element, ChannelOpen)
        try:
            gate, channel, attempt = admit(first.element, self._fence, self._registry, self._wait_s, context.cancel)
        except (ChannelRefused, ChannelClosed, CannotRejoin) as refused:
            log.info("channel refused: %s", refused)
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(refused))
        yield gate.received(channel)
        context.add_callback(lambda: gate.wake_senders(channel))
        _receive(requests, gate, channel, attempt, lambda: not context.is_active())
        if gate.is_closed:
            context.abort(grpc.StatusCode.CANCELLED, "the receiving subtask has ended")


def admit(
    hello: ChannelOpen, fence: TokenFence, registry: GateRegistry, wait_s: float, on_close: Callable[[], object]
) -> tuple[InputGate, int, int]:
    """Connects a sender: the gate, the number of the channel, and that of the sender's attempt.

    on_close: see InputGate.connect. Raises ChannelRefused, ChannelClosed, CannotRejoin.
    """
    source, target = hello.source, hello.target
    if source is None or target is None or source.attempt is None or not _is_one_run(source, target):
        raise ChannelRefused("ChannelOpen names no source and target of one attempt")
    if not fence.admits(hello.token):
        raise ChannelRefused(f"token {hello.token} is older than {fence.highest}, seen here")
    gate, attempt = registry.wait_for(target, wait_s), source.attempt.attempt
    if source.attempt != target.attempt and not gate.may_rejoin:
        raise ChannelRefused("ChannelOpen names no source and target of one attempt")
    channel = gate.index_of(ChannelId(source.vertex_id, source.subtask))
    if channel is None:
        raise ChannelRefused(f"{target.vertex_id}[{target.subtask}] has no input from {source.vertex_id}")
    if not gate.connect(channel, on_close, attempt=attempt):
        raise ChannelRefused(f"{source.vertex_id}[{source.subtask}] has opened this channel before")
    return gate, channel, attempt


class ExchangeServer:
    """The gRPC server of the data exchange, and of grpc.health.v1.

    `""` is SERVING while it is open, `lockgate.ready` from `ready` on; neither after `stop`.
    """

    def __init__(
        self,
        credentials: Credentials,
        fence: TokenFence,
        registry: GateRegistry,
        *,
        instance: str = "",
        wait_s: float = DEPLOYMENT_WAIT_S,
        max_channels: int = MAX_CHANNELS,
    ) -> None:
        """instance: of this process, as its Register says. Raises SettingsError for a grpcio that cannot be used."""
        if problem := unusable():
            raise SettingsError(problem)
        self._instance = instance
        self._credentials = credentials
        self._registry = registry
        self._pool = futures.ThreadPoolExecutor(max_workers=max_channels, thread_name_prefix="exchange")
        self._loop = LoopThread("exchange-loop")
        self._calls = ExchangeCalls(credentials, self._loop, self._pool, max_channels, wait_s)
        self._server = grpc.server(self._calls, options=rpc.SERVER_OPTIONS)  # type: ignore[arg-type]
        self._health = HealthService({"": True, rpc.READY: False})
        self._health.serve(self._loop)
        service = rpc.handler("ExchangeService", ExchangeService(fence, registry, wait_s))
        self._server.add_generic_rpc_handlers((service, _health_handler(self._health)))

    def start(self, bind: str, advertise: str = "") -> str:
        """Opens `host:port` and returns the address for others, with the real port. Raises SecurityError, OSError.

        advertise: the address for others where it is not the bound one; port 0 stands for the bound port.
        """
        port = self._credentials.bind(self._server, bind)
        host, _, port_text = (advertise or bind).rpartition(":")
        address = advertise if advertise and port_text != "0" else f"{host}:{port}"
        self._calls.me = Peer(address, self._instance)
        self._server.start()
        return address

    def ready(self) -> None:
        """A leader has registered this task manager.

        Losing the leader does not revert it: running subtasks are still served.
        """
        self._health.set(rpc.READY, True)

    def stop(self) -> None:
        """Accepts no further channels and ends the open ones."""
        self._health.stop()
        self._registry.close()
        self._server.stop(grace=0).wait(5.0)
        self._loop.close()
        self._pool.shutdown(wait=False)


def _health_handler(health: HealthService) -> grpc.GenericRpcHandler:
    handlers: dict[str, Any] = {
        "Check": grpc.unary_unary_rpc_method_handler(health.check),
        "Watch": grpc.unary_stream_rpc_method_handler(health.watch),
    }
    return grpc.method_handlers_generic_handler(HEALTH, handlers)


def _first(requests: Iterator[StreamElement]) -> StreamElement | None:
    try:
        return next(requests, None)
    except MalformedMessage:
        return None


def _is_one_run(source: SubtaskId, target: SubtaskId) -> bool:
    """Whether both are of one run of a job; where only a part has restarted their attempts differ."""
    first, second = source.attempt, target.attempt
    return first is not None and second is not None and replace(first, attempt=second.attempt) == second


def _receive(
    requests: Iterator[StreamElement], gate: InputGate, channel: int, attempt: int, is_over: Callable[[], bool]
) -> None:
    """Moves elements into the gate until the channel ends. attempt: of the sender.

    Not reading further is what applies back-pressure to the sender.
    """
    reason = "the sender ended it"
    try:
        for message in requests:
            element = _element(message)
            gate.put(channel, element, is_over, attempt=attempt, more=message.more, read_to=message.read_to)
    except ChannelClosed:
        reason = "the sender is gone"
    except (pa.ArrowInvalid, pa.ArrowTypeError, ValueError) as error:
        reason = f"an element cannot be read: {error}"
    except Exception as error:  # grpcio raises a bare Exception when the call is over
        reason = str(error) or "the sender is gone"
    gate.lost(channel, reason, attempt)


def _element(message: StreamElement) -> Element:
    element = message.element
    if isinstance(element, RecordBatch):
        return from_message(element)
    if element is None or isinstance(element, ChannelOpen):
        raise ValueError("neither records nor a control element")
    return element
