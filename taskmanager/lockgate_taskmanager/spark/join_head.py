"""The interval join at the head of a chain: distinguishes its inputs, and checks their schemas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from lockgate_proto.messages import JoinSide, Operator, OperatorState

from lockgate_taskmanager.spark.chain import named, naming
from lockgate_taskmanager.spark.inputs import like, plain, require_same
from lockgate_taskmanager.state.join.interval_join import JoinStore, Paired
from lockgate_taskmanager.state.layout import EVENT_MICROS
from lockgate_taskmanager.state.store import FrozenStore
from lockgate_taskmanager.task.program import SnapshotOrder, UserError


class JoinHead:
    """An interval join and its inputs. Used from the subtask's own thread."""

    def __init__(self, operator: Operator, sides: Mapping[str, JoinSide], store: JoinStore) -> None:
        """sides: by the vertex that sends them; store: an empty one, closed by `close`."""
        self.operator = operator
        self._sides = sides
        self._senders: dict[JoinSide, str] = {}  # the vertex from which the schema of a side is known
        self._store = store

    @property
    def held_back_ms(self) -> int:
        return self._store.held_back_ms

    def schema(self) -> pa.Schema | None:
        """The schema of the pairs; None while the columns of a side are not known. Raises UserError."""
        with naming(self.operator):
            return self._store.schema()

    def accept(self, source_vertex: str, schema: pa.Schema) -> None:
        """Sets the schema of a vertex's records. Raises UserError when it does not fit what is known, OSError."""
        side = self._sides.get(source_vertex, JoinSide.JOIN_SIDE_UNSPECIFIED)
        if side is JoinSide.JOIN_SIDE_UNSPECIFIED:
            raise UserError(f"{named(self.operator)}: records of '{source_vertex}' are of neither side")
        known = self._store.columns_of(side)
        if known is not None:
            before = self._senders.get(side, f"the restored state of {named(self.operator)}")
            name = f"the {side.name.lower()} side of {named(self.operator)}"
            if EVENT_MICROS not in known.names:  # restored from state of an earlier version
                schema = pa.schema([field for field in schema if field.name != EVENT_MICROS])
            require_same((before, known), (source_vertex, schema), name)
            return
        with naming(self.operator):
            self._store.accept(side, plain(schema))
        self._senders[side] = source_vertex

    def merge(self, source_vertex: str, table: pa.Table) -> Paired:
        """Rows of a vertex that was accepted."""
        side = self._sides[source_vertex]
        known = self._store.columns_of(side)
        assert known is not None, "accept comes first"
        return self._store.merge(side, like(table, known))

    def advance(self, watermark_ms: int) -> None:
        self._store.advance(watermark_ms)

    def snapshot(self, order: SnapshotOrder) -> tuple[FrozenStore, ...]:
        return self._store.snapshot(order)

    def restore(self, states: Sequence[OperatorState], checkpoint_id: int) -> None:
        self._store.restore(states, checkpoint_id)

    def close(self) -> None:
        self._store.close()


def followed(pairs: Iterator[pa.Table]) -> Iterator[tuple[pa.Table | None, bool]]:
    """Each portion with a flag for a following one; for no portions a single None."""
    following = next(pairs, None)
    has_more = True
    while has_more:
        portion, following = following, None if following is None else next(pairs, None)
        has_more = following is not None
        yield portion, has_more
