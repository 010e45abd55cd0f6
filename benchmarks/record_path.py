"""`python -m benchmarks.record_path`: where the time of a small micro-batch goes, step by step, in one process.

Drives the task manager's own programs, a source subtask and a keyed subtask with a Python stage, as in the case
keyed_python of `benchmarks.latency`: lines from a socket, a Spark job with partial aggregates, the merge into keyed
state, a Python function with each record, the sink. The exchange and the wait for the previous batch are left
out: the first is a reference in a queue, the second is the duration of a step.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import socket
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lockgate_proto.messages import AttemptId, JobGraph, SubtaskId
from lockgate_taskmanager.task.program import Batch, ProgramContext

from benchmarks.common import Measurement, Row, parser, run, say
from benchmarks.latency import Load, graph

_PAUSE_S = 0.001
_SOURCE, _KEYED = "read_socket-1", "aggregate-1"
_RATE = 1_000


class Steps:
    """Durations in seconds by the name of the step."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = defaultdict(list)

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, measured."""

        def measured(*arguments: Any, **named: Any) -> Any:
            started = time.perf_counter()
            try:
                return function(*arguments, **named)
            finally:
                self.seconds[name].append(time.perf_counter() - started)

        return measured

    def watch(self, owner: Any, method: str, name: str) -> None:
        """Measures a method of one object from now on."""
        setattr(owner, method, self.timed(name, getattr(owner, method)))


class Subtasks:
    """The two subtasks, and the connection from which the first one reads."""

    def __init__(self, engine: Any, work: Path, server: socket.socket) -> None:
        job = graph("keyed_python", server.getsockname()[1], Load(_RATE, 0), 1000, 1)
        self._source, self._keyed = (engine.build(_context(work, job, vertex)) for vertex in (_SOURCE, _KEYED))
        self._forward(self._source.open())
        self._source.assign(*engine.discover(job, _SOURCE, ()))
        self._source.poll()  # connects
        self._sender, _ = server.accept()
        self._next = 0

    def batch(self, records: int) -> None:
        """So many lines, sent and processed."""
        lines = (f"{number} {int(time.time() * 1000)}\n" for number in range(self._next, self._next + records))
        self._next += records
        self._sender.sendall("".join(lines).encode())
        while not isinstance(polled := self._source.poll(), Batch):
            time.sleep(_PAUSE_S)
        self._forward(polled)

    def watch(self, steps: Steps) -> None:
        """Measures every step from now on."""
        source, keyed = self._source._layout, self._keyed._layout
        steps.watch(source.source, "read", "read from the socket")
        plan = source.stages[0]._plan
        steps.watch(plan._leaf, "load", "content for Spark")
        steps.watch(plan._job, "run", "Spark job")  # made by the first batch
        steps.watch(self._source._outputs, "emit", "rows to subtasks")
        steps.watch(self._keyed._state, "merge", "merge into keyed state")
        steps.watch(keyed.stages[0], "run", "Python stage")
        steps.watch(keyed.stages[1].sink, "write", "sink")
        steps.watch(self._source, "poll", "source subtask, all")
        steps.watch(self._keyed, "process", "keyed subtask, all")

    def close(self) -> None:
        """Ends both subtasks."""
        self._source.close()
        self._keyed.close()
        self._sender.close()

    def _forward(self, batch: Batch) -> None:
        for emission in batch.emissions:
            self._keyed.process(_SOURCE, emission.table)


def measure(arguments: argparse.Namespace) -> Measurement:
    """Batches one after another in a warm engine."""
    from lockgate_taskmanager.spark.engine import SparkEngine

    steps = Steps()
    with tempfile.TemporaryDirectory(prefix="lockgate-path-") as name, socket.create_server(("127.0.0.1", 0)) as server:
        say("starting Spark ...")
        engine = SparkEngine("local[1]", {}, 1, str(Path(name).resolve() / "engine"))
        try:
            path = Subtasks(engine, Path(name).resolve(), server)
            with contextlib.redirect_stdout(io.StringIO()):  # the sink prints
                for number in range(arguments.warm_up + arguments.batches):
                    if number == arguments.warm_up:
                        path.watch(steps)
                    path.batch(arguments.records)
            path.close()
        finally:
            engine.close()
    rows, values = [], {}
    for step, seconds in steps.seconds.items():
        ms = sorted(1000 * item for item in seconds)
        p50, p90 = statistics.median(ms), ms[int(0.9 * len(ms))]
        rows.append(Row(step, f"{p50:.2f} / {p90:.2f} ms"))
        values[step] = {"p50_ms": p50, "p90_ms": p90}
    return Measurement(tuple(rows), {"records": arguments.records, "steps": values})


def _context(work: Path, job: JobGraph, vertex: str) -> ProgramContext:
    where = SubtaskId(AttemptId("record-path", "run", 1), vertex, 0)
    return ProgramContext(where, job, (work / "checkpoints").as_uri(), parallelism={_SOURCE: 1, _KEYED: 1})


def main() -> int:
    """Command line."""
    options = parser("record_path", "Where the time of a small micro-batch goes: p50 / p90 of each step.")
    options.add_argument("--records", type=int, default=50, help="in each micro-batch")
    options.add_argument("--batches", type=int, default=100, help="measured ones")
    options.add_argument("--warm-up", type=int, default=100, help="batches before them")
    return run(options.parse_args(), measure)


if __name__ == "__main__":
    sys.exit(main())
