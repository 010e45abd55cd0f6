"""The bounds of every number, text and list of a job graph.

A value beyond its bound would keep the leader busy for seconds or for ever, and then the next leader. So the bounds are
checked first, and nothing else of a graph that is out of bounds. A field without an entry fails a test, so that a new
one cannot be forgotten.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from lockgate_proto import messages as m

MAX_PARALLELISM = 32_768
"""Key groups of a vertex, and so its subtasks; partitions of a generator."""

MAX_SUBTASKS = 20_000
"""Of all vertices together: each is a line in every deployment and an acknowledgement of every checkpoint."""

MAX_DURATION_MS = 1_000_000_000_000  # thirty years: timers of the operating system take not much more
MAX_TEXT = 1024 * 1024
MAX_NAME = 1_000
MAX_PATH = 8_192
MAX_ITEMS = 1_000
MAX_VERTICES = 1_000
MAX_EDGES = 10_000
MAX_RETAINED = 1_000
MAX_FAILURES = 10_000
MAX_CONSOLE_ROWS = 10_000
MAX_COUNT = 1_000_000
"""Records of a count window: a function gets all of them at once."""
MAX_MULTIPLIER = 1e6
MAX_FACTOR = 1e6
LEAST_RATE, MAX_RATE = 1e-6, 1e9
_MAX_INT32, _MAX_INT64 = 2**31 - 1, 2**63 - 1
_MAX_DATABASE_BYTES = 2**40

_Field = tuple[type[Any], str]

MOST: Mapping[_Field, float] = {
    (m.Vertex, "parallelism"): MAX_PARALLELISM,
    (m.Vertex, "max_parallelism"): MAX_PARALLELISM,
    (m.FileSource, "poll_interval_ms"): _MAX_INT32,
    (m.GeneratorSource, "partitions"): MAX_PARALLELISM,
    (m.GeneratorSource, "rows_per_partition"): _MAX_INT64,  # counted by the task managers, and nowhere in a list
    (m.GeneratorSource, "rows_per_second"): MAX_RATE,
    (m.EventTime, "out_of_orderness_ms"): MAX_DURATION_MS,
    (m.EventTime, "idle_after_ms"): MAX_DURATION_MS,
    (m.EventTime, "max_ahead_ms"): MAX_DURATION_MS,
    (m.TumblingWindow, "size_ms"): MAX_DURATION_MS,
    (m.TumblingWindow, "offset_ms"): MAX_DURATION_MS,
    (m.SlidingWindow, "size_ms"): MAX_DURATION_MS,
    (m.SlidingWindow, "slide_ms"): MAX_DURATION_MS,
    (m.SlidingWindow, "offset_ms"): MAX_DURATION_MS,
    (m.CumulatingWindow, "size_ms"): MAX_DURATION_MS,
    (m.CumulatingWindow, "step_ms"): MAX_DURATION_MS,
    (m.CumulatingWindow, "offset_ms"): MAX_DURATION_MS,
    (m.SessionWindow, "gap_ms"): MAX_DURATION_MS,
    (m.TriggeredWindow, "size_ms"): MAX_DURATION_MS,
    (m.TriggeredWindow, "offset_ms"): MAX_DURATION_MS,
    (m.TriggeredWindow, "every_count"): _MAX_INT32,
    (m.TriggeredWindow, "every_ms"): MAX_DURATION_MS,
    (m.EarlyFiringWindow, "size_ms"): MAX_DURATION_MS,
    (m.EarlyFiringWindow, "slide_ms"): MAX_DURATION_MS,
    (m.EarlyFiringWindow, "offset_ms"): MAX_DURATION_MS,
    (m.EarlyFiringWindow, "every_count"): _MAX_INT32,
    (m.EarlyFiringWindow, "every_ms"): MAX_DURATION_MS,
    (m.Window, "allowed_lateness_ms"): MAX_DURATION_MS,
    (m.CountWindow, "size"): MAX_COUNT,
    (m.CountWindow, "every"): MAX_COUNT,
    (m.IntervalJoin, "lower_ms"): MAX_DURATION_MS,
    (m.IntervalJoin, "upper_ms"): MAX_DURATION_MS,
    (m.DeclaredState, "ttl_ms"): MAX_DURATION_MS,
    (m.Deduplicate, "ttl_ms"): MAX_DURATION_MS,
    (m.ConsoleSink, "rows"): MAX_CONSOLE_ROWS,
    (m.SocketSource, "port"): _MAX_INT32,  # see validate_operator
    (m.PythonSource, "poll_interval_ms"): _MAX_INT32,
    (m.KafkaSource, "poll_interval_ms"): _MAX_INT32,
    (m.JobGraph, "standby_replicas"): _MAX_INT32,  # see validate_options
    (m.CheckpointOptions, "interval_ms"): MAX_DURATION_MS,
    (m.CheckpointOptions, "timeout_ms"): MAX_DURATION_MS,
    (m.CheckpointOptions, "min_pause_ms"): MAX_DURATION_MS,
    (m.CheckpointOptions, "tolerable_failures"): _MAX_INT32,
    (m.CheckpointOptions, "retained"): MAX_RETAINED,
    (m.CheckpointOptions, "aligned_timeout_ms"): MAX_DURATION_MS,
    (m.CheckpointOptions, "max_concurrent"): _MAX_INT32,  # see validate_options
    (m.FixedDelayRestart, "attempts"): _MAX_INT32,
    (m.FixedDelayRestart, "delay_ms"): MAX_DURATION_MS,
    (m.ExponentialRestart, "initial_ms"): MAX_DURATION_MS,
    (m.ExponentialRestart, "max_ms"): MAX_DURATION_MS,
    (m.ExponentialRestart, "multiplier"): MAX_MULTIPLIER,
    (m.ExponentialRestart, "jitter"): math.inf,  # see validate_options
    (m.ExponentialRestart, "reset_after_ms"): MAX_DURATION_MS,
    (m.FailureRateRestart, "failures"): MAX_FAILURES,
    (m.FailureRateRestart, "interval_ms"): MAX_DURATION_MS,
    (m.FailureRateRestart, "delay_ms"): MAX_DURATION_MS,
    (m.MemoryBackend, "max_state_bytes"): _MAX_INT64,  # see validate_options
    (m.RocksdbBackend, "memory_bytes"): _MAX_DATABASE_BYTES,
    (m.StateBackend, "full_every"): _MAX_INT32,  # see validate_options
    (m.StragglerReplacement, "factor"): MAX_FACTOR,
    (m.StragglerReplacement, "window_ms"): MAX_DURATION_MS,
    (m.StragglerReplacement, "pause_ms"): MAX_DURATION_MS,
}
"""The highest value of each number. Other modules of this room report values that are too low or not numbers."""

LONGEST: Mapping[_Field, int] = {
    (m.JobGraph, "name"): MAX_NAME,
    (m.Vertex, "name"): MAX_NAME,
    (m.Operator, "name"): MAX_NAME,
    (m.FileSource, "path"): MAX_PATH,
    (m.FileSource, "include"): MAX_PATH,
    (m.FileSink, "path"): MAX_PATH,
    (m.DeltaSink, "uri"): MAX_PATH,
    (m.SqlSink, "url"): MAX_PATH,
    (m.SqlSink, "table"): MAX_NAME,
    (m.FilesystemBackend, "uri"): MAX_PATH,
    (m.RocksdbBackend, "uri"): MAX_PATH,
    (m.SocketSource, "host"): MAX_NAME,
}
"""The greatest length of a text, in characters; MAX_TEXT where there is no entry."""

_MANY: Mapping[_Field, int] = {(m.JobGraph, "vertices"): MAX_VERTICES, (m.JobGraph, "edges"): MAX_EDGES}
_OWNERS: Mapping[type[Any], str] = {
    m.CheckpointOptions: "The job's checkpoint options have",
    m.RestartStrategy: "The job's restart strategy has",
    m.StateBackend: "The job's state backend has",
    m.StragglerReplacement: "The job's straggler replacement has",
}


def bound_problems(graph: m.JobGraph) -> tuple[str, ...]:
    """Everything in the graph that is out of bounds, as sentences. Cost grows with the size of the graph."""
    problems = tuple(_walk(graph, "The job has"))
    subtasks = sum(max(0, vertex.parallelism) for vertex in graph.vertices)
    if not problems and subtasks > MAX_SUBTASKS:
        return (f"The job has {subtasks} subtasks, the sum of its parallelisms: the limit is {MAX_SUBTASKS}.",)
    return problems


def text_problem(value: str, most: int) -> str:
    """The problem of a text, as the rest of a sentence; "" for none."""
    if "\0" in value:
        return f"with a NUL character in it: {quoted(value)}"
    return f"of {len(value)} characters: the limit is {most}" if len(value) > most else ""


def quoted(text: str, most: int = 100) -> str:
    """The text in quotes for a sentence, cut after `most` characters."""
    return repr(text if len(text) <= most else f"{text[:most]}...")


def _walk(message: Any, owner: str) -> Iterator[str]:
    kind = type(message)
    owner = _owner(message, owner)
    for field in fields(message):
        value = getattr(message, field.name)
        if isinstance(value, tuple | Mapping):
            most = _MANY.get((kind, field.name), MAX_ITEMS)
            if len(value) > most:
                yield f"{owner} {len(value)} {field.name}: the limit is {most}."
                continue
            parts = value if isinstance(value, tuple) else (*value.keys(), *value.values())
        else:
            parts = (value,)
        for part in parts:
            if is_dataclass(part):
                yield from _walk(part, owner)
            else:
                yield from _value(kind, field.name, part, owner)


def _value(kind: type[Any], name: str, value: Any, owner: str) -> Iterator[str]:
    if isinstance(value, str):
        problem = text_problem(value, LONGEST.get((kind, name), MAX_TEXT))
        if problem:
            yield f"{owner} a {name} {problem}."
    elif isinstance(value, int | float) and not isinstance(value, bool | Enum):
        most = MOST[(kind, name)]
        if math.isfinite(value) and value > most:
            yield f"{owner} {name} {value}: the limit is {most:.15g}."


def _owner(message: Any, owner: str) -> str:
    if isinstance(message, m.Vertex):
        return f"Vertex {quoted(message.id)} has"
    if isinstance(message, m.Operator):
        return f"Operator {quoted(message.id)} has"
    if isinstance(message, m.Edge):
        return f"The edge {quoted(message.source)} -> {quoted(message.target)} has"
    return _OWNERS.get(type(message), owner)
