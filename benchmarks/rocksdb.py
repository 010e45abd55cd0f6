"""`python -m benchmarks.rocksdb`: keyed state larger than memory: what it takes, what its snapshots write and hold up.

Drives the task manager's own store of keyed state in this process, without Spark and without a cluster: partial tables
of distinct keys are merged as they come from the exchange, snapshots are stored in a folder as they are for a job, and
the last one is restored and half a million keys are compared with what was merged.

With `--windows` each key has an open window (or session) of the aggregate. After the restore all of them fire, and
every one is compared.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lockgate_proto.messages import (
    Aggregate,
    AggregateFunction,
    FilesystemBackend,
    KeyedAggregate,
    OperatorState,
    RocksdbBackend,
    SessionWindow,
    TumblingWindow,
    Window,
)
from lockgate_proto.messages import StateBackend as Choice
from lockgate_taskmanager.state.backend import make_backend
from lockgate_taskmanager.state.factory import StoreFactory
from lockgate_taskmanager.state.scratch import ScratchFolder
from lockgate_taskmanager.state.spec import StoreSpec
from lockgate_taskmanager.state.store import Fires, FrozenStore, KeyedStore
from lockgate_taskmanager.task.program import SnapshotOrder

from benchmarks.common import Measurement, Row, WrongResult, at_most, mixed, parser, rss_mib, run, say

_GROUPS = 128
_FILL_ROWS = 100_000
_CHECKED_KEYS = 500_000
_MIB = 1 << 20
_COUNTED = KeyedAggregate(
    ("key",),
    (Aggregate("n", AggregateFunction.COUNT, ""), Aggregate("total", AggregateFunction.SUM, "value")),
)
_SCHEMA = pa.schema([("key", pa.string()), ("__hash", pa.int64()), ("__rows", pa.int64()), ("__p1", pa.int64())])
_WINDOWS = {"tumbling": TumblingWindow(60_000), "session": SessionWindow(60_000)}


@dataclass
class Costs:
    """What was measured. Lists: one value a micro-batch or snapshot."""

    fill_s: float = 0.0
    rss_mib: float = 0.0
    base_mib: float = 0.0
    batch_ms: list[float] = field(default_factory=list)  # with no snapshot under way
    slowest_ms: list[float] = field(default_factory=list)  # of the batches while one was
    sync_ms: list[float] = field(default_factory=list)
    upload_ms: list[float] = field(default_factory=list)
    size_bytes: list[int] = field(default_factory=list)
    written_bytes: list[int] = field(default_factory=list)
    restore_s: float = 0.0
    fire_s: float = 0.0  # all windows at once
    fired_rss_mib: float = 0.0


def measure(arguments: argparse.Namespace) -> Measurement:
    """Fills, changes and snapshots, restores, checks."""
    with tempfile.TemporaryDirectory(prefix="lockgate-rocksdb-", dir=arguments.folder or None) as name:
        bench = _Bench(Path(name).resolve(), arguments)
        try:
            bench.fill()
            bench.snapshots()
            bench.restore()
        finally:
            bench.close()
    return _measurement(arguments, bench.costs)


class _Bench:
    def __init__(self, folder: Path, arguments: argparse.Namespace) -> None:
        self.costs = Costs(base_mib=rss_mib())
        self._folder, self._arguments = folder, arguments
        self._random = np.random.default_rng(7)
        self._choice = _choice(arguments)
        self._scratch = ScratchFolder(folder / "work", "state-")
        self._maker = StoreFactory(self._choice, self._scratch)
        window = Window(_WINDOWS[arguments.windows], "at") if arguments.windows else None
        self._spec = StoreSpec("count", replace(_COUNTED, window=window), _GROUPS, range(_GROUPS))
        self._store: KeyedStore = self._maker.fresh(self._spec, self._partial(np.zeros(0, np.int64)).schema)
        self._watch = _PeakWatch()
        self._uploads = ThreadPoolExecutor(1, "upload")
        self._expected = np.zeros(arguments.keys, np.uint8)
        self._frozen = self._expected  # as it was at the newest snapshot
        self._last: OperatorState | None = None

    def close(self) -> None:
        self._watch.close()
        self._uploads.shutdown()
        self._store.close()
        self._scratch.close()

    def fill(self) -> None:
        keys = self._arguments.keys
        say(f"filling a database with {keys:,} keys ...")
        started = time.perf_counter()
        order = self._random.permutation(keys)
        for start in range(0, keys, _FILL_ROWS):
            self._merge(order[start : start + _FILL_ROWS])
        self.costs.fill_s = time.perf_counter() - started

    def snapshots(self) -> None:
        """The first holds everything; between it and each later one 1 % of the keys change, while it is stored."""
        arguments = self._arguments
        say(f"{arguments.snapshots} snapshots, {arguments.changed} % of the keys changed before each ...")
        self._snapshot(1).result()
        for number in range(2, arguments.snapshots + 2):
            self.costs.batch_ms += self._change()
            storing = self._snapshot(number)
            self.costs.slowest_ms.append(max(self._change()))
            storing.result()
        self.costs.rss_mib = self._watch.peak_mib()

    def _change(self) -> list[float]:
        """Half of what changes between two snapshots, and what each batch took."""
        keys, size = self._arguments.keys, self._arguments.batch
        chosen = self._random.choice(keys, int(keys * self._arguments.changed / 200), replace=False)
        took = []
        for start in range(0, len(chosen), size):
            started = time.perf_counter()
            self._merge(chosen[start : start + size])
            took.append((time.perf_counter() - started) * 1000)
        return took

    def restore(self) -> None:
        say("restoring the last one ...")
        self._store.close()
        self._expected = self._frozen
        assert self._last is not None
        started = time.perf_counter()
        self._store = self._maker.restored(self._spec, [self._last], self._arguments.snapshots + 1)
        self.costs.restore_s = time.perf_counter() - started
        if isinstance(self._store, Fires):
            started = time.perf_counter()
            found = np.zeros(self._arguments.keys, np.int64)
            _add(found, self._store.advance(1 << 40))
            while self._store.has_more:
                _add(found, self._store.go_on())
            self.costs.fire_s = time.perf_counter() - started
            self.costs.fired_rss_mib = self._watch.peak_mib()
            self._require_like(found, self._expected)
            return
        chosen = self._random.choice(self._arguments.keys, min(self._arguments.keys, _CHECKED_KEYS), replace=False)
        for start in range(0, len(chosen), _FILL_ROWS):
            ids = chosen[start : start + _FILL_ROWS]
            found = self._merge(ids)
            self._compare(found, ids, self._expected[ids])

    def _compare(self, found: pa.Table, ids: Any, expected: Any) -> None:
        self._require_like(_counts(found, ids), expected)

    def _require_like(self, found: Any, expected: Any) -> None:
        wrong = int(np.count_nonzero(found != expected))
        if wrong:
            raise WrongResult(f"{wrong:,} of {len(found):,} keys have another count after the restore")

    def _merge(self, ids: Any) -> pa.Table:
        self._expected[ids] += 1
        return self._store.merge(self._partial(ids)).changed

    def _partial(self, ids: Any) -> pa.Table:
        """The partial table of these keys, with windows all in the one that begins at 0."""
        table, times = _partial(ids), pa.array(np.zeros(len(ids), np.int64))
        if self._arguments.windows:
            table = table.add_column(2, "__pane", times)
        if self._arguments.windows == "session":
            table = table.append_column("__p2", times).append_column("__p3", times)
        return table

    def _snapshot(self, number: int) -> Future[None]:
        """Freezes; another thread stores it, as it does for a job."""
        started = time.perf_counter()
        frozen = self._store.snapshot(SnapshotOrder(number - 1))
        self.costs.sync_ms.append((time.perf_counter() - started) * 1000)
        self._frozen = self._expected.copy()
        return self._uploads.submit(self._persist, number, frozen)

    def _persist(self, number: int, frozen: FrozenStore) -> None:
        synced = time.perf_counter()
        writer = make_backend(self._choice, str(self._folder / "storage"), "a1-count-0").writer(number)
        self._last = frozen.persist(number, writer)
        frozen.release()
        self.costs.upload_ms.append((time.perf_counter() - synced) * 1000)
        parts = (self._last.handle, *self._last.increments, *self._last.files)
        handles = [part for part in parts if part is not None]
        self.costs.size_bytes.append(sum(handle.size_bytes for handle in handles))
        self.costs.written_bytes.append(
            sum(handle.size_bytes for handle in handles if handle.checkpoint_id in (0, number))
        )


class _PeakWatch:
    """The largest resident size of this process, looked at every 20 ms."""

    def __init__(self) -> None:
        self._peak = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rss-watch", daemon=True)
        self._thread.start()

    def peak_mib(self) -> float:
        """So far."""
        return max(self._peak, rss_mib())

    def close(self) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(0.02):
            self._peak = max(self._peak, rss_mib())


def _choice(arguments: argparse.Namespace) -> Choice:
    if arguments.backend == "rocksdb":
        return Choice(RocksdbBackend(memory_bytes=arguments.memory * _MIB))
    return Choice(FilesystemBackend(), full_every=arguments.full_every)


def _partial(ids: Any) -> pa.Table:
    """One row a key, as the exchange delivers it; the hash is as well mixed as Spark's."""
    ones = np.ones(len(ids), np.int64)
    names = pa.array(np.char.add("key-", ids.astype("U8")).tolist(), pa.string())
    return pa.table([names, pa.array(mixed(ids)), pa.array(ones), pa.array(ids.astype(np.int64))], schema=_SCHEMA)


