"""Validates side outputs: late records, and records on which operators fail."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lockgate_proto.messages import (
    Edge,
    JobGraph,
    ObjectState,
    OnError,
    Operator,
    RecordForm,
    RecordFunction,
    Vertex,
)
from lockgate_proto.operators import is_sink, is_source, kind_of, object_state_of

from lockgate_coordinator.graph.validate_event_time import window_of

LATE = "late"
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")


def side_output_problems(graph: JobGraph) -> Iterator[str]:
    """Every problem of side outputs and the edges from them, as sentences. graph: normalized."""
    for vertex in graph.vertices:
        for operator in vertex.operators:
            yield from _operator_problems(graph, vertex, operator)
    vertices = {vertex.id: vertex for vertex in graph.vertices}
    for edge in graph.edges:
        if edge.side_output and edge.source in vertices:
            yield from _edge_problems(edge, vertices[edge.source])


def _operator_problems(graph: JobGraph, vertex: Vertex, operator: Operator) -> Iterator[str]:
    name, spares = f"Operator '{operator.id}'", operator.on_error in (OnError.SKIP, OnError.DEAD_LETTER)
    if operator.dead_letters and operator.on_error is not OnError.DEAD_LETTER:
        yield f"{name} names dead letters '{operator.dead_letters}', but its on_error is not DEAD_LETTER: choose one."
    if spares and (kind := kind_of(operator)) is not None and not kind.can_skip:
        yield f"{name} cannot leave out single records: {_instead(operator)}."
    if spares and _is_called_again(operator):
        yield (
            f"{name} has an object with state, and is vectorized: it cannot leave out single records, because it would "
            "be called with the same records again."
        )
    if operator.on_error is not OnError.DEAD_LETTER:
        return
    if operator.dead_letters == LATE or not _NAME.fullmatch(operator.dead_letters):
        yield (
            f"{name} has on_error DEAD_LETTER and calls its dead letters '{operator.dead_letters}': 1 to 64 of A-Z a-z "
            f"0-9 . _ - are needed, and not '{LATE}'."
        )
    elif not any(edge.source == vertex.id and edge.side_output == operator.dead_letters for edge in graph.edges):
        yield (
            f"{name} sends records to the dead letters '{operator.dead_letters}', which nothing reads: add an edge "
            f"with that side output from vertex '{vertex.id}' to a sink."
        )


def _is_called_again(operator: Operator) -> bool:
    kind, state = operator.kind, object_state_of(operator)
    is_vectorized = isinstance(kind, RecordFunction) and kind.form in (RecordForm.ARROW, RecordForm.PANDAS)
    return is_vectorized and state is not ObjectState.OBJECT_STATE_UNSPECIFIED


def _instead(operator: Operator) -> str:
    """What to do where on_error is not supported."""
    if is_sink(operator):
        return "a sink shows the whole output of a checkpoint; filter such records out with a transform before it"
    if is_source(operator):
        return "for files, the source's option mode decides what happens to invalid lines"
    return "compute its keys and inputs with a transform before it, and give that one on_error"


def _edge_problems(edge: Edge, source: Vertex) -> Iterator[str]:
    name = f"The edge {edge.source} -> {edge.target}"
    if edge.side_output == LATE:
        window = window_of(source) if source.operators else None
        if source.operators and window is None:
            yield f"{name} requests late records, but vertex '{source.id}' does not begin with windows."
        elif window is not None and window.processing_time:
            yield f"{name} requests late records, but no record is late for the windows of processing time before it."
        return
    if all(operator.dead_letters != edge.side_output for operator in source.operators):
        yield (
            f"{name} requests the side output '{edge.side_output}': there is only '{LATE}', and the dead letters that "
            f"an operator of '{source.id}' names."
        )
