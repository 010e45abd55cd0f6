"""`python -m benchmarks.standby_restore`: where the time of a restore from standby copies goes.

Drives the task manager's own stores and its keeper of copies in this process, without Spark and without a cluster.
State of each kind is stored as a full snapshot with or without increments, its files are fetched as copies, and the
last snapshot is restored from these. Times are of the processor, because other processes may have it as well.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lockgate_proto.messages import (
    Aggregate,
    AggregateFunction,
    AttemptId,
    FilesystemBackend,
    KeepCopies,
    KeyedAggregate,
    OperatorState,
    RocksdbBackend,
    StateBackend,
    StateHandle,
    StateKind,
    TumblingWindow,
    Window,
)
from lockgate_taskmanager.runtime.copy_keeper import CopyKeeper
from lockgate_taskmanager.state.backend import fetch_table, load, make_backend, use_copies
from lockgate_taskmanager.state.factory import StoreFactory
from lockgate_taskmanager.state.heap.snapshots import handles_of
from lockgate_taskmanager.state.local_copies import LocalCopies
from lockgate_taskmanager.state.rows.row_store import NEVER, PROCESS, Keys, Rows, RowSpec
from lockgate_taskmanager.state.scratch import ScratchFolder
from lockgate_taskmanager.state.spec import StoreSpec
from lockgate_taskmanager.task.program import SnapshotOrder

from benchmarks.common import Measurement, Row, WrongResult, mixed, parser, run, say

_GROUPS = 128
_AT_ONCE = 100_000
_PANES = 10
_COUNTED = KeyedAggregate(
    ("key",), (Aggregate("n", AggregateFunction.COUNT, ""), Aggregate("total", AggregateFunction.SUM, "value"))
)
_PARTIAL = pa.schema([("key", pa.string()), ("__hash", pa.int64()), ("__rows", pa.int64()), ("__p1", pa.int64())])
_RECORDS = pa.schema([("key", pa.string())])
_KINDS = ("aggregate", "tumbling", "process")
_CHOICES = {
    "filesystem": StateBackend(FilesystemBackend(), full_every=10),
    "rocksdb": StateBackend(RocksdbBackend(), full_every=10),
}


@dataclass(frozen=True)
class Cost:
    """The fastest of some restores. stages_ms: processor milliseconds by stage.

    read: the files, with their SHA-256, or the tables of a database; merge: a full snapshot with its increments; build:
    the store with its index, or the opened database.
    """

    files: int
    size_bytes: int
    stages_ms: dict[str, float]

    @property
    def total_ms(self) -> float:
        """Of the whole restore."""
        return sum(self.stages_ms.values())


def measure(arguments: argparse.Namespace) -> Measurement:
    """Every kind of state in every backend, of each size."""
    rows, values = [], []
    for keys, kind, backend in itertools.product(arguments.keys, arguments.kinds, arguments.backends):
        for increments in dict.fromkeys((0, arguments.increments)):
            with tempfile.TemporaryDirectory(prefix="lockgate-restore-", dir=arguments.folder or None) as name:
                cost = _Bench(Path(name).resolve(), kind, backend, keys).measured(increments, arguments)
            what = f"{backend}, {kind}, {keys:,} keys, {increments} increments"
            parts = ", ".join(f"{stage} {ms:.0f}" for stage, ms in cost.stages_ms.items())
            rows.append(Row(what, f"{cost.total_ms:,.0f} ms ({parts}); {cost.size_bytes / (1 << 20):.1f} MiB"))
            say(f"{what}: {rows[-1].measured}")
            values.append({"backend": backend, "kind": kind, "keys": keys, "increments": increments})
            values[-1] |= {"stages_ms": cost.stages_ms, "files": cost.files, "size_bytes": cost.size_bytes}
    return Measurement(tuple(rows), {"costs": values})


class _Bench:
    """One state, from its first row to its restore."""

    def __init__(self, folder: Path, kind: str, backend: str, keys: int) -> None:
        self._folder, self._kind, self._keys = folder, kind, keys
        self._choice = _CHOICES[backend]
        self._scratch = ScratchFolder(folder / "work", "state-")
        self._copies = LocalCopies(ScratchFolder(folder / "work", "copies-"))
        self._factory = StoreFactory(self._choice, self._scratch)
        self._spec = _spec(kind)
        self._random = np.random.default_rng(7)
        self._snapshots = 0

    def measured(self, increments: int, arguments: argparse.Namespace) -> Cost:
        """Raises WrongResult when the restored store has other rows."""
        state = self._stored(increments, arguments.changed)
        handles = (*handles_of(state), *state.files)
        use_copies(self._copies)
        try:
            runs = [self._restore(state, handles, f"run-{number}") for number in range(arguments.times)]
        finally:
            use_copies(None)
            self._copies.close()
            self._scratch.close()
        fastest = min(runs, key=lambda stages: sum(stages.values()))
        return Cost(len(handles), sum(handle.size_bytes for handle in handles), fastest)

    def _stored(self, increments: int, changed: float) -> OperatorState:
        schema = self._partial(np.zeros(0, np.int64)).schema if self._kind != "process" else _RECORDS
        store = self._factory.fresh(self._spec, schema)
        self._change(store, self._random.permutation(self._keys))
        state = self._snapshot(store)
        for _ in range(increments):
            count = max(1, int(self._keys * changed / 100))
            self._change(store, self._random.choice(self._keys, count, replace=False))
            state = self._snapshot(store)
        store.close()
        return state

    def _snapshot(self, store: Any) -> OperatorState:
        self._snapshots += 1
        frozen = store.snapshot(SnapshotOrder(self._snapshots - 1))
        writer = make_backend(self._choice, str(self._folder / "storage"), "a1-state-0").writer(self._snapshots)
        state: OperatorState = frozen.persist(self._snapshots, writer)
        frozen.release()
        return state

    def _change(self, store: Any, ids: Any) -> None:
        for start in range(0, len(ids), _AT_ONCE):
            some = ids[start : start + _AT_ONCE]
            if self._kind == "process":
                keys = Keys(pa.RecordBatch.from_arrays([_names(some)], schema=_RECORDS), mixed(some))
                payloads = pc.cast(_names(some, "payload of one customer "), pa.binary())
                never = np.full(len(some), NEVER)
                store.put(keys, Rows(payloads, never, never, never))
            else:
                store.merge(self._partial(some))

    def _partial(self, ids: Any) -> pa.Table:
        ones = np.ones(len(ids), np.int64)
        who = ids // _PANES if self._kind == "tumbling" else ids  # each key has as many windows
        table = pa.table([_names(who), pa.array(mixed(who)), pa.array(ones), pa.array(ids)], schema=_PARTIAL)
        return table.add_column(2, "__pane", pa.array(ids % _PANES * 60_000)) if self._kind == "tumbling" else table

    def _restore(self, state: OperatorState, handles: Sequence[StateHandle], run_id: str) -> dict[str, float]:
        """From copies that were just fetched."""
        self._fetch(handles, run_id)
        stages = {"read": 0.0, "merge": 0.0}
        if state.kind is StateKind.ROCKSDB_STATE:
            target = self._scratch.new_path()
            target.mkdir()
            stages["read"] = _took(lambda: self._link(state.files, target))
        else:
            chain: list[Any] = []
            stages["read"] = _took(lambda: chain.extend(self._read(handle) for handle in handles))
            stages["merge"] = _took(lambda: self._spec.latest(chain))
            del chain
        self._copies.forget_run(run_id)
        self._fetch(handles, f"{run_id}-again")  # none of them is known to be as it was stored
        made: list[Any] = []
        whole = _took(lambda: made.append(self._factory.restored(self._spec, [state], self._snapshots)))
        stages["build"] = max(0.0, whole - sum(stages.values()))
        self._copies.forget_run(f"{run_id}-again")
        if hasattr(made[0], "__len__") and len(made[0]) != self._keys:
            raise WrongResult(f"{len(made[0]):,} of {self._keys:,} keys were restored")
        made[0].close()
        return stages

    def _fetch(self, handles: Sequence[StateHandle], run_id: str) -> None:
        keeper = CopyKeeper(self._copies, lambda _: None)
        keeper.keep(KeepCopies(AttemptId("benchmark", run_id, 1), self._snapshots, tuple(handles)))
        for _ in keeper.steps():
            pass

    def _link(self, tables: Sequence[StateHandle], target: Path) -> None:
        for table in tables:
            fetch_table(table, target / table.name)

    def _read(self, handle: StateHandle) -> Any:
        return self._spec.read(load(handle), self._spec.where(handle))


def _spec(kind: str) -> Any:
    if kind == "process":
        return RowSpec("state", PROCESS, ("key",), _GROUPS, range(_GROUPS))
    window = Window(TumblingWindow(60_000), "at") if kind == "tumbling" else None
    return StoreSpec("state", replace(_COUNTED, window=window), _GROUPS, range(_GROUPS))


def _names(ids: Any, before: str = "key-") -> pa.Array:
    return pc.binary_join_element_wise(before, pc.cast(pa.array(ids), pa.string()), "")


def _took(call: Callable[[], object]) -> float:
    """Processor milliseconds of this process."""
    started = time.process_time()
    call()
    return (time.process_time() - started) * 1000


def main() -> int:
    """Command line."""
    options = parser("standby_restore", "Where the time of a restore from standby copies goes.")
    options.add_argument("--keys", type=int, nargs="+", default=(10_000, 100_000, 1_000_000), help="sizes of the state")
    options.add_argument("--backends", nargs="+", choices=tuple(_CHOICES), default=tuple(_CHOICES), help="to measure")
    options.add_argument("--kinds", nargs="+", choices=_KINDS, default=_KINDS, help="of state")
    options.add_argument("--increments", type=int, default=9, help="after the full snapshot")
    options.add_argument("--changed", type=float, default=1.0, help="percent of the keys changed by each increment")
    options.add_argument("--times", type=int, default=3, help="restores of each, of which the fastest counts")
    options.add_argument("--folder", default="", help="where to work; a temporary folder when left out")
    return run(options.parse_args(), measure)


if __name__ == "__main__":
    sys.exit(main())
