"""What stands before every rpc: who may call, requests that cannot be read, and exceptions as gRPC statuses."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterator
from typing import Any

import grpc
from lockgate_proto.codec import MalformedMessage
from lockgate_proto.rpc import full_name
from lockgate_proto.security import Credentials

from coordinator.runtime.errors import Busy, NotLeading, Refused, Stopped, StorageError
from coordinator.runtime.job_keys import check_named
from ha.errors import CorruptRecord, RecordTooLarge, StoreError

log = logging.getLogger(__name__)

LEADER_METADATA = "lockgate-leader"
_MAX_DETAILS = 6_000  # as it is sent: each byte that is not printable ASCII takes three
_INTERNAL = (f"/{full_name('ControlService')}/", f"/{full_name('FollowService')}/")
_HEALTH = "/grpc.health.v1.Health/"
_WRITING = ("Submit", "Cancel", "TriggerSavepoint", "Stop", "DisposeSavepoint", "Rescale", "Release")
_WRITES = tuple(f"/{full_name('JobService')}/{name}" for name in _WRITING)
"""A job runs code as the cluster's user (SQL can, too), reads and writes that user's files, and can be lost."""
SECRET_NEEDED = (
    "the cluster's secret is missing or wrong; send the call metadata `authorization: Bearer <content of the secret "
    "file>`. The file is ~/.config/lockgate/secret of the cluster's user, or where LOCKGATE_SECRET_FILE says"
)


@dataclasses.dataclass(frozen=True, slots=True)
class Unreadable:
    """Takes the place of a request that is not a message of its type."""

    reason: str


class Guard(grpc.ServerInterceptor):  # type: ignore[misc,unused-ignore]
    """Checks the secret where a method asks for it, and turns what handlers raise into statuses."""

    def __init__(self, credentials: Credentials, *, everything: bool) -> None:
        """everything: the port can be reached from other machines, so that only health checks are free."""
        self._credentials = credentials
        self._everything = everything

    def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], grpc.RpcMethodHandler[Any, Any] | None],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        """See grpc.ServerInterceptor."""
        found: Any = continuation(handler_call_details)
        if found is None:
            return None
        method = str(handler_call_details.method)
        always = method.startswith(_INTERNAL) or method in _WRITES
        secured = always or (self._everything and not method.startswith(_HEALTH))
        metadata: Any = tuple(handler_call_details.invocation_metadata or ())
        refused = secured and not self._credentials.admits(metadata)
        readable = _reading(found.request_deserializer)
        if found.response_streaming:
            inner = found.stream_stream or found.unary_stream
            make = (
                grpc.stream_stream_rpc_method_handler if found.stream_stream else grpc.unary_stream_rpc_method_handler
            )
            behaviour: Any = _stream(inner, method, refused)
        else:
            inner = found.stream_unary or found.unary_unary
            make = grpc.stream_unary_rpc_method_handler if found.stream_unary else grpc.unary_unary_rpc_method_handler
            behaviour = _unary(inner, method, refused)
        handler: grpc.RpcMethodHandler[Any, Any] = make(behaviour, readable, found.response_serializer)
        return handler


def _reading(deserialize: Callable[[bytes], Any] | None) -> Callable[[bytes], Any] | None:
    if deserialize is None:
        return None

    def read(data: bytes) -> Any:
        try:
            return deserialize(data)
        except MalformedMessage as error:
            return Unreadable(str(error))

    return read


def _unary(inner: Any, method: str, refused: bool) -> Callable[[Any, grpc.ServicerContext], Any]:
    def call(request: Any, context: grpc.ServicerContext) -> Any:
        _admit(request, context, refused)
        try:
            return inner(request, context)
        except Exception as error:
            abort(error, context, method)

    return call


def _stream(inner: Any, method: str, refused: bool) -> Callable[[Any, grpc.ServicerContext], Iterator[Any]]:
    def call(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        _admit(request, context, refused)
        try:
            yield from inner(request, context)
        except Exception as error:
            abort(error, context, method)

    return call


def _admit(request: Any, context: grpc.ServicerContext, refused: bool) -> None:
    if refused:
        context.abort(grpc.StatusCode.UNAUTHENTICATED, SECRET_NEEDED)
    if isinstance(request, Unreadable):
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, request.reason)
    key = getattr(request, "job_key", "")
    try:
        check_named(key)
    except Refused as error:
        context.abort(grpc.StatusCode[error.code], str(error))


def _short(details: str) -> str:
    """A status travels in headers, of which peers take 8 KiB: one that is longer would break the call instead."""
    room = _MAX_DETAILS
    for at, character in enumerate(details):
        room -= 1 if " " <= character <= "~" else 3 * len(character.encode(errors="replace"))
        if room < 0:
            return f"{details[:at]} ... (there is more)"
    return details


def abort(error: Exception, context: grpc.ServicerContext, method: str) -> None:
    """Ends the call with the status that fits what was raised. Always raises."""
    if context.code() is not None:  # type: ignore[attr-defined]
        raise error  # context.abort was called: its exception only unwinds the handler
    match error:
        case NotLeading(leader=leader):
            if leader:
                context.set_trailing_metadata(((LEADER_METADATA, leader),))
            code = grpc.StatusCode.FAILED_PRECONDITION
        case Refused(code=name):
            code = grpc.StatusCode[name]
        case Busy() | Stopped():
            code = grpc.StatusCode.UNAVAILABLE
        case RecordTooLarge():
            code = grpc.StatusCode.INVALID_ARGUMENT
        case CorruptRecord():
            code = grpc.StatusCode.DATA_LOSS
        case StoreError():
            code = grpc.StatusCode.UNAVAILABLE
        case StorageError():
            code = grpc.StatusCode.UNAVAILABLE if error.retryable else grpc.StatusCode.DATA_LOSS
        case _:
            log.exception("%s failed", method, exc_info=error)
            code, error = grpc.StatusCode.INTERNAL, Exception(f"internal fault: {type(error).__name__}: {error}")
    context.abort(code, _short(str(error)))
