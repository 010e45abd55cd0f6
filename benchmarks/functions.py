"""`python -m benchmarks.functions`: records a second through functions per record, one at a time and vectorised.

Drives the task manager's own programs (a source subtask and the subtask with the function) in this process, without a
cluster, as the benchmark `process` does. All functions get the same records, (key, value), and what they put out is
compared with them. The same lambda is measured in Spark's Python workers, too, and a process function as a yardstick.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from lockgate_taskmanager.task.program import Exhausted, Idle

from benchmarks import process
from benchmarks.common import Measurement, Row, WrongResult, at_least, parser, run, say
from lockgate import Job
from lockgate.errors import UserError
from lockgate.pipeline.stream import Stream

_TARGET_MS = 60_000  # the size of a batch is bounded by bytes alone
_LINE_BYTES = 12  # 1234567,123\n
_WARM_BATCHES = 15  # slow start, and the JVM's compiler
_SOURCE, _CALLED = "records", "called"
_SCHEMA = "key BIGINT, value BIGINT"
_ONE, _MANY = 300_000, 3_000_000  # records/s that are wanted of one core

Record = dict[str, Any]


def _in_workers(df: Any) -> Any:
    """The lambda of `map` in Spark's Python workers."""

    def each(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            records = [{"key": record["key"], "value": record["value"] + 1} for record in batch.to_pylist()]
            yield type(batch).from_pylist(records, batch.schema)

    return df.mapInArrow(each, _SCHEMA)


def _added(table: pa.Table) -> pa.Table:
    return table.set_column(1, "value", pc.add(table["value"], 1))


def _in_workers_vectorized(df: Any) -> Any:
    def each(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as arrow
        import pyarrow.compute as compute

        for batch in batches:
            columns = [batch.column(0), compute.add(batch.column(1), 1)]
            yield arrow.RecordBatch.from_arrays(columns, schema=batch.schema)

    return df.mapInArrow(each, _SCHEMA)


@dataclass(frozen=True, slots=True)
class Case:
    """What is measured. add: the operator; goal: records/s, None: it is there to compare."""

    add: Callable[[Stream], Stream]
    goal: int | None = None
    is_filter: bool = False


CASES: dict[str, Case] = {
    "map, lambda": Case(lambda s: s.map(lambda r: {"key": r["key"], "value": r["value"] + 1}, _SCHEMA), _ONE),
    "map, lambda of a tuple": Case(lambda s: s.map(lambda r: (r["key"], r["value"] + 1), _SCHEMA), _ONE),
    "flat_map, lambda": Case(lambda s: s.flat_map(lambda r: [(r["key"], r["value"] + 1)], _SCHEMA), _ONE),
    "filter, lambda": Case(lambda s: s.filter(lambda r: r["value"] % 2 == 0), _ONE, is_filter=True),
    "map, arrow": Case(lambda s: s.map(_added, _SCHEMA, vectorized="arrow"), _MANY),
    "flat_map, arrow": Case(lambda s: s.flat_map(_added, _SCHEMA, vectorized="arrow"), _MANY),
    "filter, arrow": Case(
        lambda s: s.filter(lambda t: pc.equal(pc.bit_wise_and(t["value"], 1), 0), vectorized="arrow"), _MANY, True
    ),
    "map, pandas": Case(lambda s: s.map(lambda f: f.assign(value=f.value + 1), _SCHEMA, vectorized="pandas"), _MANY),
    "the lambda in Spark's workers": Case(lambda s: s.transform(_in_workers)),
    "arrow in Spark's workers": Case(lambda s: s.transform(_in_workers_vectorized)),
}


def measure(arguments: argparse.Namespace) -> Measurement:
    """All side by side in one engine, batch by batch in turn, so that load and warmth are the same."""
    from lockgate_taskmanager.spark.engine import SparkEngine

    with tempfile.TemporaryDirectory(prefix="lockgate-functions-") as name:
        work = Path(name).resolve()
        process.write_input(work / "input", arguments)
        say("starting Spark ...")
        engine = SparkEngine("local[2]", {}, 2, str(work / "engine"), _TARGET_MS, arguments.batch * _LINE_BYTES)
        try:
            engine.warm_up()
            stages = {name: _Stage(engine, work, name) for name in CASES}
            yardstick = process.Stage(engine, work, "process function")
            for _ in range(_WARM_BATCHES + arguments.batches):
                for stage in stages.values():
                    stage.batch()
                yardstick.batch()
            speeds = {name: stage.speed() for name, stage in stages.items()}
            for stage in stages.values():
                stage.close()
            yardstick.close()
        finally:
            engine.close()
    return _measurement(arguments, speeds, yardstick.speed().per_second)


@dataclass(frozen=True, slots=True)
class Speed:
    """Records for each second, and for each second of processor time of the calling thread."""

    per_second: float
    per_processor_second: float


class _Stage:
    """A source subtask, and behind an exchange the subtask with the function, which alone is timed."""

    def __init__(self, engine: Any, work: Path, name: str) -> None:
        say(f"preparing: {name}")
        self._name, self._case = name, CASES[name]
        job = Job("functions benchmark", parallelism=1)
        records = job.read_csv(work / "input", schema=_SCHEMA).uid(_SOURCE)
        self._case.add(records.rebalance()).uid(_CALLED).rebalance().print()
        graph = job.graph()
        contexts = (process.context(work / re.sub(r"\W+", "-", name), graph, item) for item in (_SOURCE, _CALLED))
        self._source, self._called = map(engine.build, contexts)
        self._called.open()
        for emission in self._source.open().emissions:
            self._called.process(_SOURCE, emission.table)
        self._source.assign(*engine.discover(graph, _SOURCE, ()))
        self._batches: list[tuple[int, float, float]] = []

    def batch(self) -> None:
        """Reads one micro-batch, and times the function on it."""
        polled = self._source.poll()
        if isinstance(polled, Exhausted | Idle):
            raise UserError(f"the input has ended too early: {polled}")
        tables = [emission.table for emission in polled.emissions if emission.table.num_rows]
        started, worked = time.perf_counter(), time.thread_time()
        batches = [self._called.process(_SOURCE, table) for table in tables]
        self._batches.append((polled.read_rows, time.perf_counter() - started, time.thread_time() - worked))
        self._check(pa.concat_tables(tables), [out.table for found in batches for out in found.emissions])

    def speed(self) -> Speed:
        """Of the median batch, without the first ones."""
        measured = self._batches[_WARM_BATCHES:]
        return Speed(
            statistics.median(count / seconds for count, seconds, _ in measured),
            statistics.median(count / seconds for count, _, seconds in measured),
        )

    def close(self) -> None:
        """Releases both."""
        self._source.close()
        self._called.close()

    def _check(self, given: pa.Table, found: list[pa.Table]) -> None:
        if self._case.is_filter:
            wanted = given.filter(pc.equal(pc.bit_wise_and(given["value"], 1), 0))
        else:
            wanted = _added(given)
        if not pa.concat_tables(found).equals(wanted):
            raise WrongResult(f"{self._name}: what it has put out is not what its records say")


def _measurement(arguments: argparse.Namespace, speeds: dict[str, Speed], yardstick: float) -> Measurement:
    rows = []
    for name, speed in speeds.items():
        goal, found = CASES[name].goal, speed.per_second
        if goal is None:
            rows.append(Row(name, f"{found:,.0f} records/s"))
            continue
        rows.append(at_least(name, found, goal, "records/s"))
        # not of those that work in other processes
        rows.append(Row("  for a second of processor time", f"{speed.per_processor_second:,.0f} records"))
    rows.append(Row("process function, with its source", f"{yardstick:,.0f} records/s"))
    values = {name: asdict(speed) for name, speed in speeds.items()}
    return Measurement(tuple(rows), {"batch": arguments.batch, "functions": values, "process_function": yardstick})


def main() -> int:
    """Command line."""
    options = parser("functions", "Functions per record, one at a time and vectorised: records a second on one core.")
    options.add_argument("--batch", type=int, default=50_000, help="records in each micro-batch")
    options.add_argument("--keys", type=int, default=100_000, help="different keys")
    options.add_argument("--batches", type=int, default=20, help="measured micro-batches of each")
    return run(options.parse_args(), measure)


if __name__ == "__main__":
    sys.exit(main())