def _add(counts: Any, fired: pa.Table) -> None:
    """Adds what a portion of a firing tells to the counts by key."""
    numbers = pc.cast(pc.utf8_slice_codeunits(fired.column("key"), len("key-")), pa.int64())
    counts[numbers.to_numpy()] += fired.column("n").to_numpy()


def _counts(found: pa.Table, ids: Any) -> Any:
    """The counts of `found` in the order of `ids`."""
    by_name = dict(zip(found.column("key").to_pylist(), found.column("n").to_pylist(), strict=True))
    return np.fromiter((by_name[f"key-{number}"] for number in ids.tolist()), np.int64, len(ids))


def _without_goal(name: str, value: float, _goal: float, unit: str) -> Row:
    return Row(name, f"{value:,.4g} {unit}")


def _measurement(arguments: argparse.Namespace, costs: Costs) -> Measurement:
    shares = [100 * w / s for w, s in zip(costs.written_bytes[1:], costs.size_bytes[1:], strict=True)]
    sync_ms = costs.sync_ms[1:]
    held_ms = [max(0.0, number - statistics.median(costs.batch_ms)) for number in costs.slowest_ms]
    changed = f"{arguments.changed:g} % of {arguments.keys:,} keys"
    judged = at_most if arguments.backend == "rocksdb" and not arguments.windows else _without_goal
    rows = (
        judged(f"resident memory at most, {arguments.keys:,} keys", costs.rss_mib, 1024, "MiB"),
        Row("of it before the first key", f"{costs.base_mib:.0f} MiB"),
        Row("full size of a snapshot", f"{costs.size_bytes[-1] / _MIB:.0f} MiB"),
        Row("filling", f"{arguments.keys / costs.fill_s:,.0f} keys/s"),
        Row(f"micro-batch of {arguments.batch:,} keys, median", f"{statistics.median(costs.batch_ms):.0f} ms"),
        judged(f"snapshot after {changed} written, median", statistics.median(shares), 3, "% of the full size"),
        judged(f"the same, mean of {len(shares)}", statistics.fmean(shares), 3, "% of the full size"),
        Row("the same, most", f"{max(shares):.1f} % of the full size"),
        judged("snapshot, synchronous part, median", statistics.median(sync_ms), 50, "ms"),
        judged("snapshot, synchronous part, worst", max(sync_ms), 50, "ms"),
        judged("slowest batch while it is stored, beyond the usual one, median", statistics.median(held_ms), 50, "ms"),
        Row("the same, worst", f"{max(held_ms):.0f} ms"),
        Row("snapshot, upload, median", f"{statistics.median(costs.upload_ms[1:]):.0f} ms"),
        Row("restore at the same parallelism", f"{costs.restore_s:.1f} s"),
    )
    if arguments.windows:
        rows += (
            Row("all windows fire at once", f"{costs.fire_s:.1f} s"),
            Row("resident memory at most, then", f"{costs.fired_rss_mib:.0f} MiB"),
        )
    return Measurement(
        rows,
        {
            "backend": arguments.backend,
            "windows": arguments.windows,
            "keys": arguments.keys,
            "changed_percent": arguments.changed,
            "memory_mib": arguments.memory,
            "rss_mib": costs.rss_mib,
            "base_rss_mib": costs.base_mib,
            "fill_s": costs.fill_s,
            "batch_ms": costs.batch_ms,
            "slowest_ms": costs.slowest_ms,
            "sync_ms": costs.sync_ms,
            "upload_ms": costs.upload_ms,
            "size_bytes": costs.size_bytes,
            "written_bytes": costs.written_bytes,
            "written_percent": shares,
            "restore_s": costs.restore_s,
            "fire_s": costs.fire_s,
            "fired_rss_mib": costs.fired_rss_mib,
        },
    )


def main() -> int:
    """Command line."""
    options = parser("rocksdb", "Keyed state in RocksDB: memory, snapshots, restore.")
    options.add_argument("--keys", type=int, default=10_000_000, help="keys of the state")
    options.add_argument("--changed", type=float, default=1.0, help="percent of the keys changed between snapshots")
    options.add_argument("--snapshots", type=int, default=30, help="measured snapshots")
    options.add_argument("--batch", type=int, default=10_000, help="keys of a micro-batch")
    options.add_argument("--backend", choices=("rocksdb", "filesystem"), default="rocksdb", help="to compare with")
    options.add_argument(
        "--full-every", type=int, default=10, help="of filesystem: snapshots from a full one to the next"
    )
    options.add_argument("--windows", choices=tuple(_WINDOWS), default="", help="of windows instead, one for each key")
    options.add_argument("--memory", type=int, default=128, help="MiB for cache and write buffers (memory_bytes)")
    options.add_argument("--folder", default="", help="where to work; a temporary folder when left out")
    return run(options.parse_args(), measure)


if __name__ == "__main__":
    sys.exit(main())
