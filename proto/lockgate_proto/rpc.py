"""gRPC plumbing over frozen messages: method tables, handlers and callers for every service of `lockgate.v1`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import grpc

from lockgate_proto import messages
from lockgate_proto.codec import decode, deserializer, serializer
from lockgate_proto.v1 import control_pb2, exchange_pb2, job_pb2

# Services of grpc.health.v1 beside `""`, which only says that a process is up: it is ready to do its part; it leads.
READY = "lockgate.ready"
LEADER = "lockgate.leader"

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
MAX_MESSAGE_ELEMENTS = 1_000_000  # of repeated fields of a message to the leader, at all depths together

# 4 kB can be compressed 4 MB. Both sides refuse a message that is compressed, before they look into it.
_UNCOMPRESSED: tuple[tuple[str, int], ...] = (
    ("grpc.compression_enabled_algorithms_bitset", 1),  # "identity" alone
    ("grpc.per_message_decompression", 0),
)

NO_RETRIES = ("grpc.enable_retries", 0)
"""For every channel: with gRPC's own retries a stream that began as its server stopped never ended, whatever its
deadline (grpcio 1.85.3).
"""

# grpcio's defaults reconnect after up to 2 minutes and refuse messages over 4 MiB.
CHANNEL_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.ping_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.use_local_subchannel_pool", 1),
    NO_RETRIES,
    *_UNCOMPRESSED,
)

# gRPC also takes the shortest pause for the least time that an attempt is given: with 50 ms, and 600 ms after some
# failures, a TLS handshake over a slow link or on a busy machine would never come to its end.
TLS_CHANNEL_OPTIONS: tuple[tuple[str, int], ...] = tuple(
    (name, 3_000 if name == "grpc.min_reconnect_backoff_ms" else value) for name, value in CHANNEL_OPTIONS
)

SERVER_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.so_reuseport", 0),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 1_000),
    ("grpc.http2.min_ping_interval_without_data_ms", 1_000),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.server_handshake_timeout_ms", 10_000),  # until HTTP/2 is spoken; 120 s otherwise, for whoever connects
    *_UNCOMPRESSED,
)


# gRPC pings the other side after messages, to learn how much may be on its way. That is for streams of data. Between a
# leader and thousands of task managers it costs more than it can gain: messages are small.
CONTROL_OPTIONS: tuple[tuple[str, int], ...] = (("grpc.http2.bdp_probe", 0),)


@dataclass(frozen=True)
class Method:
    """One rpc: its path and the frozen types of its request and response."""

    path: str
    request: type[Any]
    response: type[Any]
    client_streams: bool
    server_streams: bool


def _methods(service: Any) -> dict[str, Method]:
    return {
        method.name: Method(
            f"/{service.full_name}/{method.name}",
            getattr(messages, method.input_type.name),
            getattr(messages, method.output_type.name),
            method.client_streaming,
            method.server_streaming,
        )
        for method in service.methods
    }


_FILES = (job_pb2.DESCRIPTOR, control_pb2.DESCRIPTOR, exchange_pb2.DESCRIPTOR)
SERVICES: dict[str, dict[str, Method]] = {
    name: _methods(service) for file in _FILES for name, service in file.services_by_name.items()
}


def full_name(service: str) -> str:
    """`lockgate.v1.<service>`, as reflection and health name it."""
    return f"lockgate.v1.{service}"


def path(service: str, name: str) -> str:
    """`/lockgate.v1.<service>/<name>`, as a call names its method."""
    return SERVICES[service][name].path


def handler(service: str, implementation: Any) -> grpc.GenericRpcHandler:
    """Serves `service` ("JobService", ...) with the methods of `implementation`, named as in the .proto file.

    Each is called as (request or request iterator, grpc.ServicerContext), all in frozen messages. A stream's messages
    are decoded one by one as they are asked for, on the asking thread: none before the caller is admitted.
    """
    makers: dict[tuple[bool, bool], Callable[..., Any]] = {
        (False, False): grpc.unary_unary_rpc_method_handler,
        (False, True): grpc.unary_stream_rpc_method_handler,
        (True, False): grpc.stream_unary_rpc_method_handler,
        (True, True): grpc.stream_stream_rpc_method_handler,
    }
    handlers = {
        name: makers[method.client_streams, method.server_streams](
            _decoding(getattr(implementation, name), method),
            response_serializer=serializer,
        )
        for name, method in SERVICES[service].items()
    }
    return grpc.method_handlers_generic_handler(full_name(service), handlers)


def _decoding(behaviour: Callable[..., Any], method: Method) -> Callable[..., Any]:
    """The behaviour, for requests in bytes."""
    if method.client_streams:
        return lambda requests, context: behaviour((decode(method.request, data) for data in requests), context)
    return lambda data, context: behaviour(decode(method.request, data), context)


def call(channel: grpc.Channel, service: str, name: str) -> Callable[..., Any]:
    """The callable of one rpc over `channel`, with frozen request and response types."""
    method = SERVICES[service][name]
    makers: dict[tuple[bool, bool], Callable[..., Any]] = {
        (False, False): channel.unary_unary,
        (False, True): channel.unary_stream,
        (True, False): channel.stream_unary,
        (True, True): channel.stream_stream,
    }
    make: Callable[..., Callable[..., Any]] = makers[method.client_streams, method.server_streams]
    return make(method.path, request_serializer=serializer, response_deserializer=deserializer(method.response))
