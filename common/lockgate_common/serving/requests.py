"""The one request of a call that is not a stream of requests."""

from __future__ import annotations

import asyncio

from grpc import StatusCode

from lockgate_common.serving.calls import Call
from lockgate_common.serving.refusals import Refused

_WAIT_S = 30.0
_FREE_WAIT_S = 5.0
_FREE_BYTES = 4 * 1024  # of a method without credentials


async def one_request(call: Call, *, is_free: bool = False) -> bytes | None:
    """The one request of a call; None when the caller cancels before it. Raises Refused.

    is_free: the method needs no credentials, so its request must be small and come soon.
    """
    wait_s = _FREE_WAIT_S if is_free else _WAIT_S
    try:
        data = await asyncio.wait_for(call.receive(), wait_s)
    except TimeoutError:
        raise Refused(StatusCode.DEADLINE_EXCEEDED, f"no request arrived within {wait_s:.0f} s") from None
    if data is None and call.is_active:
        raise Refused(StatusCode.UNIMPLEMENTED, f"{call.method} needs exactly one request")
    if is_free and data is not None:
        check_free(data)
    return data


def check_free(data: bytes) -> None:
    """Raises Refused for a message that is too large for a method without credentials."""
    if len(data) > _FREE_BYTES:
        text = f"this method takes {_FREE_BYTES:,} bytes at most, not {len(data):,}"
        raise Refused(StatusCode.RESOURCE_EXHAUSTED, text)
