"""MovedShares: what one subtask takes of records that were in flight at another parallelism. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from lockgate_proto.loops import spread_of
from lockgate_proto.messages import JobGraph, Partitioning, SubtaskId

from lockgate_taskmanager.exchange.elements import Element
from lockgate_taskmanager.state.routing import KeyRouting
from lockgate_taskmanager.task.program import StateUnreadable


@dataclass(frozen=True, slots=True)
class MovedShares:
    """Of one subtask. hashed: the vertices whose records come by key; the leader gives those to all possible owners.

    Watermarks are left out: they hold for one channel, and their senders announce them again.
    """

    subtask: int
    routing: KeyRouting
    hashed: frozenset[str]

    def of(self, source: str, elements: Iterable[Element]) -> Iterator[pa.Table]:
        """The share of elements that a vertex has sent, in order. Raises StateUnreadable."""
        for element in elements:
            if isinstance(element, pa.Table):
                table = self._by_key(element) if source in self.hashed else element
                if table.num_rows:
                    yield table

    def _by_key(self, table: pa.Table) -> pa.Table:
        try:
            return self.routing.share(table, self.subtask)
        except KeyError:
            raise StateUnreadable(
                "records in flight have no hash of their key, so that they cannot be distributed again; start from a "
                "savepoint, which has no channel state"
            ) from None


def shares_of(graph: JobGraph, subtask: SubtaskId, parallelism: Mapping[str, int]) -> MovedShares:
    """graph: normalized. parallelism: of each vertex in this attempt, by its id."""
    here = subtask.vertex_id
    groups = next((vertex.max_parallelism for vertex in graph.vertices if vertex.id == here), 0)
    edges = (edge for edge in graph.edges if edge.target == here and spread_of(edge) is Partitioning.HASH)
    hashed = frozenset(edge.source for edge in edges)
    return MovedShares(subtask.subtask, KeyRouting(parallelism.get(here, 1), groups), hashed)
