"""`python -m benchmarks.diffs`: what snapshots write of large values that change a little, whole and as differences.

Drives the task manager's own store of what process functions keep, in this process, without Spark and without a
cluster: payloads go in as they come from the function, snapshots are stored in a folder as they are for a job, and the
last one is restored and every value compared.
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
from lockgate_proto.messages import FilesystemBackend, OperatorState, StateBackend
from lockgate_taskmanager.state.backend import make_backend
from lockgate_taskmanager.state.factory import StoreFactory
from lockgate_taskmanager.state.heap.snapshots import handles_of
from lockgate_taskmanager.state.rows.row_store import NEVER, Keys, Rows, RowSpec
from lockgate_taskmanager.state.scratch import ScratchFolder
from lockgate_taskmanager.task.program import SnapshotOrder

from benchmarks.common import Measurement, Row, WrongResult, at_most, parser, rss_mib, run, say

_GROUPS = 128
_MIB = 1 << 20
_SPEC = RowSpec("profiles", "process", ("key",), _GROUPS, range(_GROUPS))
_RECORDS = pa.schema([("key", pa.int64()), ("__hash", pa.int64())])


@dataclass
class Costs:
    """What was measured. Lists: one value for each snapshot after the first."""

    put_ms: list[float] = field(default_factory=list)
    sync_ms: list[float] = field(default_factory=list)
    upload_ms: list[float] = field(default_factory=list)
    written_bytes: list[int] = field(default_factory=list)
    full_bytes: int = 0
    restore_s: float = 0.0
    rss_mib: float = 0.0

    @property
    def written_percent(self) -> float:
        """Mean of what a snapshot writes, of a full one."""
        return 100 * statistics.fmean(self.written_bytes) / self.full_bytes


def measure(arguments: argparse.Namespace) -> Measurement:
    """The same values and changes in turn: whole, and as differences; some of the keys, and all."""
    found: dict[tuple[int, bool], Costs] = {}
    for percent in (arguments.changed, 100):
        for binary_diff in (False, True):
            say(f"{percent} % of {arguments.keys:,} keys changed, {_form(binary_diff)} ...")
            with tempfile.TemporaryDirectory(prefix="lockgate-diffs-", dir=arguments.folder or None) as name:
                found[percent, binary_diff] = Bench(Path(name).resolve(), arguments, percent, binary_diff).run()
    return _measurement(arguments, found)


class Bench:
    """One store from its first snapshot to its restore. percent: of the keys, changed between snapshots."""

    def __init__(self, folder: Path, arguments: argparse.Namespace, percent: float, binary_diff: bool) -> None:
        self._folder, self._arguments = folder, arguments
        self._changed = max(1, round(arguments.keys * percent / 100))
        self._random = np.random.default_rng(7)
        self._choice = StateBackend(FilesystemBackend(), arguments.full_every, binary_diff)
        self._stores = StoreFactory(self._choice, ScratchFolder(folder / "work", "state-"))
        self._store = self._stores.fresh(_SPEC, _RECORDS)
        self._values = [self._random.bytes(arguments.size) for _ in range(arguments.keys)]

    def run(self) -> Costs:
        """Raises WrongResult for a value that is not what it was."""
        costs = Costs()
        everything = np.arange(len(self._values))
        self._put(everything)
        state, _, _ = self._snapshot(1)
        costs.full_bytes = sum(handle.size_bytes for handle in handles_of(state))
        for number in range(2, self._arguments.snapshots + 2):
            rows = self._random.choice(len(self._values), self._changed, replace=False)
            for row in rows.tolist():
                self._values[row] = self._edited(self._values[row])
            started = time.perf_counter()
            self._put(rows)
            costs.put_ms.append((time.perf_counter() - started) * 1000)
            state, sync_ms, upload_ms = self._snapshot(number)
            costs.sync_ms.append(sync_ms)
            costs.upload_ms.append(upload_ms)
            costs.written_bytes.append(
                sum(handle.size_bytes for handle in handles_of(state) if handle.checkpoint_id in (0, number))
            )
        costs.rss_mib = rss_mib()
        self._store.close()
        started = time.perf_counter()
        again = self._stores.restored(_SPEC, (state,), self._arguments.snapshots + 1)
        costs.restore_s = time.perf_counter() - started
        if again.find(_keys(everything), 0).to_pylist() != self._values:
            raise WrongResult("a restored value is not what it was")
        again.close()
        return costs

    def _edited(self, value: bytes) -> bytes:
        """Some bytes at places of their own are others now."""
        fresh = bytearray(value)
        for at in self._random.integers(0, len(value), self._arguments.edits).tolist():
            fresh[at] ^= 0x55
        return bytes(fresh)

    def _put(self, rows: Any) -> None:
        payloads = pa.array([self._values[row] for row in rows.tolist()], pa.binary())
        never = np.full(len(rows), NEVER)
        self._store.put(_keys(rows), Rows(payloads, never, never, never))

    def _snapshot(self, number: int) -> tuple[OperatorState, float, float]:
        started = time.perf_counter()
        frozen = self._store.snapshot(SnapshotOrder(number - 1))
        synced = time.perf_counter()
        writer = make_backend(self._choice, str(self._folder / "storage"), "a1-profiles-0").writer(number)
        state = frozen.persist(number, writer)
        frozen.release()
        return state, (synced - started) * 1000, (time.perf_counter() - synced) * 1000


def _keys(rows: Any) -> Keys:
    """Numbers as keys, with hashes that are mixed well enough."""
    hashes = (rows.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)).view(np.int64)
    return Keys(pa.RecordBatch.from_arrays([pa.array(rows, pa.int64())], ["key"]), hashes)


def _form(binary_diff: bool) -> str:
    return "differences" if binary_diff else "whole values"


def _measurement(arguments: argparse.Namespace, found: dict[tuple[int, bool], Costs]) -> Measurement:
    first = next(iter(found.values()))
    rows = [Row("full size of a snapshot", f"{first.full_bytes / _MIB:.0f} MiB")]
    for (percent, binary_diff), costs in found.items():
        name = f"{percent} % of the keys, {_form(binary_diff)}: "
        share = f"{name}written by a snapshot, mean"
        if binary_diff:  # each full one is a part of the mean
            goal = 100 / arguments.full_every + 1
            rows.append(at_most(share, costs.written_percent, goal, "% of the full size"))
        else:
            rows.append(Row(share, f"{costs.written_percent:,.4g} % of the full size"))
        rows += [
            Row(f"{name}least", f"{min(costs.written_bytes) / 1024:,.0f} KiB"),
            Row(f"{name}synchronous part, worst", f"{max(costs.sync_ms):.2f} ms"),
            Row(f"{name}background, median", f"{statistics.median(costs.upload_ms):,.0f} ms"),
            Row(f"{name}restore", f"{costs.restore_s:.2f} s"),
        ]
    values = {
        f"{percent}%, {'diff' if binary_diff else 'whole'}": {
            "full_bytes": costs.full_bytes,
            "written_bytes": costs.written_bytes,
            "written_percent": costs.written_percent,
            "put_ms": costs.put_ms,
            "sync_ms": costs.sync_ms,
            "upload_ms": costs.upload_ms,
            "restore_s": costs.restore_s,
            "rss_mib": costs.rss_mib,
        }
        for (percent, binary_diff), costs in found.items()
    }
    return Measurement(tuple(rows), {"keys": arguments.keys, "value_bytes": arguments.size, **values})


def main() -> int:
    """Command line."""
    options = parser("diffs", "Large values that change a little: what snapshots write, whole and as differences.")
    options.add_argument("--keys", type=int, default=1_000, help="keys of the state")
    options.add_argument("--size", type=int, default=100_000, help="bytes of each value")
    options.add_argument("--changed", type=int, default=10, help="percent of the keys changed between snapshots")
    options.add_argument("--edits", type=int, default=20, help="bytes of a value that change each time")
    options.add_argument("--snapshots", type=int, default=20, help="measured snapshots, after the first")
    options.add_argument("--full-every", type=int, default=10, help="snapshots from a full one to the next")
    options.add_argument("--folder", default="", help="where to work; a temporary folder when left out")
    return run(options.parse_args(), measure)


if __name__ == "__main__":
    sys.exit(main())
