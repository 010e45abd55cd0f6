"""Validates event time and windows."""

from __future__ import annotations

import math
from collections.abc import Iterator

from lockgate_proto.broadcasts import record_edges
from lockgate_proto.event_times import ANY_TIME_AHEAD
from lockgate_proto.messages import (
    CumulatingWindow,
    EarlyFiringWindow,
    EventTime,
    FileSource,
    IntervalJoin,
    JobGraph,
    KeyedAggregate,
    Operator,
    Partitioning,
    SessionWindow,
    SlidingWindow,
    TriggeredWindow,
    Vertex,
    Window,
    WindowProcess,
)
from lockgate_proto.operators import is_source, kind_of
from lockgate_proto.reserved import is_reserved

from lockgate_coordinator.graph.bounds import MAX_DURATION_MS

MAX_PANES = 10_000
MAX_EARLY = 100  # windows of a record, where each fires early by its own records and so has a row of its own
MAX_STEPS = 1_500
"""Of a cumulating window: a day in minutes fits. Each step adds up all panes before it, and has a row for each key."""


def event_time_problems(graph: JobGraph) -> Iterator[str]:
    """Every problem of the positions of event time operators, as sentences. graph: normalized."""
    for vertex in graph.vertices:
        yield from _place_problems(graph, vertex)
        window = window_of(vertex) if vertex.operators else None
        if window is not None and not window.processing_time:
            kind = kind_of(vertex.operators[0])
            assert kind is not None
            yield from _upstream_problems(graph, vertex, kind.called, "has windows", "none would ever close")
        elif vertex.operators and isinstance(vertex.operators[0].kind, IntervalJoin):
            yield from _upstream_problems(
                graph, vertex, "Join", "goes by event time", "every record would be kept forever"
            )


def declaration_problems(kind: EventTime) -> Iterator[str]:
    """The problems of one event time declaration; the caller puts the operator's name in front."""
    if not kind.expression.strip():
        yield "declares event time without an expression, for example 'ts'."
    if is_reserved(kind.column):
        yield f"puts event time into the column '{kind.column}', whose name is reserved: choose another."
    for name, value in (("out_of_orderness_ms", kind.out_of_orderness_ms), ("idle_after_ms", kind.idle_after_ms)):
        if not 0 <= value <= MAX_DURATION_MS:
            yield f"has {name} {value}: it must be between 0 and {MAX_DURATION_MS}."
    if not ANY_TIME_AHEAD <= kind.max_ahead_ms <= MAX_DURATION_MS:
        yield (
            f"has max_ahead_ms {kind.max_ahead_ms}: it must be between 1 and {MAX_DURATION_MS}, 0 for one day, or "
            f"{ANY_TIME_AHEAD} for no bound."
        )


def window_problems(aggregate: KeyedAggregate) -> Iterator[str]:
    """The problems of an aggregate's window; the caller puts the operator's name in front."""
    window = aggregate.window
    if window is None:
        return
    yield from _shape_problems(window)
    yield from _time_problems(window)
    if window.processing_time and window.allowed_lateness_ms:
        yield (
            f"has windows of processing time with allowed_lateness_ms {window.allowed_lateness_ms}: no record is "
            "late there, so it must be 0."
        )
    if not 0 <= window.allowed_lateness_ms <= MAX_DURATION_MS:
        yield f"has allowed_lateness_ms {window.allowed_lateness_ms}: it must be between 0 and {MAX_DURATION_MS}."
    taken: tuple[str, ...] = ("window_start", "window_end")
    if isinstance(window.kind, TriggeredWindow | EarlyFiringWindow):
        yield from _trigger_problems(window, window.kind)
        taken = (*taken, "is_early")
    for name in (*aggregate.keys, *(column.output for column in aggregate.aggregates)):
        if name.casefold() in taken:
            yield f"has a key or result named '{name}', which is a column of every window: choose another name."


