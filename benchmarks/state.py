"""`python -m benchmarks.state`: what a micro-batch, a snapshot and a restore cost, by size of the keyed state.

Drives the task manager's own programs (a source subtask and a counting subtask) in this process, without a cluster:
a micro-batch is `poll` of the source, with its Spark job, and `process` of what it emits.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from lockgate_proto.messages import (
    Aggregate,
    AggregateFunction,
    AttemptId,
    Edge,
    FileFormat,
    FileSource,
    JobGraph,
    KeyedAggregate,
    Operator,
    Partitioning,
    SqlTransform,
    SubtaskId,
    SubtaskState,
    Vertex,
)
from lockgate_taskmanager.task.program import Batch, Exhausted, Idle, ProgramContext, SubtaskProgram

from benchmarks.common import Measurement, Row, WrongResult, at_most, parser, run, say

_LINE = "k%07d\n"
_LINE_BYTES = 9
_TARGET_MS = 60_000  # the size of a batch is bounded by bytes alone
_WARM_BATCHES = 20  # before the first measured one, so that the JVM has compiled what it runs
_RESTORES = 3


@dataclass(frozen=True)
class Cost:
    """What one size of state costs.

    keys: in the state; batch_ms: of each measured micro-batch; after_snapshot_ms: of the one after each snapshot;
    sync_ms: of each snapshot's part that holds the stream; upload_ms: of the last snapshot's upload; restore_ms: of
    each new program's `open` from it.
    """

    keys: int
    batch_ms: tuple[float, ...]
    after_snapshot_ms: tuple[float, ...]
    sync_ms: tuple[float, ...]
    upload_ms: float
    restore_ms: tuple[float, ...]


def graph(folder: Path, name: str) -> JobGraph:
    """Lines are keys; the count per key is the state."""
    count = KeyedAggregate(("key",), (Aggregate("n", AggregateFunction.COUNT, ""),))
    source = FileSource(path=str(folder), format=FileFormat.TEXT)
    return JobGraph(
        name=f"state benchmark {name}",
        vertices=(
            Vertex(
                "keys",
                "keys",
                1,
                0,
                (
                    Operator("read", "read", source),
                    Operator("key", "key", SqlTransform("SELECT value AS key FROM input")),
                ),
            ),
            Vertex("counts", "counts", 1, 0, (Operator("count", "count", count),)),
        ),
        edges=(Edge("keys", "counts", Partitioning.HASH, ("key",)),),
    )


def measure(arguments: argparse.Namespace) -> Measurement:
    """Both state sizes side by side in one engine, batch by batch in turn, so that load and warmth are the same."""
    from lockgate_taskmanager.spark.engine import SparkEngine

    with tempfile.TemporaryDirectory(prefix="lockgate-state-") as name:
        work = Path(name).resolve()
        say("starting Spark ...")
        bound = arguments.changed * _LINE_BYTES
        engine = SparkEngine("local[2]", {}, 2, str(work / "engine"), _TARGET_MS, bound)
        try:
            engine.warm_up()
            sizes = (arguments.small, arguments.large)
            stages = [_Stage(engine, work / f"{number}", keys, arguments) for number, keys in enumerate(sizes)]
            for _ in range(arguments.batches):
                for stage in stages:
                    stage.measured_batch()
            costs = [stage.finish(arguments.snapshots) for stage in stages]
        finally:
            engine.close()
    return _measurement(arguments, costs[0], costs[1])


class _Stage:
    """A source subtask and a counting subtask whose state holds `keys` keys."""

    def __init__(self, engine: Any, folder: Path, keys: int, arguments: argparse.Namespace) -> None:
        say(f"filling a state with {keys:,} keys ...")
        self._engine = engine
        self._folder = folder
        self._keys = keys
        _write_input(folder / "input", keys, arguments)
        self._job = graph(folder / "input", folder.name)
        self._source, self._counts = (engine.build(self._context(vertex)) for vertex in ("keys", "counts"))
        _forward(self._source.open(), self._counts)  # the prologue
        self._counts.open()
        splits, complete = engine.discover(self._job, "keys", ())
        self._source.assign(splits, complete)
        filled = 0
        while filled < keys + _WARM_BATCHES * arguments.changed:
            filled += _batch(self._source, self._counts)[1]
        self._batch_ms: list[float] = []

    def measured_batch(self) -> None:
        """One micro-batch of changed keys."""
        self._batch_ms.append(_batch(self._source, self._counts)[0])

    def finish(self, snapshots: int) -> Cost:
        """Takes snapshots, with a micro-batch after each, and restores the last one. Closes the programs."""
        sync_ms, after_ms, upload_ms, state = [], [], 0.0, None
        for number in range(1, snapshots + 1):
            started = time.perf_counter()
            snapshot = self._counts.snapshot(number)
            sync_ms.append(_ms_since(started))
            after_ms.append(_batch(self._source, self._counts)[0])  # pays for the copy-on-write
            started = time.perf_counter()
            state = snapshot.persist()
            upload_ms = _ms_since(started)
        assert state is not None
        self._source.close()
        self._counts.close()
        restore_ms = tuple(self._restore(state, snapshots) for _ in range(_RESTORES))
        return Cost(self._keys, tuple(self._batch_ms), tuple(after_ms), tuple(sync_ms), upload_ms, restore_ms)

    def _restore(self, state: SubtaskState, checkpoint_id: int) -> float:
        started = time.perf_counter()
        program = self._engine.build(self._context("counts", state, checkpoint_id))
        try:
            program.open()
            elapsed = _ms_since(started)
            if not sum(counter.records_in for counter in program.counters()):
                raise WrongResult("the restored program knows nothing of the records before the snapshot")
            return elapsed
        finally:
            program.close()

    def _context(self, vertex: str, restore: SubtaskState | None = None, checkpoint_id: int = 0) -> ProgramContext:
        return ProgramContext(
            SubtaskId(AttemptId("state-benchmark", self._folder.name, 1), vertex, 0),
            self._job,
            (self._folder / "checkpoints").as_uri(),
            restore,
            checkpoint_id,
            {"keys": 1, "counts": 1},
        )


def _batch(source: SubtaskProgram, counts: SubtaskProgram) -> tuple[float, int]:
    """One micro-batch from source to merged state: its ms, and how many rows (one a key) were merged."""
    started = time.perf_counter()
    polled = source.poll()
    if isinstance(polled, Exhausted | Idle):
        raise WrongResult(f"the input has ended too early: {polled}")
    rows = _forward(polled, counts)
    return _ms_since(started), rows


def _forward(batch: Batch, counts: SubtaskProgram) -> int:
    rows = 0
    for emission in batch.emissions:
        counts.process("keys", emission.table)
        rows += emission.table.num_rows
    return rows


def _ms_since(started: float) -> float:
    return (time.perf_counter() - started) * 1000


def _write_input(folder: Path, keys: int, arguments: argparse.Namespace) -> None:
    """First every key once, in random order; then batches of different keys out of all."""
    folder.mkdir(parents=True)
    generator = np.random.default_rng(keys)
    with (folder / "keys.txt").open("w", encoding="ascii") as file:
        file.writelines(_LINE % key for key in generator.permutation(keys).tolist())
        # slow start makes the first batches smaller, so there have to be more of them
        for _ in range(arguments.batches + arguments.snapshots + _WARM_BATCHES + 40):
            chosen = generator.choice(keys, size=arguments.changed, replace=False)
            file.writelines(_LINE % key for key in chosen.tolist())


def _measurement(arguments: argparse.Namespace, small: Cost, large: Cost) -> Measurement:
    small_ms, large_ms = statistics.median(small.batch_ms), statistics.median(large.batch_ms)
    rows = (
        Row(f"micro-batch of {arguments.changed:,} keys, {small.keys:,} keys of state", f"{small_ms:.1f} ms"),
        Row(f"micro-batch of {arguments.changed:,} keys, {large.keys:,} keys of state", f"{large_ms:.1f} ms"),
        at_most("large against small", round(large_ms / small_ms, 3), 1.2, ""),
        Row(
            f"micro-batch right after a snapshot, {large.keys:,} keys",
            f"{statistics.median(large.after_snapshot_ms):.1f} ms",
        ),
        at_most(f"snapshot, synchronous part, worst, {large.keys:,} keys", max(large.sync_ms), 10, "ms"),
        Row(f"snapshot, upload, {large.keys:,} keys", f"{large.upload_ms:.0f} ms"),
        at_most(f"restore of {large.keys:,} keys, median", statistics.median(large.restore_ms), 1000, "ms"),
    )
    return Measurement(
        rows,
        {
            "changed_keys": arguments.changed,
            "batch_ms_small": small_ms,
            "batch_ms_large": large_ms,
            "ratio": large_ms / small_ms,
            "snapshot_sync_ms": max(large.sync_ms),
            "snapshot_upload_ms": large.upload_ms,
            "restore_ms": statistics.median(large.restore_ms),
            "small": _values(small),
            "large": _values(large),
        },
    )


def _values(cost: Cost) -> dict[str, Any]:
    return {
        "keys": cost.keys,
        "batch_ms": cost.batch_ms,
        "batch_after_snapshot_ms": cost.after_snapshot_ms,
        "snapshot_sync_ms": cost.sync_ms,
        "snapshot_upload_ms": cost.upload_ms,
        "restore_ms": cost.restore_ms,
    }


def main() -> int:
    """Command line."""
    options = parser("state", "Keyed state: cost of a micro-batch, of a snapshot and of a restore.")
    options.add_argument("--changed", type=int, default=10_000, help="keys that each micro-batch changes")
    options.add_argument("--small", type=int, default=10_000, help="keys of the small state")
    options.add_argument("--large", type=int, default=1_000_000, help="keys of the large state")
    options.add_argument("--batches", type=int, default=60, help="measured micro-batches of each state")
    options.add_argument("--snapshots", type=int, default=5, help="measured snapshots of each state")
    return run(options.parse_args(), measure)


if __name__ == "__main__":
    sys.exit(main())
