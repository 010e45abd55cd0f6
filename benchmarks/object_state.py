"""`python -m benchmarks.object_state`: an object that names the parts of its state, of which few change at a time.

Drives the state of one object in this process, without Spark and a cluster: change parts, take a snapshot, store it,
delete files that no snapshot refers to any more, as the leader does; at the end a restore into a new object. Parts are
chosen at random over the whole state, which is the worst case: no file becomes outdated as a whole.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lockgate_proto.messages import ObjectState, OperatorState, StateHandle
from lockgate_taskmanager.spark.functions.object_restore import Owner
from lockgate_taskmanager.spark.functions.object_state import StateOfObject
from lockgate_taskmanager.state.backend import FileBackend
from lockgate_taskmanager.state.parts import pack_reader
from lockgate_taskmanager.task.program import SnapshotOrder

from benchmarks.common import Measurement, Row, WrongResult, at_most, parser, run, say

_MIB = 1 << 20


@dataclass(slots=True)
class Costs:
    """Of each snapshot after the first; read_bytes: of the restore; stored_bytes: in the storage, at the end."""

    written_bytes: list[int] = field(default_factory=list)
    sync_ms: list[float] = field(default_factory=list)
    upload_ms: list[float] = field(default_factory=list)
    first_s: float = 0.0
    read_bytes: int = 0
    restore_s: float = 0.0
    stored_bytes: int = 0


class _Model:
    """The author's object."""

    def __init__(self, parts: dict[str, bytes]) -> None:
        self.parts, self.changed = parts, set[str]()

    def change(self, name: str) -> None:
        self.parts[name] = os.urandom(len(self.parts[name]))
        self.changed.add(name)

    def snapshot_state(self) -> dict[str, bytes]:
        return self.parts

    def changes_since_last_checkpoint(self) -> dict[str, bytes]:
        names, self.changed = self.changed, set()
        return {name: self.parts[name] for name in names}

    def restore_state(self, state: dict[str, bytes]) -> None:
        self.parts = state


def measure(arguments: argparse.Namespace) -> Measurement:
    """One object, snapshot after snapshot."""
    with tempfile.TemporaryDirectory(prefix="lockgate-object-", dir=arguments.folder or None) as name:
        return _measurement(arguments, measured(arguments, Path(name)))


def measured(arguments: argparse.Namespace, folder: Path) -> Costs:
    """Snapshots of one object, and a restore. Raises WrongResult for another state than it had."""
    count, rng, costs = arguments.parts, random.Random(7), Costs()
    size = arguments.mib * _MIB // count
    say(f"{count:,} parts of {size:,} bytes ...")
    model = _Model({f"part-{number}": os.urandom(size) for number in range(count)})
    state, names = _state(model), list(model.parts)
    changed = max(1, round(count * arguments.changed / 100))
    stored = OperatorState()
    for number in range(1, arguments.snapshots + 2):
        for part in rng.sample(names, changed if number > 1 else 0):
            model.change(part)
        started = time.perf_counter()
        frozen = state.snapshot(number, SnapshotOrder(number - 1))
        sync_ms = (time.perf_counter() - started) * 1000
        stored = frozen.persist(number, FileBackend(str(folder), "a1-v-0").writer(number))
        upload_ms = (time.perf_counter() - started) * 1000 - sync_ms
        _delete_others(folder, stored)
        if number == 1:
            costs.first_s = upload_ms / 1000
            continue
        handles = (stored.handle or StateHandle(), *stored.files)
        costs.written_bytes.append(sum(handle.size_bytes for handle in handles if handle.checkpoint_id in (0, number)))
        costs.sync_ms.append(sync_ms)
        costs.upload_ms.append(upload_ms)
    costs.stored_bytes = sum(path.stat().st_size for path in folder.rglob("*.state"))
    _restore(model, stored, costs, arguments.snapshots + 1)
    return costs


