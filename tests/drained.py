"""How a test ends a job whose input has no end, and what its sources had read by then.

An input that ends by itself may do so before the fault that a test has in mind: on a slow machine, because the first
batch takes as long as all of the input. One without an end cannot; what must come out is then computed from the offsets
in the savepoint of the stop.
"""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path

from lockgate_proto.codec import decode
from lockgate_proto.messages import (
    CheckpointMetadata,
    CheckpointOptions,
    CompletedCheckpoint,
    JobGraph,
    SourceState,
    StateKind,
)

from lockgate.client import TERMINAL, Client, ClientError
from lockgate.commands.story_views import story_text

PATIENCE_S = 300.0  # a bound, not an expectation: on an idle machine nothing here takes 10 s
_LOOK_EVERY_S = 0.05
_CHECKPOINT_MS = 270_000


def patient(graph: JobGraph) -> JobGraph:
    """The same job, whose checkpoints are given up only shortly before a test gives up waiting for one.

    By default that is after a minute. On a busy machine the first batch of an attempt takes as long, for its plans are
    not warm; the job then fails, and the next attempt does no better.
    """
    return replace(graph, checkpoints=replace(graph.checkpoints or CheckpointOptions(), timeout_ms=_CHECKPOINT_MS))


def drain(client: Client, key: str) -> CompletedCheckpoint:
    """Stops the sources once they have read something, and returns the savepoint of all that they have read.

    A job that restarts just then takes no orders, and is asked again. Raises AssertionError.
    """
    deadline, never, last = time.monotonic() + PATIENCE_S, threading.Event(), "it has read nothing"
    while time.monotonic() < deadline:
        try:
            status = client.job(key)
            assert status.state not in TERMINAL, f"{key} has ended as {status.state.name}: {status.error}"
            if any(operator.records_out for operator in status.operators):
                return client.stop(key, drain=True)
        except ClientError as error:
            last = str(error)
        never.wait(_LOOK_EVERY_S)
    raise AssertionError(f"{key} cannot be stopped: {last}\n{_known_of(client, key)}")


def _known_of(client: Client, key: str) -> str:
    """What the cluster knows of the job: for the reader of a failed test."""
    try:
        return f"{client.job(key)}\n{story_text(client.story(key))}"
    except ClientError as error:
        return str(error)


def path_of(savepoint: CompletedCheckpoint) -> Path:
    """Its `_metadata` file, as the cluster's processes see it."""
    return Path(savepoint.pointer.removeprefix("file://"))


def rows_read(metadata: Path) -> dict[str, dict[str, int]]:
    """What a `_metadata` file says of the sources: vertex id to split to its offset."""
    return rows_in(metadata.read_bytes())


def rows_in(metadata: bytes) -> dict[str, dict[str, int]]:
    """The same, from the content of such a file."""
    found: dict[str, dict[str, int]] = {}
    for subtask in decode(CheckpointMetadata, metadata).subtasks:
        offsets = found.setdefault(subtask.vertex_id, {})
        for operator in subtask.operators:
            if operator.kind is StateKind.SOURCE_STATE:
                assert operator.handle is not None
                for split in decode(SourceState, operator.handle.inline).splits:
                    assert split.split not in offsets, f"two subtasks of {subtask.vertex_id} have read {split.split}"
                    offsets[split.split] = split.offset
    return {vertex: offsets for vertex, offsets in found.items() if offsets}


def generated(offsets: dict[str, int], partitions: int) -> list[int]:
    """Of a generator's partitions, in order: how many rows each has made.

    Raises AssertionError where that is not known of each of them, or none has made any: nothing would be compared.
    """
    names = [str(number) for number in range(partitions)]
    assert sorted(offsets) == sorted(names), f"offsets of {sorted(offsets)}, not of {partitions} partitions"
    rows = [offsets[name] for name in names]
    assert any(rows), "nothing was read, so nothing is proved"
    return rows
