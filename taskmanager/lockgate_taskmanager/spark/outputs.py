"""Sends a chain's result to its outgoing edges: one set of tables for each, split by target subtask."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from lockgate_proto.loops import spread_of
from lockgate_proto.messages import (
    CountWindow,
    Deduplicate,
    Edge,
    IntervalJoin,
    JobGraph,
    KeyedAggregate,
    KeyedProcess,
    Partitioning,
    Vertex,
    WindowProcess,
)

from lockgate_taskmanager.spark.chain import hashed, held_by_windows, joinable, with_key_groups
from lockgate_taskmanager.spark.leaf import DataFrame, Form, LeafSpec
from lockgate_taskmanager.spark.partials import PartialAggregate, RecordParts
from lockgate_taskmanager.spark.plan import Plan
from lockgate_taskmanager.spark.reproducible import varying_behind
from lockgate_taskmanager.spark.workbench import Workbench
from lockgate_taskmanager.state.columns.pieces import cut
from lockgate_taskmanager.state.layout import ROWS
from lockgate_taskmanager.state.routing import KeyRouting
from lockgate_taskmanager.task.program import DataError, Emission

DEFAULT_MAX_PARALLELISM = 128
LATE = "late"  # the side output of windows
Transform = Callable[[DataFrame], DataFrame]


@dataclass(frozen=True, slots=True)
class OutEdge:
    """An outgoing edge. index: in `JobGraph.edges`; parallelism: of the target.

    prepare: Spark's preparation of the rows for the keyed operator at the other end, which includes their hash; None
    for an operator that takes them unchanged. is_partial: it computes partial aggregates.
    """

    index: int
    partitioning: Partitioning
    keys: tuple[str, ...]
    parallelism: int
    max_parallelism: int
    prepare: Transform | None
    is_partial: bool
    where: str

    @property
    def group_column(self) -> str:
        """Name of the key group column that is computed for this edge."""
        return f"__kg_{self.index}"


def out_edges(
    graph: JobGraph, vertex_id: str, parallelism: Mapping[str, int], side_output: str = ""
) -> tuple[OutEdge, ...]:
    """The edges that leave a vertex with its result, or with a side output."""
    vertices = {vertex.id: vertex for vertex in graph.vertices}
    found = []
    for index, edge in enumerate(graph.edges):
        if edge.source != vertex_id or edge.side_output != side_output:
            continue
        target = vertices[edge.target]
        where = f"edge {edge.source} -> {edge.target}"
        prepare, is_partial = _preparation(edge, target, where)
        found.append(
            OutEdge(
                index,
                spread_of(edge),
                edge.keys,
                parallelism.get(target.id) or target.parallelism or 1,
                target.max_parallelism or DEFAULT_MAX_PARALLELISM,
                prepare,
                is_partial,
                where,
            )
        )
    return tuple(found)


def _preparation(edge: Edge, target: Vertex, where: str) -> tuple[Transform | None, bool]:
    first = target.operators[0] if target.operators else None
    if first is None or edge.partitioning != Partitioning.HASH:
        return None, False
    match first.kind:
        case KeyedAggregate():
            return PartialAggregate(first, where), True
        case IntervalJoin():
            return joinable(first, edge.join_side, where), False
        case CountWindow(aggregates=(_, *_)):
            return RecordParts(first, where), True
        case CountWindow(keys=keys):
            return hashed(keys, where), False
        case WindowProcess():
            return held_by_windows(first, where), False
        case KeyedProcess(keys=keys) | Deduplicate(keys=keys):
            return hashed(keys, where), False
        case _:
            return None, False


class Outputs:
    """Splits a chain's result over its edges.

    The preparation for keyed operators (`OutEdge.prepare`) and key groups are computed by Spark: inside the chain's
    last job where possible (`fused`), otherwise in another job over the result.
    """

    def __init__(self, edges: Sequence[OutEdge], subtask: int, bench: Workbench, side_output: str = "") -> None:
        self._edges = tuple(edges)
        self._groups_plan = f"key-groups{'-' if side_output else ''}{side_output}"
        self._subtask = subtask
        self._bench = bench
        self._turn = subtask  # for round robin
        self._prepared: dict[int, Plan] = {}
        self._groups: Plan | None = None
        self._prologue: dict[int, pa.Schema] = {}
        self._only = self._edges[0].prepare if len(self._edges) == 1 else None  # done in the chain's own last job

    def fused(self) -> Transform | None:
        """The part of the outputs that the chain's last Spark job computes; None for nothing."""
        return self._only or self._group_transform()

    def compile(self, schema: pa.Schema, is_fused: bool) -> None:
        """Makes the plans of the edges. schema: of the chain's result (after `fused`). Raises UserError."""
        if self._only is not None and is_fused:
            self._prologue = {self._edges[0].index: schema}
            return
        result = schema
        if not is_fused and (transform := self._group_transform()) is not None:
            spec = LeafSpec(Form.TABLE, table=schema)
            self._groups = self._bench.plan(self._groups_plan, spec, transform, "key groups")
        names = {edge.group_column for edge in self._edges}
        result = pa.schema([field for field in schema if field.name not in names])
        for edge in self._edges:
            self._prologue[edge.index] = result
            if edge.prepare is not None:
                spec = LeafSpec(Form.TABLE, table=result)
                plan = self._bench.plan(f"prepared-{edge.index}", spec, edge.prepare, edge.where)
                self._prepared[edge.index] = plan
                self._prologue[edge.index] = plan.schema

    def prologue(self) -> tuple[Emission, ...]:
        """An empty table with the schema for each edge and target."""
        return tuple(
            Emission(edge.index, target, self._prologue[edge.index].empty_table())
            for edge in self._edges
            for target in self._targets(edge)
        )

    def warm_up(self) -> None:
        """Runs the plans of the edges over no records."""
        for plan in self._plans():
            plan.warm_up()

    def irreproducible(self) -> str:
        """Why the same records may be prepared in another way the next time, as a clause; "" for no known reason."""
        judged = (plan.irreproducible(partial(varying_behind, plan.frame)) for plan in self._plans())
        return next(filter(None, judged), "")

    def emit(self, table: pa.Table) -> tuple[tuple[Emission, ...], int]:
        """Splits a result; also returns how many rows the chain emitted (before partial aggregation)."""
        if self._only is not None and not self._prepared:
            edge = self._edges[0]
            return self._routed(edge, table), _total(table) if edge.is_partial else table.num_rows
        rows = table.num_rows
        if not rows:
            return (), 0
        if self._groups is not None:
            table = self._groups.run(table)
        names = [edge.group_column for edge in self._edges if edge.group_column in table.column_names]
        plain = table.drop_columns(names) if names else table
        emissions: list[Emission] = []
        for edge in self._edges:
            if edge.prepare is not None:
                emissions += self._routed(edge, self._partial(edge, plain))
            elif edge.partitioning == Partitioning.HASH:
                emissions += self._routed(edge, plain, table.column(edge.group_column))
            elif edge.partitioning == Partitioning.REBALANCE:
                emissions.append(Emission(edge.index, self._turn % edge.parallelism, plain))
            else:
                emissions += [Emission(edge.index, target, plain) for target in self._targets(edge)]
        self._turn += 1
        return tuple(emissions), rows

    def _plans(self) -> tuple[Plan, ...]:
        return (*([self._groups] if self._groups else ()), *self._prepared.values())

    def _partial(self, edge: OutEdge, table: pa.Table) -> pa.Table:
        """A result as prepared for the keyed operator at the other end."""
        try:
            return self._prepared[edge.index].run(table)
        except DataError as error:
            raise (edge.prepare.blamed(error) if isinstance(edge.prepare, PartialAggregate) else error) from error

    def _group_transform(self) -> Transform | None:
        hashed = [e for e in self._edges if e.partitioning == Partitioning.HASH and e.prepare is None]
        if not hashed:
            return None
        return with_key_groups([(e.group_column, e.keys, e.max_parallelism, e.where) for e in hashed])

    def _targets(self, edge: OutEdge) -> Sequence[int]:
        if edge.partitioning == Partitioning.FORWARD:
            return (self._subtask,)
        return range(edge.parallelism)

    def _routed(self, edge: OutEdge, table: pa.Table, groups: Any = None) -> tuple[Emission, ...]:
        """Splits by target subtask, see KeyRouting. groups: None: by hash."""
        found: tuple[Emission, ...] = ()
        at = 0
        for part in cut(table) if table.num_rows else ():
            mine = None if groups is None else groups.slice(at, part.num_rows)
            found += self._routed_part(edge, part.combine_chunks(), mine)
            at += part.num_rows
        return found

    def _routed_part(self, edge: OutEdge, table: pa.Table, groups: Any) -> tuple[Emission, ...]:
        if edge.parallelism == 1:
            return (Emission(edge.index, 0, table),)
        numbers = None if groups is None else groups.to_numpy().astype(np.int64)
        targets = KeyRouting(edge.parallelism, edge.max_parallelism).owners(table, numbers)
        order = np.argsort(targets, kind="stable")
        counts = np.bincount(targets, minlength=edge.parallelism)
        ordered = table.take(pa.array(order))
        ends = np.cumsum(counts)
        return tuple(
            Emission(edge.index, target, ordered.slice(int(ends[target] - count), int(count)).combine_chunks())
            for target, count in enumerate(counts)
            if count
        )


def _total(partial: pa.Table) -> int:
    rows = partial.column(ROWS)
    return sum(int(chunk.to_numpy().sum()) for chunk in rows.chunks)
