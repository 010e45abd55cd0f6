"""Whether only the subtasks of a lost task manager have to start again in a job that exchanges records.

The others run on. They keep what they have sent since the newest checkpoint, for those that start again; and drop what
these make a second time. So each source's vertex has to put out the same for the same records, and nothing behind an
exchange may be sent on over another one: its order, and thus its content, would be different the second time.
"""

from __future__ import annotations

from lockgate_proto.components import component_of
from lockgate_proto.loops import spread_of
from lockgate_proto.messages import (
    CheckpointMode,
    Edge,
    FileSource,
    ForeachBatchSink,
    GeneratorSource,
    JobGraph,
    KafkaSource,
    ObjectState,
    Operator,
    Partitioning,
    PythonSink,
    PythonSource,
    TaskManagerFailover,
    Vertex,
)
from lockgate_proto.operators import is_source, object_state_of

_SHARED = frozenset({ObjectState.OBJECT_STATE_UNION, ObjectState.OBJECT_STATE_BROADCAST})
_EXACT = (CheckpointMode.CHECKPOINT_MODE_UNSPECIFIED, CheckpointMode.EXACTLY_ONCE)
_CONTINUED = (FileSource, GeneratorSource, KafkaSource, PythonSource)
"""Sources that read again up to any position in a split where they have stopped before."""


def whole_because(graph: JobGraph) -> str:
    """Why everything restarts with what is lost, as a clause; "" where the others run on."""
    if graph.task_manager_failover is not TaskManagerFailover.TASK_MANAGER_FAILOVER_PART:
        return "its task_manager_failover is not PART"
    mode = graph.checkpoints.mode if graph.checkpoints is not None else CheckpointMode.CHECKPOINT_MODE_UNSPECIFIED
    if mode not in _EXACT:
        return f"its checkpoints are {mode.name}"
    if why := company(graph):
        return why
    vertices = {vertex.id: vertex for vertex in graph.vertices}
    return next((why for edge in graph.edges if (why := _crossing(edge, vertices[edge.source]))), "")


def is_made_again(graph: JobGraph, vertex_id: str) -> bool:
    """Whether a subtask of a vertex that is lost has to make again what others, which run on, have had of it."""
    component = component_of(graph, vertex_id)
    crossing = any(edge.source == vertex_id and spread_of(edge) is Partitioning.HASH for edge in component.edges)
    return crossing and not whole_because(component)


def _crossing(edge: Edge, source: Vertex) -> str:
    """Why what crosses an edge cannot be sent again, or dropped."""
    spread = spread_of(edge)
    if spread is Partitioning.FORWARD:
        return ""
    if spread is not Partitioning.HASH:
        return f"the records from '{edge.source}' to '{edge.target}' are not distributed by key"
    first = source.operators[0] if source.operators else None
    if first is None or not is_source(first):
        return f"what '{edge.source}' distributes has been distributed before"
    if not isinstance(first.kind, _CONTINUED):
        return f"the source '{first.id}' cannot read up to a given position"
    stateful = (item for item in source.operators if object_state_of(item) is not ObjectState.OBJECT_STATE_UNSPECIFIED)
    return next((f"operator '{item.id}' in front of an exchange has state" for item in stateful), "")


def company(graph: JobGraph) -> str:
    """Why its slots depend on each other whatever records go between them, as a clause; "" for no reason."""
    if graph.checkpoints is not None and graph.checkpoints.mode is CheckpointMode.AT_MOST_ONCE:
        return "its checkpoints are AT_MOST_ONCE"
    return next((why for vertex in graph.vertices for operator in vertex.operators if (why := _common(operator))), "")


def _common(operator: Operator) -> str:
    """What the subtasks of an operator have in common beside records, as a clause; "" for nothing."""
    if isinstance(operator.kind, ForeachBatchSink | PythonSink):
        return f"the code of sink '{operator.id}' may fence off all calls with a lower number of the attempt"
    if object_state_of(operator) in _SHARED:
        return f"the subtasks of '{operator.id}' share the state of its object"
    return ""
