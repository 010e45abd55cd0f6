"""The operators of a pipeline, and how they are chained into the vertices of a job graph."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from lockgate_proto.loops import loops
from lockgate_proto.messages import Edge, JobGraph, JoinSide, KeyedProcess, Operator, Partitioning, Vertex

from lockgate.pipeline.errors import PipelineError, call_site
from lockgate.pipeline.on_error import PLAIN, Way

LOOP = "loop"  # the method that makes the head of a loop


@dataclass(frozen=True, slots=True, eq=False)
class Input:
    """An input of an operator.

    partitioning UNSPECIFIED: forward when the widths match; side_output: empty for the result of `node`; join_side: of
    an input of a join; is_feedback: back to the head of a loop, from an operator behind it; is_state: the broadcast
    stream of `with_broadcast`.
    """

    node: Node
    partitioning: Partitioning = Partitioning.PARTITIONING_UNSPECIFIED
    keys: tuple[str, ...] = ()
    side_output: str = ""
    join_side: JoinSide = JoinSide.JOIN_SIDE_UNSPECIFIED
    is_feedback: bool = False
    is_state: bool = False


@dataclass(slots=True, eq=False)
class Node:
    """One operator of the pipeline as the author writes it.

    method: the builder's method that made it; id: unique and the same in every run of the same program; width: its own
    parallelism, 0 means that of its input, or the job's; where: the author's file and line; way: handling of records
    that it fails on.
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
    way: Way = field(default_factory=Way)

    @property
    def readers(self) -> list[Node]:
        """The consumers of its result, not of a side output."""
        return [
            consumer
            for consumer in self.consumers
            if any(via.node is self and not via.side_output for via in consumer.inputs)
        ]

    @property
    def label(self) -> str:
        """The name shown to people: the operator's name, or the method."""
        return self.name or self.method


class Plan:
    """The operators of one job, in the order in which its author adds them: inputs before consumers."""

    def __init__(self, max_parallelism: int) -> None:
        """max_parallelism: key groups, the upper limit of every operator's parallelism."""
        self.max_parallelism = max_parallelism
        self.nodes: list[Node] = []

    def add(
        self, method: str, kind: Any, inputs: tuple[Input, ...] = (), *, is_sink: bool = False, way: Way = PLAIN
    ) -> Node:
        """A new operator behind these inputs. Its id counts the calls of the method."""
        taken = {node.id for node in self.nodes}
        ordinal = 1 + sum(node.method == method for node in self.nodes)
        while f"{method}-{ordinal}" in taken:
            ordinal += 1
        node = Node(method, f"{method}-{ordinal}", kind, inputs, call_site(), is_sink=is_sink, way=way)
        for input_ in inputs:
            input_.node.consumers.append(node)
        self.nodes.append(node)
        return node

    def rename(self, node: Node, operator_id: str) -> None:
        """Gives an operator an id of the author's choice. Raises PipelineError when it is taken."""
        for other in self.nodes:
            if other.id == operator_id and other is not node:
                raise PipelineError(f"uid({operator_id!r}) is taken by {other.method}() at {other.where}")
        node.id = operator_id


def widths(nodes: list[Node], default: int) -> dict[str, int]:
    """Parallelism per operator id: its own, otherwise that of its inputs if they agree and records are not
    repartitioned, otherwise the job's. A broadcast stream beside other inputs does not count, and its sender gets 1.

    Raises PipelineError when that would narrow other streams behind the sender, which the author did not ask for.

    `nodes` in the order of creation, inputs before consumers.
    """
    result: dict[str, int] = {}
    for node in nodes:
        inputs = [input_ for input_ in node.inputs if not input_.is_feedback and not input_.is_state]
        before = {result[input_.node.id] for input_ in inputs}
        plain = all(input_.partitioning is Partitioning.PARTITIONING_UNSPECIFIED for input_ in inputs)
        inherited = before.pop() if plain and len(before) == 1 else default
        result[node.id] = node.width or (_width_of_sender(node, inherited) if _outputs(node, True) else inherited)
    return result


def _outputs(node: Node, is_state: bool) -> bool:
    """Whether the result of an operator is read as a broadcast stream, or as another one."""
    vias = (via for consumer in node.consumers for via in consumer.inputs if via.node is node and not via.side_output)
    return any(via.is_state is is_state for via in vias)


