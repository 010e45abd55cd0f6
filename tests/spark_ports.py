"""What a stranger can say to the ports of Spark without knowing any secret, and who listens on this machine."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from pathlib import Path

_HOST = "127.0.0.1"
_RPC_REQUEST = 3
_UPLOAD_BLOCK = 1
_LISTENING = "0A"
PATIENCE_S = 60.0
MARK = "Stranger's object"


def spark_question(port: int, patience_s: float = PATIENCE_S) -> bytes:
    """A message to a driver's endpoint, in Spark's RPC, with an object to deserialise: what is answered."""
    receiver = b"\x01" + _utf(_HOST) + struct.pack(">i", port) + _utf("endpoint-verifier")
    return _ask(port, b"\x00" + receiver + _serialized(MARK), patience_s)


def spark_block(port: int, patience_s: float = PATIENCE_S) -> bytes:
    """A block to keep, in the protocol of Spark's block managers, with an object to deserialise: what is answered."""
    names = b"".join(struct.pack(">i", len(name)) + name for name in (b"stranger", b"driver", b"broadcast_4711"))
    parts = b"".join(struct.pack(">i", len(part)) + part for part in (_serialized(MARK), b"planted"))
    return _ask(port, bytes([_UPLOAD_BLOCK]) + names + parts, patience_s)


def py4j_call(port: int, patience_s: float = PATIENCE_S) -> bytes:
    """A call into a JVM through PySpark's gateway: what is answered."""
    with socket.create_connection((_HOST, port), patience_s) as connection:
        connection.sendall(b"c\nz:java.lang.System\ngetProperty\nsjava.version\ne\n")
        return connection.recv(65536)


def listening(pid: int) -> dict[int, str]:
    """The TCP ports on which a process and those below it listen, and at which address."""
    inodes = {inode for process in [pid, *_below(pid)] for inode in _sockets(process)}
    found = {}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == _LISTENING and fields[9] in inodes:
                address, port = fields[1].rsplit(":", 1)
                found[int(port, 16)] = _dotted(address)
    return found


def _ask(port: int, body: bytes, patience_s: float) -> bytes:
    """One request of Spark's transport: its length, its type, its number."""
    head = struct.pack(">bqi", _RPC_REQUEST, 4711, len(body))
    with socket.create_connection((_HOST, port), patience_s) as connection:
        connection.sendall(struct.pack(">q", 8 + len(head) + len(body)) + head + body)
        with connection.makefile("rb") as answer, contextlib.suppress(ConnectionError):
            length = answer.read(8)
            return answer.read(struct.unpack(">q", length)[0] - 8) if length else b""
    return b""


def _serialized(text: str) -> bytes:
    """A string as Java serializes it."""
    return b"\xac\xed\x00\x05\x74" + _utf(text)


def _utf(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def _below(pid: int) -> list[int]:
    """The processes that a process has started, and theirs."""
    children = [
        int(child) for path in Path(f"/proc/{pid}/task").glob("*/children") for child in path.read_text().split()
    ]
    return [*children, *(process for child in children for process in _below(child))]


def _sockets(pid: int) -> set[str]:
    found = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = os.readlink(link)
        except OSError:
            continue  # closed in between
        if target.startswith("socket:["):
            found.add(target[8:-1])
    return found


def _dotted(address: str) -> str:
    """An address of /proc/net/tcp; an IPv4 address in IPv6 as IPv4."""
    words = b"".join(bytes.fromhex(address[start : start + 8])[::-1] for start in range(0, len(address), 8))
    if len(words) == 4:
        return socket.inet_ntop(socket.AF_INET, words)
    mapped = words[:12] == b"\x00" * 10 + b"\xff\xff"
    return socket.inet_ntop(socket.AF_INET, words[12:]) if mapped else socket.inet_ntop(socket.AF_INET6, words)
