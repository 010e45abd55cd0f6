"""Where sources began whose first positions depend on the time: ends of topics, or what retention has left.

    unknown --found--> WRITING --written--> stored      recovered: stored at once

They are in the attempt record before a split is assigned, so an attempt without a complete checkpoint, under any
leader, begins where the first one began, and skips nothing.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable

from lockgate_proto.codec import MalformedMessage, decode, encode
from lockgate_proto.messages import FirstPositions, KafkaSource, Operator, SourceState


def depends_on_time(source: Operator) -> bool:
    """True for a source whose splits begin elsewhere when they are listed later."""
    return isinstance(source.kind, KafkaSource)


def unpacked(item: FirstPositions) -> SourceState:
    """The positions of one source. Raises MalformedMessage."""
    try:
        return decode(SourceState, zlib.decompress(item.source_state))
    except zlib.error as error:
        raise MalformedMessage(f"the first positions of source {item.vertex_id}: {error}") from error


class KnownPositions:
    """The first positions of the sources of one job, by vertex id."""

    def __init__(self, stored: Iterable[FirstPositions] = ()) -> None:
        self._states: dict[str, SourceState] = {}
        self._packed: dict[str, FirstPositions] = {}
        self._stored: set[str] = set()
        self.recovered(stored)

    def recovered(self, stored: Iterable[FirstPositions]) -> None:
        """Takes over what earlier leaders have stored. Raises MalformedMessage."""
        for item in stored:
            self._packed[item.vertex_id] = item
            self._states[item.vertex_id] = unpacked(item)
            self._stored.add(item.vertex_id)

    def of(self, vertex_id: str) -> SourceState | None:
        """Those of a source, with `complete` for the last ones that it will have; None before they are found."""
        return self._states.get(vertex_id)

    def found(self, vertex_id: str, state: SourceState) -> None:
        """A source was listed for the first time."""
        self._packed[vertex_id] = FirstPositions(vertex_id, zlib.compress(encode(state)))
        self._states[vertex_id] = state

    def written(self, stored: Iterable[FirstPositions]) -> None:
        """A record with these was written."""
        self._stored |= {item.vertex_id for item in stored}

    def is_stored(self, vertex_id: str) -> bool:
        """True when its splits may be assigned."""
        return vertex_id in self._stored

    @property
    def is_behind(self) -> bool:
        """True when some were found that no written record has."""
        return len(self._stored) < len(self._states)

    def packed(self) -> tuple[FirstPositions, ...]:
        """For the record of the attempt."""
        return tuple(self._packed.values())