def _width_of_sender(node: Node, inherited: int) -> int:
    if inherited > 1 and _outputs(node, False):
        raise PipelineError(
            f"{node.method}() here gives its records to with_broadcast(), which takes one subtask, and to other"
            f" operators, which would lose their {inherited}; put an operator, such as select('*'), in front of"
            " with_broadcast(), or give this one parallelism(1)",
            node.where,
        )
    return 1


def check_ends(nodes: list[Node]) -> None:
    """Raises PipelineError when records would go nowhere."""
    if not nodes:
        raise PipelineError(
            "the pipeline is empty; begin with read_text(), read_csv(), read_json(), read_parquet(), read_kafka(), "
            "read_socket(), read_from() or generate()"
        )
    for node in nodes:
        if node.method == LOOP and not any(input_.is_feedback for input_ in node.inputs):
            raise PipelineError(
                "the loop that begins here is open; close_with() says which stream goes back to it", node.where
            )
        if not node.is_sink and not node.readers:
            raise PipelineError(
                f"the output of {node.method}() here is not used; end it with write_sql(), write_parquet(), "
                "write_csv(), write_json(), write_delta(), write_kafka(), write_to(), foreach_batch() or print()",
                node.where,
            )
        name = node.way.dead_letters
        if name and not any(
            via.node is node and via.side_output for consumer in node.consumers for via in consumer.inputs
        ):
            raise PipelineError(
                f"records that fail in {node.method}() here go to the dead letters {name!r}, which are not used; call "
                f"job.dead_letters({name!r}) behind the last operator that names them, and write them",
                node.where,
            )


def chains(nodes: list[Node], width: dict[str, int]) -> list[list[Node]]:
    """Chains of operators that run together: one input, no repartitioning in between, same width, no other consumer."""
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
    _check_senders(nodes, width)
    chained = chains(nodes, width)
    vertex_of = {node.id: chain[0].id for chain in chained for node in chain}
    vertices = tuple(
        Vertex(
            id=chain[0].id,
            name=" -> ".join(node.label for node in chain),
            parallelism=width[chain[0].id],
            max_parallelism=max_parallelism,
            operators=tuple(_operator(node) for node in chain),
        )
        for chain in chained
    )
    edges = (
        _edge(vertex_of[input_.node.id], chain[0], input_, width) for chain in chained for input_ in chain[0].inputs
    )
    found = tuple(dict.fromkeys(edges))  # operators of one vertex may share their dead letters
    return tuple(_timers_allowed(vertices, found)), found


def _timers_allowed(vertices: tuple[Vertex, ...], edges: tuple[Edge, ...]) -> Iterator[Vertex]:
    """Only inside a loop is a process function bound to set no timers: elsewhere, its graph would change."""
    inside = frozenset[str]().union(*loops(JobGraph(vertices=vertices, edges=edges)))
    for vertex in vertices:
        if vertex.id in inside:
            yield vertex
        else:
            yield replace(
                vertex,
                operators=tuple(
                    replace(operator, kind=replace(operator.kind, without_timers=False))
                    if isinstance(operator.kind, KeyedProcess)
                    else operator
                    for operator in vertex.operators
                ),
            )


def _check_senders(nodes: list[Node], width: dict[str, int]) -> None:
    """Raises PipelineError for a broadcast stream of several subtasks."""
    for input_ in (input_ for node in nodes for input_ in node.inputs if input_.is_state):
        if width[input_.node.id] > 1:
            raise PipelineError(
                f"{input_.node.method}() here has {width[input_.node.id]} subtasks, and with_broadcast() takes a stream"
                " of one: the records of several would come in another order in each subtask behind it; give it"
                " parallelism(1)",
                input_.node.where,
            )


def _operator(node: Node) -> Operator:
    return Operator(node.id, node.label, node.kind, node.way.on_error, node.way.dead_letters)


def _edge(source_vertex: str, target: Node, via: Input, width: dict[str, int]) -> Edge:
    partitioning = via.partitioning
    if partitioning is Partitioning.PARTITIONING_UNSPECIFIED:
        same = width[via.node.id] == width[target.id]
        partitioning = Partitioning.FORWARD if same else Partitioning.REBALANCE
    feedback = Partitioning.PARTITIONING_UNSPECIFIED
    if via.is_feedback:
        partitioning, feedback = Partitioning.FEEDBACK, partitioning
    return Edge(source_vertex, target.id, partitioning, via.keys, via.side_output, via.join_side, feedback)