def _restore(model: _Model, stored: OperatorState, costs: Costs, number: int) -> None:
    restored = _Model({})
    costs.read_bytes = (stored.handle or StateHandle()).size_bytes
    with _counted(costs):
        started = time.perf_counter()
        _state(restored).restore([stored], number)
        costs.restore_s = time.perf_counter() - started
    if restored.parts != model.parts:
        raise WrongResult("the restored state is another one")


@contextmanager
def _counted(costs: Costs) -> Iterator[None]:
    """Counts the bytes that a restore asks the storage for."""
    load, load_ranges = pack_reader.load, pack_reader.load_ranges

    def whole(handle: StateHandle) -> Any:
        costs.read_bytes += handle.size_bytes
        return load(handle)

    def ranges(handle: StateHandle, wanted: Sequence[tuple[int, int]]) -> Any:
        costs.read_bytes += sum(size for _, size in wanted)
        return load_ranges(handle, wanted)

    vars(pack_reader).update(load=whole, load_ranges=ranges)
    try:
        yield
    finally:
        vars(pack_reader).update(load=load, load_ranges=load_ranges)


def _state(model: _Model) -> StateOfObject:
    return StateOfObject(model, ObjectState.OBJECT_STATE_SPLIT, Owner("model", "model", 0, 1), has_files=True)


def _delete_others(folder: Path, stored: OperatorState) -> None:
    kept = {handle.path.removeprefix("file://") for handle in (stored.handle or StateHandle(), *stored.files)}
    for path in folder.rglob("*.state"):
        if str(path) not in kept:
            path.unlink()


def _measurement(arguments: argparse.Namespace, costs: Costs) -> Measurement:
    size = arguments.mib * _MIB
    settled = costs.written_bytes[len(costs.written_bytes) // 2 :]
    mean, worst = statistics.mean(settled) / size * 100, max(costs.written_bytes) / size * 100
    rows = (
        Row("state", f"{arguments.mib:,} MiB in {arguments.parts:,} parts, {arguments.changed:g} % changed"),
        Row("first snapshot, background", f"{costs.first_s:.1f} s"),
        at_most("written by a snapshot, mean of the second half", mean, 3, "% of the state"),
        Row("written by a snapshot, worst", f"{worst:.2f} % of the state"),
        Row(
            "synchronous part, median and worst", f"{statistics.median(costs.sync_ms):.1f}, {max(costs.sync_ms):.1f} ms"
        ),
        Row("background, median", f"{statistics.median(costs.upload_ms):,.0f} ms"),
        Row("in the storage", f"{costs.stored_bytes / size:.2f} times the state"),
        at_most("read by a restore", costs.read_bytes / size, 1.1, "times the state"),
        Row("restore", f"{costs.restore_s:.2f} s"),
    )
    values = {
        "mib": arguments.mib,
        "parts": arguments.parts,
        "changed_percent": arguments.changed,
        "written_bytes": costs.written_bytes,
        "written_percent": mean,
        "sync_ms": costs.sync_ms,
        "upload_ms": costs.upload_ms,
        "stored_bytes": costs.stored_bytes,
        "read_bytes": costs.read_bytes,
        "restore_s": costs.restore_s,
    }
    return Measurement(rows, values)


def main() -> int:
    """Command line."""
    options = parser("object_state", "State of an object in named parts: what snapshots write and a restore reads.")
    options.add_argument("--mib", type=int, default=1_024, help="size of the state")
    options.add_argument("--parts", type=int, default=10_000, help="number of its parts")
    options.add_argument("--changed", type=float, default=1.0, help="percent of the parts changed between snapshots")
    options.add_argument("--snapshots", type=int, default=200, help="measured snapshots, after the first")
    options.add_argument("--folder", default="", help="where to work; a temporary folder when left out")
    return run(options.parse_args(), measure)


if __name__ == "__main__":
    sys.exit(main())
