"""Watches of a job that count what the leader sends them, and decode nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import grpc
from lockgate_common.security import Credentials
from lockgate_proto.codec import serializer
from lockgate_proto.messages import WatchRequest
from lockgate_proto.rpc import path


class CountedWatch:
    """One watch, read on a thread of its own until its channel is closed."""

    def __init__(self, channel: grpc.Channel, credentials: Credentials, request: WatchRequest) -> None:
        open_stream = channel.unary_stream(path("JobService", "Watch"), request_serializer=serializer)
        self.bytes_read = 0
        self.messages = 0
        self._begun = threading.Event()
        stream = open_stream(request, metadata=credentials.metadata())
        threading.Thread(target=self._read, args=(stream,), daemon=True).start()

    def wait(self, limit_s: float) -> bool:
        """Waits for the first message; False when it does not come in time."""
        return self._begun.wait(limit_s)

    def _read(self, stream: Any) -> None:
        try:
            for data in stream:
                self.bytes_read += len(data)
                self.messages += 1
                self._begun.set()
        except grpc.RpcError:
            return


@contextmanager
def counted_watches(
    count: int, address: str, credentials: Credentials, request: WatchRequest
) -> Iterator[list[CountedWatch]]:
    """So many of them, each on a connection of its own."""
    with ExitStack() as stack:
        channels = [stack.enter_context(credentials.channel(address)) for _ in range(count)]
        yield [CountedWatch(channel, credentials, request) for channel in channels]
