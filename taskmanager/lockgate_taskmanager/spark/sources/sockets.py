"""Lines of text from a TCP connection. Nothing can be read again: records lost in a failover stay lost.

The one split is named `host:port`; its offset, the lines read, is informational. The end of the connection ends the
split. There is no thread: the kernel buffers, and applies back-pressure to the sender when nothing is read.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Collection, Sequence

from lockgate_common.backlog import Backlog
from lockgate_proto.messages import SocketSource, SplitState
from lockgate_proto.splits import UNBOUNDED

from lockgate_taskmanager.spark.leaf import Form, LeafSpec
from lockgate_taskmanager.spark.sources.reading import UNASSIGNED_WAIT_MS, Reading
from lockgate_taskmanager.spark.valid_text import made_valid
from lockgate_taskmanager.task.program import Exhausted, Idle, Unavailable, UserError

LONGEST_LINE_BYTES = 16 << 20
_CONNECT_TIMEOUT_S = 5.0
_QUIET_MS = 5  # a line waits half of that on average; looking takes some tens of microseconds
_CHUNK_BYTES = 256 << 10
_KEEPALIVE = (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3))  # detects a host that vanished


class SocketReader:
    """Reads one connection. Connects at the first read."""

    def __init__(self, source: SocketSource, where: str) -> None:
        """where: the operator's name in messages."""
        self._address = (source.host, source.port)
        self._where = where
        self._split: SplitState | None = None
        self._complete = False
        self._connection: socket.socket | None = None
        self._buffer = bytearray()  # received and not yet emitted; at most a batch and one incomplete line
        self._has_ended = False

    @property
    def complete(self) -> bool:
        return self._complete

    def spec(self) -> LeafSpec | None:
        return LeafSpec(Form.TEXT)

    def assign(self, splits: Sequence[SplitState], complete: bool) -> None:
        for split in splits:
            self._split = self._split or split
        self._complete = self._complete or complete

    def splits(self) -> tuple[SplitState, ...]:
        return () if self._split is None else (self._split,)

    def read(self, budget_bytes: int, now_ms: int) -> Reading | Idle | Exhausted:  # noqa: ARG002
        """The available lines, without waiting. Raises Unavailable when the connection fails."""
        split = self._split
        if split is None or split.end != UNBOUNDED:
            return Exhausted() if self._complete else Idle(UNASSIGNED_WAIT_MS)
        if self._connection is None:
            self._connection = self._connected()
        self._receive(budget_bytes)
        lines = self._whole_lines()
        if not lines:
            if self._has_ended:
                self._split = SplitState(split=split.split, offset=split.offset, end=split.offset)
                return Exhausted() if self._complete else Idle(UNASSIGNED_WAIT_MS)
            return Idle(_QUIET_MS)
        rows = lines.count(b"\n")
        self._split = SplitState(split=split.split, offset=split.offset + rows, end=UNBOUNDED)
        full = len(lines) >= budget_bytes // 2
        may_pause = not (full or self._has_ended)
        return Reading(made_valid([lines]), rows, len(lines), full, split.split, may_pause=may_pause)

    def backlog(self, now_ms: int) -> Collection[str]:  # noqa: ARG002
        """Everything that has arrived is read at once."""
        return ()

    def unread(self, now_ms: int) -> Backlog:  # noqa: ARG002
        """The sender does not say what it has."""
        return Backlog()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _receive(self, budget_bytes: int) -> None:
        """Receives until the buffer holds the budget, or one line if that is longer."""
        assert self._connection is not None
        while not self._has_ended and (len(self._buffer) < budget_bytes or b"\n" not in self._buffer):
            try:
                data = self._connection.recv(_CHUNK_BYTES)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                raise self._failed("broke", error) from error
            self._has_ended = not data
            self._buffer += data
            if len(self._buffer) > LONGEST_LINE_BYTES and b"\n" not in self._buffer:
                raise UserError(
                    f"{self._where}: {self._name()} sent {len(self._buffer)} bytes without the end of a line; it must"
                    " send lines of text"
                )

    def _whole_lines(self) -> bytes:
        if self._has_ended and self._buffer and not self._buffer.endswith(b"\n"):
            self._buffer += b"\n"
        cut = self._buffer.rfind(b"\n") + 1
        lines = bytes(self._buffer[:cut])
        del self._buffer[:cut]
        return lines

    def _connected(self) -> socket.socket:
        try:
            made = socket.create_connection(self._address, _CONNECT_TIMEOUT_S)
        except OSError as error:
            raise self._failed("cannot be made", error) from error
        made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _KEEPALIVE:
            with contextlib.suppress(AttributeError, OSError):  # not available on every system
                made.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
        made.setblocking(False)
        return made

    def _failed(self, problem: str, error: OSError) -> Unavailable:
        return Unavailable(f"{self._where}: the connection to {self._name()} {problem}: {error}")

    def _name(self) -> str:
        return split_name(*self._address)


def split_name(host: str, port: int) -> str:
    """`host:port`."""
    return f"{host}:{port}"


def discover(source: SocketSource, known: Collection[str]) -> tuple[tuple[SplitState, ...], bool]:
    """The only split, unless it is known; there will be no others."""
    if known:
        return (), True
    return (SplitState(split=split_name(source.host, source.port), end=UNBOUNDED),), True
