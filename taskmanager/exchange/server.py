"""ExchangeServer: takes channels from other task managers and puts what they carry into the input gates."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from concurrent import futures

import grpc
import pyarrow as pa
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from lockgate_proto import rpc
from lockgate_proto.messages import ChannelOpen, ExchangeSignal, RecordBatch, StreamElement
from lockgate_proto.security import Credentials

from taskmanager.exchange.elements import ChannelId, Element, from_message
from taskmanager.exchange.errors import ChannelClosed, ChannelRefused
from taskmanager.exchange.fencing import TokenFence
from taskmanager.exchange.gate import InputGate
from taskmanager.exchange.registry import GateRegistry

log = logging.getLogger(__name__)

DEPLOYMENT_WAIT_S = 10.0
MAX_CHANNELS = 4096  # one thread each, made when needed


class ExchangeService:
    """The implementation of `ExchangeService`."""

    def __init__(
        self, credentials: Credentials, fence: TokenFence, registry: GateRegistry, wait_s: float = DEPLOYMENT_WAIT_S
    ) -> None:
        self._credentials = credentials
        self._fence = fence
        self._registry = registry
        self._wait_s = wait_s

    def Open(self, requests: Iterator[StreamElement], context: grpc.ServicerContext) -> Iterator[ExchangeSignal]:
        """One channel, from ChannelOpen until either side gives it up."""
        if not self._credentials.admits(tuple(context.invocation_metadata())):
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "the exchange needs the cluster's secret")
        first = next(requests, None)
        if first is None or not isinstance(first.element, ChannelOpen):
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the first element of a channel is ChannelOpen")
        assert first is not None
        assert isinstance(first.element, ChannelOpen)
        try:
            gate, channel = self._admit(first.element, context)
        except (ChannelRefused, ChannelClosed) as refused:
            log.info("channel refused: %s", refused)
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(refused))
        yield ExchangeSignal(accepted=True)
        context.add_callback(lambda: gate.wake_senders(channel))
        _receive(requests, gate, channel, lambda: not context.is_active())
        if gate.is_closed:
            context.abort(grpc.StatusCode.CANCELLED, "the receiving subtask has ended")

    def _admit(self, hello: ChannelOpen, context: grpc.ServicerContext) -> tuple[InputGate, int]:
        source, target = hello.source, hello.target
        if source is None or target is None or source.attempt is None or source.attempt != target.attempt:
            raise ChannelRefused("ChannelOpen names no source and target of one attempt")
        if not self._fence.admits(hello.token):
            raise ChannelRefused(f"token {hello.token} is older than {self._fence.highest}, seen here")
        gate = self._registry.wait_for(target, self._wait_s)
        channel = gate.index_of(ChannelId(source.vertex_id, source.subtask))
        if channel is None:
            raise ChannelRefused(f"{target.vertex_id}[{target.subtask}] has no input from {source.vertex_id}")
        if not gate.connect(channel, context.cancel):
            raise ChannelRefused(f"{source.vertex_id}[{source.subtask}] has opened this channel before")
        return gate, channel


class ExchangeServer:
    """The gRPC server of the data exchange, and of grpc.health.v1.

    `""` is SERVING while it is open, `lockgate.ready` from ready() on. Neither is once it stops.
    """

    def __init__(
        self,
        credentials: Credentials,
        fence: TokenFence,
        registry: GateRegistry,
        *,
        wait_s: float = DEPLOYMENT_WAIT_S,
        max_channels: int = MAX_CHANNELS,
    ) -> None:
        self._credentials = credentials
        self._registry = registry
        pool = futures.ThreadPoolExecutor(max_workers=max_channels, thread_name_prefix="exchange")
        self._pool = pool
        self._server = grpc.server(pool, options=rpc.SERVER_OPTIONS)
        service = ExchangeService(credentials, fence, registry, wait_s)
        self._server.add_generic_rpc_handlers((rpc.handler("ExchangeService", service),))
        self._health = health.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        self._health.set(rpc.READY, health_pb2.HealthCheckResponse.NOT_SERVING)
        self._is_ready = False

    def start(self, bind: str) -> str:
        """Opens `host:port` and returns the address with the real port. Raises SecurityError, OSError."""
        port = self._credentials.bind(self._server, bind)
        self._server.start()
        return f"{bind.rsplit(':', 1)[0]}:{port}"

    def ready(self) -> None:
        """A leader has taken this task manager. Its loss does not take that back: what runs is still served."""
        if self._is_ready:
            return  # whoever watches is told of changes only
        self._is_ready = True
        self._health.set(rpc.READY, health_pb2.HealthCheckResponse.SERVING)

    def stop(self) -> None:
        """Takes no further channel and ends every present one."""
        self._health.enter_graceful_shutdown()
        self._registry.close()
        self._server.stop(grace=0).wait(5.0)
        self._pool.shutdown(wait=False)


def _receive(requests: Iterator[StreamElement], gate: InputGate, channel: int, is_over: Callable[[], bool]) -> None:
    """Moves elements into the gate until the channel ends. Not reading on is what slows the sender down."""
    reason = "the sender ended it"
    try:
        for message in requests:
            gate.put(channel, _element(message), is_over)
    except ChannelClosed:
        reason = "the sender is gone"
    except (pa.ArrowInvalid, pa.ArrowTypeError, ValueError) as error:
        reason = f"an element cannot be read: {error}"
    except Exception as error:  # grpcio raises a bare Exception when the call is over
        reason = str(error) or "the sender is gone"
    gate.lost(channel, reason)


def _element(message: StreamElement) -> Element:
    element = message.element
    if isinstance(element, RecordBatch):
        return from_message(element)
    if element is None or isinstance(element, ChannelOpen):
        raise ValueError("neither records nor a control element")
    return element
