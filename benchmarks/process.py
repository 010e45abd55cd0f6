"""`python -m benchmarks.process`: records a second through a process function, a deduplication and a keyed aggregate.

Drives the task manager's own programs (a source subtask and a keyed subtask) in this process, without a cluster, as the
benchmark `state` does. All three get the same records, (key, value), every key about equally often, and what they put
out is compared with them.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from lockgate_proto.messages import AttemptId, JobGraph, SubtaskId
from lockgate_taskmanager.task.program import Batch, Exhausted, Idle, ProgramContext
from pyarrow import csv

from benchmarks.common import Measurement, Row, WrongResult, at_least, parser, run, say
from lockgate import Job, ProcessFunction, ValueState, count, sum_
from lockgate.errors import UserError
from lockgate.pipeline.stream import KeyedStream, Stream

_TARGET_MS = 60_000  # the size of a batch is bounded by bytes alone
_LINE_BYTES = 12  # 1234567,123\n
_WARM_BATCHES = 15  # slow start, and the JVM's compiler
_SOURCE, _KEYED = "records", "keyed"
_GOALS = {"process function": 300_000}  # records/s of the subtask alone


class RunningSum(ProcessFunction):
    """A state is read and written for each record, and a row put out: what most functions do at least."""

    total = ValueState("BIGINT")

    def process(self, context: Any, row: dict[str, Any]) -> dict[str, Any]:
        total = self.total.get(0) + row["value"]
        self.total.set(total)
        return {"key": context.key, "total": total}


def _aggregated(records: KeyedStream) -> Stream:
    return records.aggregate(n=count(), total=sum_("value"))


def _deduplicated(records: KeyedStream) -> Stream:
    return records.deduplicate()


def _processed(records: KeyedStream) -> Stream:
    return records.process(RunningSum(), schema="key BIGINT, total BIGINT")


OPERATORS: dict[str, Callable[[KeyedStream], Stream]] = {
    "keyed aggregate": _aggregated,
    "deduplication": _deduplicated,
    "process function": _processed,
}


@dataclass(frozen=True, slots=True)
class Speed:
    """records, seconds: of each measured micro-batch; own_seconds: in the keyed subtask, without its source."""

    records: tuple[int, ...]
    seconds: tuple[float, ...]
    own_seconds: tuple[float, ...]

    @property
    def per_second(self) -> float:
        """Records, of the median batch."""
        return statistics.median(n / s for n, s in zip(self.records, self.seconds, strict=True))

    @property
    def own_per_second(self) -> float:
        """The same by the keyed subtask."""
        return statistics.median(n / s for n, s in zip(self.records, self.own_seconds, strict=True))


def graph(folder: Path, add: Callable[[KeyedStream], Stream]) -> JobGraph:
    """The records, a keyed operator behind an exchange, and an edge on which its results leave."""
    job = Job("process benchmark", parallelism=1)
    records = job.read_csv(folder, schema="key BIGINT, value BIGINT").uid(_SOURCE)
    add(records.key_by("key")).uid(_KEYED).rebalance().print()
    return job.graph()


def measure(arguments: argparse.Namespace) -> Measurement:
    """The three side by side in one engine, batch by batch in turn, so that load and warmth are the same."""
    from lockgate_taskmanager.spark.engine import SparkEngine

    with tempfile.TemporaryDirectory(prefix="lockgate-process-") as name:
        work = Path(name).resolve()
        records = write_input(work / "input", arguments)
        say("starting Spark ...")
        engine = SparkEngine("local[2]", {}, 2, str(work / "engine"), _TARGET_MS, arguments.batch * _LINE_BYTES)
        try:
            engine.warm_up()
            stages = {name: Stage(engine, work, name) for name in OPERATORS}
            for _ in range(_WARM_BATCHES + arguments.batches):
                for stage in stages.values():
                    stage.batch()
            for stage in stages.values():
                stage.check(records)
            speeds = {name: stage.speed() for name, stage in stages.items()}
        finally:
            engine.close()
    return _measurement(arguments, speeds)


class Stage:
    """A source subtask and the keyed subtask behind it."""

    def __init__(self, engine: Any, work: Path, name: str) -> None:
        say(f"preparing: {name}")
        job = graph(work / "input", OPERATORS[name])
        self._name = name
        self._source, self._keyed = (engine.build(context(work / name, job, item)) for item in (_SOURCE, _KEYED))
        self._out: list[pa.Table] = []
        self._forward(self._source.open())
        self._keyed.open()
        self._source.assign(*engine.discover(job, _SOURCE, ()))
        self._batches: list[tuple[int, float, float]] = []  # records, seconds, those of the keyed subtask

    def batch(self) -> None:
        """One micro-batch, from reading it to what the keyed operator puts out."""
        started = time.perf_counter()
        polled = self._source.poll()
        if isinstance(polled, Exhausted | Idle):
            raise UserError(f"the input has ended too early: {polled}")
        read = time.perf_counter()
        self._forward(polled)
        ended = time.perf_counter()
        self._batches.append((polled.read_rows, ended - started, ended - read))

    def speed(self) -> Speed:
        """Of all but the first batches."""
        return Speed(*zip(*self._batches[_WARM_BATCHES:], strict=True))

    def check(self, records: Records) -> None:
        """What was put out against the records that were read. Raises WrongResult. Closes the programs."""
        self.close()
        count = sum(n for n, _, _ in self._batches)
        keys, values = records.keys[:count], records.values[:count]
        found = pa.concat_tables(self._out)
        if "total" not in found.schema.names:
            right = sorted(found["key"].to_pylist()) == np.unique(keys).tolist()
        else:  # a total only rises, so the highest is the last
            last = found.group_by("key").aggregate([("total", "max")])
            wanted = np.bincount(keys, values)
            right = {k: int(wanted[k]) for k in np.unique(keys).tolist()} == dict(
                zip(last["key"].to_pylist(), last["total_max"].to_pylist(), strict=True)
            )
        if not right:
            raise WrongResult(f"{self._name}: what it has put out is not what its {count:,} records say")

    def close(self) -> None:
        """Closes the programs."""
        self._source.close()
        self._keyed.close()

    def _forward(self, batch: Batch) -> None:
        for emission in batch.emissions:
            emitted = self._keyed.process(_SOURCE, emission.table)
            self._out += [emission.table for emission in emitted.emissions if emission.table.num_rows]


@dataclass(frozen=True, slots=True)
class Records:
    """The input in the order in which it is read: arrays of equal length."""

    keys: Any
    values: Any


def context(work: Path, job: JobGraph, vertex: str) -> ProgramContext:
    """Of the only subtask of a vertex, in a first attempt."""
    where = SubtaskId(AttemptId("process-benchmark", work.name, 1), vertex, 0)
    widths = {vertex.id: vertex.parallelism for vertex in job.vertices}
    return ProgramContext(where, job, (work / "checkpoints").as_uri(), parallelism=widths)


def write_input(folder: Path, arguments: argparse.Namespace) -> Records:
    """One file that holds more than all batches take."""
    folder.mkdir(parents=True)
    generator = np.random.default_rng(arguments.keys)
    count = 2 * (_WARM_BATCHES + arguments.batches) * arguments.batch
    keys = generator.integers(10**6, 10**6 + arguments.keys, count)  # of one length
    values = generator.integers(100, 1_000, count)
    table = pa.table({"key": keys, "value": values})
    csv.write_csv(table, folder / "records.csv", csv.WriteOptions(include_header=False))
    return Records(keys, values)


def _measurement(arguments: argparse.Namespace, speeds: dict[str, Speed]) -> Measurement:
    plain = speeds["keyed aggregate"].per_second
    rows = []
    for name, speed in speeds.items():
        batch, ms = statistics.median(speed.records), statistics.median(speed.seconds) * 1000
        rows.append(Row(name, f"{speed.per_second:,.0f} records/s"))
        rows.append(Row(f"  a batch of {batch:,.0f}", f"{ms:.0f} ms"))
        own, goal = speed.own_per_second, _GOALS.get(name)
        alone = "  its subtask alone"
        rows.append(at_least(alone, own, goal, "records/s") if goal else Row(alone, f"{own:,.0f} records/s"))
        if speed.per_second != plain:
            rows.append(Row("  of the aggregate's speed", f"{speed.per_second / plain:.2f}"))
    values = {
        name: {"per_second": speed.per_second, "own_per_second": speed.own_per_second, **asdict(speed)}
        for name, speed in speeds.items()
    }
    return Measurement(tuple(rows), {"keys": arguments.keys, "batch": arguments.batch, "operators": values})


def main() -> int:
    """Command line."""
    options = parser("process", "Process function, deduplication, keyed aggregate: records a second on the same input.")
    options.add_argument("--batch", type=int, default=50_000, help="records in each micro-batch")
    options.add_argument("--keys", type=int, default=100_000, help="different keys")
    options.add_argument("--batches", type=int, default=20, help="measured micro-batches of each")
    return run(options.parse_args(), measure)


if __name__ == "__main__":
    sys.exit(main())
