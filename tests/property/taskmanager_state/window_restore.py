"""Window state taken out of a snapshot, as a restore at another parallelism does it."""

from __future__ import annotations

import zlib
from typing import TypeVar

from lockgate_proto.messages import KeyedAggregate

from taskmanager.state import stored
from taskmanager.state.sessions import SessionState
from taskmanager.state.windowed import WindowedState

S = TypeVar("S", WindowedState, SessionState)


def hash_of(key: str | None) -> int:
    """Two keys and NULL share a hash."""
    number = 1 if key in {"a", "b", None} else zlib.crc32(str(key).encode())
    return (number * 0x9E3779B97F4A7C15) % 2**64 - 2**63


def restored(state: S, kind: KeyedAggregate, parts: int) -> S:
    """Out of a snapshot, each key group range read on its own and joined again."""
    data = state.freeze().to_buffer()
    ranges = [range(16 * part // parts, 16 * (part + 1) // parts) for part in range(parts)]
    mark = stored.signature(kind)
    found = [stored.read(data, "f", signature=mark, max_parallelism=16, wanted=one) for one in ranges]
    fresh = type(state)(kind, found[0].partial_schema, 16)
    fresh.restore(found)
    assert len(fresh) == len(state)
    assert fresh.clock.now == state.clock.before_end
    return fresh
