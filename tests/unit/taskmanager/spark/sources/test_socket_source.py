"""Lines from a TCP server: whole ones, each at most once, and never a wait."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest
from lockgate_proto.messages import FailureCause, SocketSource, SplitState
from lockgate_taskmanager.runtime.failures import cause_of, text_of
from lockgate_taskmanager.spark.sources import sockets
from lockgate_taskmanager.spark.sources.reading import Reading
from lockgate_taskmanager.spark.sources.sockets import SocketReader, discover
from lockgate_taskmanager.task.program import Exhausted, Idle, Unavailable, UserError

WHERE = "operator 'read_socket-1'"
PATIENCE_S = 120.0


class Server:
    """A listening socket, and the connection that the source has made."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        self.peer: socket.socket | None = None

    def accept(self) -> socket.socket:
        self.listener.settimeout(PATIENCE_S)
        self.peer, _ = self.listener.accept()
        return self.peer

    def close(self) -> None:
        self.listener.close()
        if self.peer is not None:
            self.peer.close()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


@pytest.fixture
def source(server: Server) -> Iterator[SocketReader]:
    made = reader(server.port)
    yield made
    made.close()


def reader(port: int, offset: int = 0) -> SocketReader:
    made = SocketReader(SocketSource("127.0.0.1", port), WHERE)
    made.assign((SplitState(f"127.0.0.1:{port}", offset, -1),), True)
    return made


def read(source: SocketReader, budget_bytes: int = 10_000) -> bytes | Exhausted:
    """The next records; what is on its way is waited for."""
    never = threading.Event()
    for _ in range(int(PATIENCE_S / 0.02)):
        reading = source.read(budget_bytes, 0)
        if isinstance(reading, Exhausted):
            return reading
        if isinstance(reading, Reading):
            assert reading.rows == b"".join(reading.content).count(b"\n")
            return b"".join(reading.content)
        never.wait(0.02)
    raise AssertionError("nothing has come")


def test_nothing_is_waited_for(source: SocketReader) -> None:
    assert isinstance(source.read(1000, 0), Idle)


def test_only_whole_lines_are_handed_on(source: SocketReader, server: Server) -> None:
    source.read(1000, 0)
    peer = server.accept()
    data = "eins\nzwölf\r\n\ndrei\n".encode()
    peer.sendall(data[:8])  # ends inside of a character
    assert read(source) == b"eins\n"
    assert isinstance(source.read(1000, 0), Idle)
    peer.sendall(data[8:])
    assert read(source) == data[5:]
    assert source.splits()[0].offset == 4


def test_the_end_of_the_connection_is_the_end_of_the_split(source: SocketReader, server: Server) -> None:
    source.read(1000, 0)
    peer = server.accept()
    peer.sendall(b"one\ntwo")
    peer.close()
    found = b""
    while not isinstance(piece := read(source), Exhausted):
        found += piece
    assert found == b"one\ntwo\n"
    (split,) = source.splits()
    assert (split.offset, split.end) == (2, 2)
    again = reader(server.port)
    again.assign((), True)
    again._split = split
    assert isinstance(again.read(1000, 0), Exhausted), "a restored end makes no connection"


def test_a_batch_holds_about_the_budget_and_the_rest_stays_with_the_sender(
    source: SocketReader, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sockets, "_CHUNK_BYTES", 100)
    source.read(1000, 0)
    peer = server.accept()
    peer.sendall(b"0123456789abcde\n" * 200)
    sizes = [len(read(source, 320)) for _ in range(4)]  # type: ignore[arg-type]
    assert all(200 < size <= 420 for size in sizes), sizes


def test_a_line_that_is_longer_than_the_budget_is_read_whole(source: SocketReader, server: Server) -> None:
    source.read(1000, 0)
    server.accept().sendall(b"x" * 50_000 + b"\n")
    assert read(source, 1000) == b"x" * 50_000 + b"\n"


def test_input_without_line_ends_is_an_error_of_the_author(
    source: SocketReader, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sockets, "LONGEST_LINE_BYTES", 10_000)
    source.read(1000, 0)
    server.accept().sendall(b"\x00" * 20_000)
    with pytest.raises(UserError, match="bytes without the end of a line; it must send lines of text"):
        read(source, 1000)


def test_a_missing_server_is_a_fault_in_one_sentence(server: Server) -> None:
    server.close()
    with pytest.raises(Unavailable, match=r"the connection to 127\.0\.0\.1:\d+ cannot be made: .*refused") as caught:
        reader(server.port).read(1000, 0)
    assert cause_of(caught.value) is FailureCause.FAULT
    assert "\n" not in text_of(caught.value)


def test_a_connection_that_breaks_is_a_fault(source: SocketReader, server: Server) -> None:
    source.read(1000, 0)
    peer = server.accept()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")  # closed by a reset
    peer.close()
    with pytest.raises(Unavailable, match=r"broke: .*reset"):
        read(source)


def test_a_new_attempt_continues_counting_and_reads_new_lines(server: Server) -> None:
    """At most once: what the old attempt had received is gone with it, and nothing comes twice."""
    first = reader(server.port)
    first.read(1000, 0)
    server.accept().sendall(b"a\nb\n")
    assert read(first) == b"a\nb\n"
    first.close()
    second = reader(server.port, offset=1)  # the snapshot was taken behind a
    second.read(1000, 0)
    server.accept().sendall(b"c\n")
    assert read(second) == b"c\n"
    assert second.splits()[0].offset == 2
    second.close()


def test_there_is_one_split() -> None:
    source = SocketSource("example.org", 9999)
    assert discover(source, ()) == ((SplitState("example.org:9999", 0, -1),), True)
    assert discover(source, ("example.org:9999",)) == ((), True)