def contents_problems(process: WindowProcess) -> Iterator[str]:
    """The problems of the windows of a function; the caller puts the operator's name in front."""
    window = process.window
    if window is None:
        yield "calls a function for windows but has none: choose tumbling, sliding or cumulating."
        return
    if isinstance(window.kind, SessionWindow):
        yield (
            "calls a function for session windows, which is not possible, because a record may join two of them, and "
            "one may last: aggregate sessions, or use a process function with a timer."
        )
        return
    if isinstance(window.kind, TriggeredWindow | EarlyFiringWindow):
        yield (
            "calls a function for windows with a trigger, which is not possible, because a function is called once for "
            "each window: leave the trigger out, or aggregate."
        )
        return
    yield from _shape_problems(window)
    yield from _time_problems(window)
    if window.allowed_lateness_ms:
        yield (
            f"calls a function once for each window and has allowed_lateness_ms {window.allowed_lateness_ms}: it must "
            "be 0; wait longer for late records with out_of_orderness_ms."
        )


def _time_problems(window: Window) -> Iterator[str]:
    if window.processing_time and window.event_time.strip():
        yield f"has windows of processing time with the event time '{window.event_time}': choose one of them."
    if not window.processing_time and not window.event_time.strip():
        yield "has a window but no event time: name the column, or give an SQL expression."


def _shape_problems(window: Window) -> Iterator[str]:
    kind = window.kind
    if kind is None:
        yield "has a window without a kind: choose tumbling, sliding, cumulating or session."
        return
    if isinstance(kind, SessionWindow):
        if not 1 <= kind.gap_ms <= MAX_DURATION_MS:
            yield f"has session windows with a gap of {kind.gap_ms} ms: it must be between 1 and {MAX_DURATION_MS}."
        return
    if isinstance(kind, EarlyFiringWindow):
        yield from _number_problems(kind)
        sizes = (kind.size_ms, kind.slide_ms, kind.offset_ms)
        kind = CumulatingWindow(*sizes) if kind.is_cumulating else SlidingWindow(*sizes)
    if isinstance(kind, CumulatingWindow):
        yield from _cumulating_problems(kind)
        return
    slide = kind.slide_ms if isinstance(kind, SlidingWindow) else kind.size_ms
    for name, value in (("size", kind.size_ms), ("slide", slide)):
        if not 1 <= value <= MAX_DURATION_MS:
            yield f"has a window with a {name} of {value} ms: it must be between 1 and {MAX_DURATION_MS}."
            return
    if slide > kind.size_ms:
        yield (
            f"has a window of {kind.size_ms} ms every {slide} ms, which leaves gaps between the windows: "
            "make the slide at most the size."
        )
    elif kind.size_ms // math.gcd(kind.size_ms, slide) > MAX_PANES:
        yield (
            f"has a window of {kind.size_ms} ms every {slide} ms, which would consist of more than {MAX_PANES} pieces: "
            "make the slide longer, preferably a divisor of the size."
        )
    if not 0 <= kind.offset_ms < (slide if isinstance(kind, SlidingWindow) else kind.size_ms):
        yield f"has a window with an offset of {kind.offset_ms} ms: it must be at least 0 and less than the period."


