"""What a run of the job of benchmarks.abs costs, part by part: the constants of the model in abs_simulated.py."""

from __future__ import annotations

import re
import statistics
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from lockgate_proto.messages import CompletedCheckpoint, JobGraph, JobState, JobStatus, StoryLine, SubtaskSnapshot

from benchmarks.abs_simulated import Costs
from benchmarks.common import say
from lockgate.client import TERMINAL, Client
from lockgate.errors import UserError

LEADER_SUBTASK_MS = 0.062
"""Of a checkpoint: the slope from 1,000 to 10,000 subtasks in docs/benchmarks.md, control_plane."""

_LOOK_EVERY_S = 0.1
_LIMIT_S = 300.0
_COMPLETE = re.compile(r"checkpoint (\d+) is complete, the leader says")
_VISIBLE = re.compile(r"the output up to checkpoint (\d+) is visible")


@dataclass(slots=True)
class Observed:
    """busy: by vertex, a sum over all looks at its subtasks; parts: of each checkpoint that was seen."""

    busy: Counter[str] = field(default_factory=Counter)
    checkpoints: dict[int, CompletedCheckpoint] = field(default_factory=dict)
    parts: dict[int, tuple[SubtaskSnapshot, ...]] = field(default_factory=dict)
    lines: dict[str, StoryLine] = field(default_factory=dict)


def observed(client: Client, key: str, graph: JobGraph) -> Observed:
    """Runs a job and asks again and again what its subtasks do, so its time counts for nothing.

    Raises UserError when it fails, and when it is too short.
    """
    found = Observed()
    client.submit(key, graph)
    deadline = time.monotonic() + _LIMIT_S
    while (status := client.job(key)).state not in TERMINAL:
        if time.monotonic() > deadline:
            raise UserError(f"the job {key} is {status.state.name} after {_LIMIT_S:g} s: {status.message}")
        _look(client, status, found)
        time.sleep(_LOOK_EVERY_S)
    if status.state is not JobState.FINISHED:
        raise UserError(f"the job {key} has ended as {status.state.name}: {status.error}")
    require_enough(found, [vertex.id for vertex in graph.vertices])
    say(f"  {key}: {len(found.parts)} checkpoints observed")
    return found


def _look(client: Client, status: JobStatus, found: Observed) -> None:
    for subtask in status.subtasks:
        if subtask.load is not None:
            found.busy[subtask.vertex_id] += subtask.load.busy_permille
    newest = status.last_checkpoint
    if newest is None or newest.checkpoint_id in found.checkpoints:
        return
    parts = client.checkpoint_parts(status.job_key, newest.checkpoint_id)
    if parts:
        found.checkpoints[newest.checkpoint_id] = newest
        found.parts[newest.checkpoint_id] = parts
        found.lines |= {line.id: line for line in client.story(status.job_key).lines}


def require_enough(found: Observed, vertices: Sequence[str]) -> None:
    """Raises UserError when a run was too short for `costs_of`."""
    commits = commit_times_ms(found.lines.values(), vertices[-1])
    if not found.parts or not commits or not all(found.busy[vertex] for vertex in vertices):
        raise UserError("the observed run was too short to measure its checkpoints and commits: use more --rows")


def commit_times_ms(lines: Iterable[StoryLine], vertex: str) -> list[float]:
    """How long subtasks of this vertex needed for each commit: from the leader's word to their output being visible."""
    begun: dict[tuple[str, str, str], int] = {}
    found = []
    for line in sorted(lines, key=lambda line: line.unix_us):
        if line.place.partition("[")[0] != vertex:
            continue
        if complete := _COMPLETE.fullmatch(line.event):
            begun[line.process, line.place, complete[1]] = line.unix_us
        elif visible := _VISIBLE.fullmatch(line.event):
            since_us = begun.pop((line.process, line.place, visible[1]), None)
            if since_us is not None:
                found.append((line.unix_us - since_us) / 1000)
    return found


def costs_of(
    found: Observed, vertices: Sequence[str], node_s: float, rows: int, leader_subtask_ms: float = LEADER_SUBTASK_MS
) -> Costs:
    """The model's constants.

    vertices: ids, from source to sink. node_s: how long a node, which has one subtask of each vertex and one processor,
    needs for `rows` records of its source, without checkpoints.
    """
    parts = [part for some in found.parts.values() for part in some]
    busy = sum(found.busy[vertex] for vertex in vertices)
    by_vertex = {vertex: [part for part in parts if part.vertex_id == vertex] for vertex in vertices}
    leader = [
        max(0.0, checkpoint.duration_ms - max(part.duration_ms for part in found.parts[number]))
        for number, checkpoint in found.checkpoints.items()
    ]
    subtasks = len(parts) / len(found.parts)
    return Costs(
        record_us=tuple(1e6 * node_s / rows * found.busy[vertex] / busy for vertex in vertices),
        sync_ms=tuple(statistics.median(part.sync_us for part in by_vertex[vertex]) / 1000 for vertex in vertices),
        store_ms=tuple(statistics.median(part.async_ms for part in by_vertex[vertex]) for vertex in vertices),
        commit_ms=statistics.median(commit_times_ms(found.lines.values(), vertices[-1])),
        leader_ms=max(0.0, statistics.median(leader) - subtasks * leader_subtask_ms),
        leader_subtask_ms=leader_subtask_ms,
    )


def checkpoint_figures(found: Observed) -> Mapping[str, float]:
    """What the model is compared with: medians over the checkpoints, of their durations and longest alignments."""
    seen = found.checkpoints.values()
    return {
        "checkpoint_ms": statistics.median(checkpoint.duration_ms for checkpoint in seen),
        "alignment_ms": statistics.median(checkpoint.longest_alignment_ms for checkpoint in seen),
    }
