"""The operators that a pipeline is made of, and how they are chained into the vertices of a job graph."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from lockgate_proto.messages import Edge, JoinSide, Operator, Partitioning, Vertex

from lockgate.pipeline.errors import PipelineError

LOOP = "loop"  # the method that makes the head of one


@dataclass(frozen=True, slots=True, eq=False)
class Input:
    """One way records come into an operator.

    partitioning UNSPECIFIED: forward where the widths match; side_output: empty for the result of `node`;
    join_side: of an input of a join; is_feedback: back to the head of a loop, from an operator behind it.
    """

    node: Node
    partitioning: Partitioning = Partitioning.PARTITIONING_UNSPECIFIED
    keys: tuple[str, ...] = ()
    side_output: str = ""
    join_side: JoinSide = JoinSide.JOIN_SIDE_UNSPECIFIED
    is_feedback: bool = False


@dataclass(slots=True, eq=False)
class Node:
    """One operator of the pipeline as the author writes it.

    method: the builder's method that made it; id: unique and the same in every run of the same program;
    width: its own parallelism, 0 means that of its input, or the job's; where: the author's file and line.
    """

    method: str
    id: str
    kind: Any
    inputs: tuple[Input, ...]
    where: str
    name: str = ""
    width: int = 0
    is_sink: bool = False
    consumers: list[Node] = field(default_factory=list)

    @property
    def readers(self) -> list[Node]:
        """The consumers of its result, not of a side output."""
        return [one for one in self.consumers if any(via.node is self and not via.side_output for via in one.inputs)]

    @property
    def label(self) -> str:
        """What people read: the name, or the method."""
        return self.name or self.method


def widths(nodes: list[Node], default: int) -> dict[str, int]:
    """Parallelism per operator id: its own, else that of its inputs where they agree and records are not
    partitioned anew, else the job's. `nodes` in the order of creation, inputs before consumers."""
    result: dict[str, int] = {}
    for node in nodes:
        inputs = [one for one in node.inputs if not one.is_feedback]
        before = {result[one.node.id] for one in inputs}
        plain = all(one.partitioning is Partitioning.PARTITIONING_UNSPECIFIED for one in inputs)
        inherited = before.pop() if plain and len(before) == 1 else default
        result[node.id] = node.width or inherited
    return result


def check_ends(nodes: list[Node]) -> None:
    """Raises PipelineError where records would go nowhere."""
    if not nodes:
        raise PipelineError(
            "the pipeline is empty; begin with read_text(), read_csv(), read_json(), read_parquet(), read_kafka(), "
            "read_socket(), read_from() or generate()"
        )
    for node in nodes:
        if node.method == LOOP and not any(one.is_feedback for one in node.inputs):
            raise PipelineError(
                "the loop that begins here is open; close_with() says which stream goes back to it", node.where
            )
        if not node.is_sink and not node.readers:
            raise PipelineError(
                f"what {node.method}() makes here goes nowhere; end it with write_sql(), write_parquet(), "
                "write_csv(), write_json(), write_delta(), write_kafka(), write_to(), foreach_batch() or print()",
                node.where,
            )


def chains(nodes: list[Node], width: dict[str, int]) -> list[list[Node]]:
    """Operators that run together: one input, nothing repartitioned between, same width, no other consumer."""
    result: list[list[Node]] = []
    chain_of: dict[str, list[Node]] = {}
    for node in nodes:
        chain = None
        if len(node.inputs) == 1:
            before = node.inputs[0]
            joined = (
                before.partitioning is Partitioning.PARTITIONING_UNSPECIFIED
                and not before.side_output
                and len(before.node.readers) == 1
                and width[before.node.id] == width[node.id]
            )
            chain = chain_of[before.node.id] if joined else None
        if chain is None:
            chain = []
            result.append(chain)
        chain.append(node)
        chain_of[node.id] = chain
    return result


def vertices_and_edges(
    nodes: list[Node], default_width: int, max_parallelism: int
) -> tuple[tuple[Vertex, ...], tuple[Edge, ...]]:
    """The graph. A vertex is named after its first operator's id, so that it too is stable across runs."""
    width = widths(nodes, default_width)
    chained = chains(nodes, width)
    vertex_of = {node.id: chain[0].id for chain in chained for node in chain}
    vertices = tuple(
        Vertex(
            id=chain[0].id,
            name=" -> ".join(node.label for node in chain),
            parallelism=width[chain[0].id],
            max_parallelism=max_parallelism,
            operators=tuple(Operator(node.id, node.label, node.kind) for node in chain),
        )
        for chain in chained
    )
    edges = tuple(_edge(vertex_of[one.node.id], chain[0], one, width) for chain in chained for one in chain[0].inputs)
    return vertices, edges


def _edge(source_vertex: str, target: Node, via: Input, width: dict[str, int]) -> Edge:
    partitioning = via.partitioning
    if partitioning is Partitioning.PARTITIONING_UNSPECIFIED:
        same = width[via.node.id] == width[target.id]
        partitioning = Partitioning.FORWARD if same else Partitioning.REBALANCE
    feedback = Partitioning.PARTITIONING_UNSPECIFIED
    if via.is_feedback:
        partitioning, feedback = Partitioning.FEEDBACK, partitioning
    return Edge(source_vertex, target.id, partitioning, via.keys, via.side_output, via.join_side, feedback)
