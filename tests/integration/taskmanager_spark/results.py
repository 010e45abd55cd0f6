"""What a Run has come to: its late records, and a job that goes through restarts to its end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from lockgate_coordinator.graph.normalize import normalize
from lockgate_coordinator.graph.shape import vertex_shapes
from lockgate_coordinator.job.redistribute import redistribute
from lockgate_proto.messages import CheckpointMetadata, JobGraph, SubtaskState

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NOON = 1_800_000_000_000
"""Milliseconds since 1970: where the clock of a test begins."""


def millis(moment: datetime) -> int:
    """Since 1970."""
    return (moment - EPOCH) // timedelta(milliseconds=1)


def at(run: Any, ms: int) -> None:
    """The clocks of the subtasks of the vertex `windows` show so many milliseconds after noon."""
    for key, program in run.programs.items():
        if key[0] == "windows":
            run.deliver_all(key, program.tick(NOON + ms))


def late_of(run: Any) -> int:
    """Records that were too late, in all operators."""
    return sum(counter.records_late for program in run.programs.values() for counter in program.counters())


def end_after_two_restarts(run: Any, source: str, rounds: int = 1) -> None:
    """Of a job with two subtasks of one source. What the first restart finds is older than the newest snapshot.

    rounds: micro-batches of each before the first snapshot.
    """
    for _ in range(rounds):
        run.batch(source, 0)
        run.batch(source, 1)
    kept = run.checkpoint(1)
    run.batch(source, 1)
    run.checkpoint(2, commit=False)
    run.close()
    run.start(kept, 1)
    run.batch(source, 0)
    kept = run.checkpoint(3)
    run.close()
    run.start(kept, 3)
    run.to_end()
    run.checkpoint(4)


def widen(run: Any, kept: Mapping[tuple[str, int], SubtaskState], checkpoint_id: int) -> None:
    """The next attempt of a job of two vertices, with three subtasks of the second one."""
    first, second = run.graph.vertices
    rescale(run, replace(run.graph, vertices=(first, replace(second, parallelism=3))), kept, checkpoint_id)


def rescale(
    run: Any,
    graph: JobGraph,
    kept: Mapping[tuple[str, int], SubtaskState],
    checkpoint_id: int,
    reopens: bool = False,
) -> None:
    """The next attempt, as the leader spreads a snapshot over the subtasks of the same job at another parallelism.

    reopens: of another run.
    """
    shapes = vertex_shapes(normalize(run.graph))
    snapshot = CheckpointMetadata(format_version=1, vertices=shapes, subtasks=tuple(kept.values()))
    run.close()
    run.programs.clear()
    run.graph = graph
    run.start(redistribute(normalize(graph), snapshot, reopens), checkpoint_id)
