"""The sessions of a ZooKeeper server, and their end from outside, as a bug of another client could bring it about."""

from __future__ import annotations

import socket
import struct
from pathlib import Path

_LOG_HEADER_BYTES = 16
_ENTRY_HEADER = struct.Struct(">qi")  # checksum, length
_TRANSACTION = struct.Struct(">qiqqi")  # session, cxid, zxid, time, type
_CREATED, _CLOSED = -10, -11
_SUPER_SECRET = 0xB3415C00  # of ZooKeeperServer.java: a session's password follows from its id
_TIMEOUT_MS = 10_000
_TRIES = 20


def live_sessions(data_dir: Path) -> set[int]:
    """The ids of all sessions of the ensemble, from the transactions that one server has logged since its start."""
    live: set[int] = set()
    for log in sorted((data_dir / "version-2").glob("log.*"), key=lambda path: int(path.suffix[1:], 16)):
        data, at = log.read_bytes(), _LOG_HEADER_BYTES
        while at + _ENTRY_HEADER.size <= len(data):
            _checksum, size = _ENTRY_HEADER.unpack_from(data, at)
            if size == 0:  # the rest of the file is kept free
                break
            session, _cxid, _zxid, _time, kind = _TRANSACTION.unpack_from(data, at + _ENTRY_HEADER.size)
            if kind == _CREATED:
                live.add(session)
            elif kind == _CLOSED:
                live.discard(session)
            at += _ENTRY_HEADER.size + size + 1
    return live


def expire(address: str, session_id: int) -> bool:
    """Closes a session at the server at `host:port`; its ephemeral nodes are gone then. Whether there was one.

    Its client takes the session back as soon as it has lost it, perhaps before it has ended. So this side tries until
    the server knows no such session.
    """
    existed = False
    for _ in range(_TRIES):
        found = _try_to_expire(address, session_id)
        if found is False:
            return existed
        existed = existed or found is True
    raise AssertionError(f"{address} has still had session {session_id:#x} after {_TRIES} tries to end it")


def _try_to_expire(address: str, session_id: int) -> bool | None:
    """None if the server hung up before it answered."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        password = _password(session_id)
        hello = struct.pack(">iqiqi16s?", 0, 0, _TIMEOUT_MS, session_id, len(password), password, False)
        connection.sendall(struct.pack(">i", len(hello)) + hello)
        with connection.makefile("rb") as answers:
            try:
                size = answers.read(4)
            except ConnectionResetError:
                return None
            if len(size) < 4:
                return None
            _version, timeout_ms, _session = struct.unpack(">iiq", answers.read(*struct.unpack(">i", size))[:16])
            if timeout_ms <= 0:
                return False
            connection.sendall(struct.pack(">iii", 8, 1, _CLOSED))
            answers.read()  # the server hangs up once it is done
    return True


def _password(session_id: int) -> bytes:
    """16 bytes of java.util.Random, seeded with the id."""
    multiplier, mask = 0x5DEECE66D, (1 << 48) - 1
    state, password = ((session_id ^ _SUPER_SECRET) ^ multiplier) & mask, b""
    for _ in range(4):
        state = (state * multiplier + 0xB) & mask
        password += struct.pack("<I", state >> 16)
    return password
