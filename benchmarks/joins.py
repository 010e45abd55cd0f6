"""`python -m benchmarks.joins`: rows that wait in an interval join: what they and their snapshots take.

Drives the task manager's own store of a join in this process, without Spark and without a cluster: rows of both sides
arrive in turn, time advances with them, snapshots are stored in a folder as they are for a job. At the end the last
one is restored, more rows arrive, and the number of all pairs is compared with the result of sorting.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from lockgate_proto.messages import FilesystemBackend, IntervalJoin, JoinSide, OperatorState, RocksdbBackend
from lockgate_proto.messages import StateBackend as Choice
from lockgate_taskmanager.state.backend import make_backend
from lockgate_taskmanager.state.factory import StoreFactory
from lockgate_taskmanager.state.join.interval_join import JoinStore
from lockgate_taskmanager.state.join.join_spec import JoinSpec
from lockgate_taskmanager.state.scratch import ScratchFolder
from lockgate_taskmanager.task.program import SnapshotOrder

from benchmarks.common import Measurement, Row, WrongResult, mixed, parser, rss_mib, run, say

_GROUPS = 128
_MIB = 1 << 20
_REACH_MS = 300_000  # how far partners are from each other, and how long a row waits
_SIDES = (JoinSide.LEFT, JoinSide.RIGHT)
_OUT_OF_ORDER_MS = 1_000
_JOIN = IntervalJoin(("key",), ("key",), "at", "at", -_REACH_MS, _REACH_MS)


@dataclass
class Costs:
    """What was measured. Lists: one value a batch or snapshot."""

    base_mib: float = 0.0
    rss_mib: float = 0.0
    first_ms: list[float] = field(default_factory=list)  # of the batches while the first tenth of the rows came
    full_ms: list[float] = field(default_factory=list)  # of those after as many rows wait as ever will
    sync_ms: list[float] = field(default_factory=list)
    size_bytes: list[int] = field(default_factory=list)
    written_bytes: list[int] = field(default_factory=list)
    restore_s: float = 0.0


def measure(arguments: argparse.Namespace) -> Measurement:
    """Fills, then takes snapshots, restores, checks."""
    with tempfile.TemporaryDirectory(prefix="lockgate-joins-", dir=arguments.folder or None) as name:
        bench = _Bench(Path(name).resolve(), arguments)
        try:
            bench.fill()
            bench.snapshots()
            bench.restore()
            bench.check()
        finally:
            bench.close()
    return _measurement(arguments, bench.costs)


class _Bench:
    def __init__(self, folder: Path, arguments: argparse.Namespace) -> None:
        self.costs = Costs(base_mib=rss_mib())
        self._folder, self._arguments = folder, arguments
        self._random = np.random.default_rng(7)
        self._scratch = ScratchFolder(folder / "work", "state-")
        self._choice = _choice(arguments)
        self._spec = JoinSpec("join", _JOIN, _GROUPS, range(_GROUPS))
        self._store = self._fresh()
        for side in _SIDES:
            self._store.accept(side, self._table(side, np.zeros(0, np.int64), np.zeros(0, np.int64)).schema)
        self._came: dict[JoinSide, list[Any]] = {side: [] for side in _SIDES}
        self._pairs = 0
        self._now = 0.0
        self._last: tuple[OperatorState, ...] = ()

    def close(self) -> None:
        self._store.close()
        self._scratch.close()

    def fill(self) -> None:
        """Until the first rows expire: from then on as many expire as arrive."""
        rows = self._arguments.rows
        say(f"{rows:,} rows of both sides arrive ...")
        batches = rows // self._arguments.batch
        for number in range(batches):
            took = self._batch(number)
            if number < batches // 10:
                self.costs.first_ms.append(took)

    def snapshots(self) -> None:
        """The first holds everything; between two of them some rows arrive, and as many expire."""
        arguments = self._arguments
        per_batch = _between(arguments)
        say(f"{arguments.snapshots} snapshots, {per_batch * arguments.batch:,} rows before each ...")
        for number in range(1, arguments.snapshots + 2):
            self._snapshot(number)
            if number <= arguments.snapshots:
                self.costs.full_ms += [self._batch(number) for number in range(per_batch)]
            self.costs.rss_mib = max(self.costs.rss_mib, rss_mib())

    def restore(self) -> None:
        say("restoring the last one ...")
        self._store.close()
        self._store = self._fresh()
        started = time.perf_counter()
        self._store.restore(self._last, self._arguments.snapshots + 1)
        self.costs.restore_s = time.perf_counter() - started
        for number in range(10):
            self._batch(number)

    def check(self) -> None:
        """Every pair counts once, also those of rows from before the restore and rows after it."""
        left, right = (np.concatenate(self._came[side]) for side in _SIDES)
        right.sort()
        first, last = (np.searchsorted(right, left + at, how) for at, how in _reach())
        if self._pairs != int((last - first).sum()):
            raise WrongResult(f"{self._pairs:,} pairs, and there are {int((last - first).sum()):,}")

    def _fresh(self) -> JoinStore:
        return StoreFactory(self._choice, self._scratch).join(self._spec)

    def _batch(self, number: int) -> float:
        """The next rows of a side; milliseconds."""
        side, count = _SIDES[number % 2], self._arguments.batch
        self._now += _REACH_MS * count / self._arguments.rows
        ids = self._random.integers(0, self._arguments.keys, count)
        times = int(self._now) - self._random.integers(0, _OUT_OF_ORDER_MS, count)
        self._came[side].append(ids * (1 << 40) + times)
        table = self._table(side, ids, times)
        started = time.perf_counter()
        self._pairs += sum(pair.num_rows for pair in self._store.merge(side, table).pairs)
        self._store.advance(int(self._now) - 2 * _OUT_OF_ORDER_MS)
        return (time.perf_counter() - started) * 1000

    def _table(self, side: JoinSide, ids: Any, times: Any) -> pa.Table:
        """Rows of some 60 bytes."""
        texts = pa.array([f"what comes with the row {number}" for number in ids.tolist()], pa.string())
        columns = {"key": pa.array(ids), f"{side.name.lower()}_text": texts, f"{side.name.lower()}_at": pa.array(times)}
        return pa.table({**columns, "__hash": pa.array(mixed(ids)), "__event_time": pa.array(times)})

    def _snapshot(self, number: int) -> None:
        started = time.perf_counter()
        frozen = self._store.snapshot(SnapshotOrder(number - 1))
        self.costs.sync_ms.append((time.perf_counter() - started) * 1000)
        writer = make_backend(self._choice, str(self._folder / "storage"), "a1-join-0").writer(number)
        self._last = tuple(column.persist(number, writer) for column in frozen)
        for column in frozen:
            column.release()
        parts = [part for state in self._last for part in (state.handle, *state.increments, *state.files)]
        handles = [part for part in parts if part is not None]
        self.costs.size_bytes.append(sum(handle.size_bytes for handle in handles))
        self.costs.written_bytes.append(
            sum(handle.size_bytes for handle in handles if handle.checkpoint_id in (0, number))
        )


def _reach() -> tuple[tuple[int, Any], tuple[int, Any]]:
    return (_JOIN.lower_ms, "left"), (_JOIN.upper_ms, "right")


def _between(arguments: argparse.Namespace) -> int:
    """Batches between two snapshots: 1 % of the rows, of both sides."""
    return int(max(2, arguments.rows // 100 // arguments.batch))


def _choice(arguments: argparse.Namespace) -> Choice:
    if arguments.backend == "rocksdb":
        return Choice(RocksdbBackend(memory_bytes=arguments.memory * _MIB))
    return Choice(FilesystemBackend(), full_every=10)


def _measurement(arguments: argparse.Namespace, costs: Costs) -> Measurement:
    shares = [100 * w / s for w, s in zip(costs.written_bytes[1:], costs.size_bytes[1:], strict=True)]
    came = f"{_between(arguments) * arguments.batch:,} rows"
    batch = f"batch of {arguments.batch:,} rows"
    rows = (
        Row(f"resident memory at most, {arguments.rows:,} rows", f"{costs.rss_mib:,.0f} MiB"),
        Row("of it before the first row", f"{costs.base_mib:.0f} MiB"),
        Row(f"{batch}, median, while the first tenth arrives", f"{statistics.median(costs.first_ms):.0f} ms"),
        Row(f"{batch}, median, when all wait", f"{statistics.median(costs.full_ms):.0f} ms"),
        Row("full size of a snapshot", f"{costs.size_bytes[-1] / _MIB:.0f} MiB"),
        Row(f"snapshot after {came} written, median", f"{statistics.median(shares):.1f} % of the full size"),
        Row(f"the same, mean of {len(shares)}", f"{statistics.fmean(shares):.1f} % of the full size"),
        Row("the same, most", f"{max(shares):.1f} % of the full size"),
        Row("snapshot, synchronous part, worst", f"{max(costs.sync_ms[1:]):.1f} ms"),
        Row("restore at the same parallelism", f"{costs.restore_s:.1f} s"),
    )
    return Measurement(rows, {"backend": arguments.backend, "rows": arguments.rows, **vars(costs)})


def main() -> int:
    """Command line."""
    options = parser("joins", "Rows that wait in an interval join: memory, snapshots, restore.")
    options.add_argument("--rows", type=int, default=4_000_000, help="rows of both sides that wait at a time")
    options.add_argument("--keys", type=int, default=1_000_000, help="different keys")
    options.add_argument("--batch", type=int, default=10_000, help="rows of a micro-batch")
    options.add_argument("--snapshots", type=int, default=20, help="measured snapshots")
    options.add_argument("--backend", choices=("rocksdb", "filesystem"), default="rocksdb", help="to compare with")
    options.add_argument("--memory", type=int, default=128, help="MiB for cache and write buffers (memory_bytes)")
    options.add_argument("--folder", default="", help="where to work; a temporary folder when left out")
    return run(options.parse_args(), measure)


if __name__ == "__main__":
    sys.exit(main())