def _number_problems(kind: EarlyFiringWindow) -> Iterator[str]:
    """Each of a record's windows has a row of its own."""
    number = -(-kind.size_ms // max(1, kind.slide_ms))
    if number > MAX_EARLY:
        yield (
            f"has a trigger on windows of {kind.size_ms} ms that begin every {kind.slide_ms} ms: each record is in "
            f"{number} of them, and the limit is {MAX_EARLY}; make the slide longer, or leave the trigger out."
        )


def _trigger_problems(window: Window, kind: TriggeredWindow | EarlyFiringWindow) -> Iterator[str]:
    """The problems of the trigger of an aggregate's window; the caller puts the operator's name in front."""
    if kind.every_count < 0:
        yield f"has a trigger with every_count {kind.every_count}: it must be at least 1, or 0 for none."
    if not 0 <= kind.every_ms <= MAX_DURATION_MS:
        yield f"has a trigger with every_ms {kind.every_ms}: it must be between 1 and {MAX_DURATION_MS}, or 0 for none."
    if not kind.every_count and not kind.every_ms:
        yield "has a trigger that never fires: set every_count, every_ms, or both."
    if window.processing_time and isinstance(kind, TriggeredWindow):
        yield "has a TriggeredWindow by processing time: only an EarlyFiringWindow may be."
    if kind.purge and window.allowed_lateness_ms:
        yield (
            f"has a trigger that purges and allowed_lateness_ms {window.allowed_lateness_ms}: a late record would need "
            "the result of all records, so it must be 0."
        )


def _cumulating_problems(kind: CumulatingWindow) -> Iterator[str]:
    for name, value in (("size", kind.size_ms), ("step", kind.step_ms)):
        if not 1 <= value <= MAX_DURATION_MS:
            yield f"has cumulating windows with a {name} of {value} ms: it must be between 1 and {MAX_DURATION_MS}."
            return
    if kind.size_ms % kind.step_ms:
        yield (
            f"has cumulating windows of {kind.size_ms} ms in steps of {kind.step_ms} ms: the size must be a multiple "
            "of the step."
        )
    elif kind.size_ms // kind.step_ms > MAX_STEPS:
        yield (
            f"has cumulating windows of {kind.size_ms} ms in steps of {kind.step_ms} ms, which are "
            f"{kind.size_ms // kind.step_ms} of them: make the step longer, so that there are at most {MAX_STEPS}."
        )
    if not 0 <= kind.offset_ms < kind.size_ms:
        yield (
            f"has cumulating windows with an offset of {kind.offset_ms} ms: it must be at least 0 and less than the "
            "size."
        )


def _place_problems(graph: JobGraph, vertex: Vertex) -> Iterator[str]:
    declared = [operator for operator in vertex.operators if isinstance(operator.kind, EventTime)]
    if not declared:
        return
    first = vertex.operators[0]
    if not is_source(first):
        yield (
            f"Operator '{declared[0].id}' declares event time in vertex '{vertex.id}', which does not begin with a "
            f"source: {_why_apart(graph, vertex)}."
        )
    if len(declared) > 1:
        yield f"Vertex '{vertex.id}' declares event time {len(declared)} times: it may do so only once."
    kind = declared[0].kind
    if isinstance(kind, EventTime) and _is_continuous(first) and not kind.idle_after_ms:
        yield (
            f"Operator '{declared[0].id}' declares event time of files that are read continuously, without "
            "idle_after_ms: a file that no longer grows would hold event time back forever; set the time after which "
            "it is ignored."
        )


def _why_apart(graph: JobGraph, vertex: Vertex) -> str:
    """Why an operator does not run together with the source, and where to declare event time instead."""
    inputs = [edge for edge in graph.edges if edge.target == vertex.id]
    if len({edge.source for edge in inputs}) > 1:
        return "it has several input streams; declare event time in each of them, right behind its source"
    outputs = [edge for edge in graph.edges if edge.source == inputs[0].source] if inputs else []
    if len(outputs) > 1 and inputs[0].partitioning is Partitioning.FORWARD:
        return (
            f"it is one of {len(outputs)} branches behind vertex '{inputs[0].source}'; declare event time once, right "
            "behind the source and before the branches, which then all have it"
        )
    return "declare it right after the source, before records are repartitioned"


def _is_continuous(operator: Operator) -> bool:
    return isinstance(operator.kind, FileSource) and operator.kind.continuous


def _upstream_problems(graph: JobGraph, behind: Vertex, what: str, why: str, outcome: str) -> Iterator[str]:
    """Sources without event time, which would hold it back forever; those of broadcast state do not."""
    before = {behind.id}
    edges = record_edges(graph)
    while more := {edge.source for edge in edges if edge.target in before} - before:
        before |= more
    for vertex in graph.vertices:
        if vertex.id not in before or not vertex.operators:
            continue
        window = window_of(vertex)
        if window is not None and window.processing_time:
            yield (
                f"{what} '{behind.operators[0].id}' goes by event time, but is behind '{vertex.operators[0].id}', "
                "whose windows of processing time have results without an event time: use processing time here, too."
            )
        if not is_source(vertex.operators[0]):
            continue
        if not any(isinstance(operator.kind, EventTime) for operator in vertex.operators):
            yield (
                f"{what} '{behind.operators[0].id}' {why}, but source '{vertex.operators[0].id}' before it "
                f"declares no event time, so that {outcome}: declare it after the source."
            )


def window_of(vertex: Vertex) -> Window | None:
    """The windows of the operator that a vertex begins with; the vertex has operators."""
    kind = vertex.operators[0].kind
    return kind.window if isinstance(kind, KeyedAggregate | WindowProcess) else None
