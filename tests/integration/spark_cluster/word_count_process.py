"""`python word_count_process.py SPEC`: word count through the real engine on any master, and what Spark tells of it.

A process of its own, because a process has one Spark session, and one kind of it. SPEC is JSON: {"master": URL,
"options": {...}, "input": folder, "work": folder, "executors": n}; executors: so many are waited for. Prints one
JSON object.
"""

from __future__ import annotations

import json
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from lockgate_proto.messages import (
    Aggregate,
    AggregateFunction,
    AttemptId,
    Edge,
    FileFormat,
    FileSink,
    FileSource,
    JobGraph,
    KeyedAggregate,
    Operator,
    Partitioning,
    PythonTransform,
    SqlTransform,
    SubtaskId,
    Vertex,
)
from lockgate_taskmanager.spark import session as sessions
from lockgate_taskmanager.spark.engine import EngineError, SparkEngine
from lockgate_taskmanager.spark.master import Driver
from lockgate_taskmanager.spark.program import ChainProgram
from lockgate_taskmanager.task.program import Batch, ProgramContext
from pyspark import cloudpickle

PATIENCE_S = 100.0
SPLIT = "SELECT explode(split(value, ' ')) AS word FROM input"


def graph(spec: dict[str, Any]) -> JobGraph:
    """Two sources (SQL, then Python on the executors), a count, a file sink."""

    def through_python(frame: Any) -> Any:
        return frame.mapInArrow(lambda batches: batches, frame.schema)

    kinds = {
        "read": FileSource(path=spec["input"], format=FileFormat.TEXT),
        "split": SqlTransform(query=SPLIT),
        "same": PythonTransform(function=cloudpickle.dumps(through_python)),
        "count": KeyedAggregate(("word",), (Aggregate("n", AggregateFunction.COUNT, ""),)),
        "write": FileSink(f"{spec['work']}/out", FileFormat.PARQUET),
    }
    subject = {name: Operator(id=name, name=name, kind=kind) for name, kind in kinds.items()}
    vertices = (
        Vertex(
            id="source", name="source", parallelism=2, operators=(subject["read"], subject["split"], subject["same"])
        ),
        Vertex(id="count", name="count", parallelism=1, operators=(subject["count"], subject["write"])),
    )
    return JobGraph(name="wc", vertices=vertices, edges=(Edge("source", "count", Partitioning.HASH, ("word",)),))


class Job:
    """Drives the subtasks one after another, as one task manager's loops would."""

    def __init__(self, engine: SparkEngine, spec: dict[str, Any]) -> None:
        self._graph = graph(spec)
        self._programs: dict[tuple[str, int], ChainProgram] = {}
        for vertex_id, subtask in (("source", 0), ("source", 1), ("count", 0)):
            where = SubtaskId(AttemptId("words", "run-1", 1), vertex_id, subtask)
            context = ProgramContext(where, self._graph, f"{spec['work']}/checkpoints")
            self._programs[vertex_id, subtask] = engine.build(context)
        self._sources = [self._programs["source", 0], self._programs["source", 1]]
        for program in self._programs.values():
            self._deliver(program.open())
        splits, complete = engine.discover(self._graph, "source", ())
        for number, source in enumerate(self._sources):
            source.assign(splits[number::2], complete)

    def batch(self) -> bool:
        """One micro-batch of each source; False when there was none."""
        polled = [source.poll() for source in self._sources]
        for item in polled:
            if isinstance(item, Batch):
                self._deliver(item)
        return any(isinstance(batch, Batch) for batch in polled)

    def checkpoint(self, number: int) -> None:
        """A snapshot of all subtasks, committed."""
        for program in self._programs.values():
            program.snapshot(number).persist()
        for program in self._programs.values():
            program.commit(number)

    def close(self) -> None:
        """Ends the attempt."""
        for program in self._programs.values():
            program.close()

    def _deliver(self, batch: Batch) -> None:
        for emission in batch.emissions:
            self._deliver(self._programs["count", 0].process("source", emission.table))


def run(engine: SparkEngine, spec: dict[str, Any]) -> dict[str, int]:
    """The whole job, with a checkpoint in the middle; the counts that its sink shows."""
    job = Job(engine, spec)
    job.batch()
    job.checkpoint(1)
    while job.batch():
        pass
    job.checkpoint(2)
    job.close()
    shown: dict[str, int] = {}
    for path in Path(spec["work"], "out").glob("part-*"):
        for row in pq.read_table(path).to_pylist():
            shown[row["word"]] = max(row["n"], shown.get(row["word"], 0))
    return shown


def plain(session: Any, folder: str) -> dict[str, int]:
    """The same by Spark alone."""
    frame = session.read.text(folder).selectExpr("explode(split(value, ' ')) AS word").groupBy("word").count()
    return {row["word"]: row["count"] for row in frame.collect()}


def await_executors(session: Any, count: int) -> None:
    """The engine itself goes on with the first one. Raises TimeoutError."""
    context, turn = session.sparkContext._jsc.sc(), threading.Event()
    deadline = time.monotonic() + PATIENCE_S
    while context.getExecutorMemoryStatus().size() - 1 < count:  # the driver is in there, too
        if time.monotonic() > deadline:
            raise TimeoutError(f"fewer than {count} executors")
        turn.wait(0.05)


def session_settings(session: Any) -> dict[str, Any]:
    """What Spark's UI tells of this application, and where it listens."""
    context = session.sparkContext
    context._jsc.sc().listenerBus().waitUntilEmpty()  # the UI is updated by its own thread
    with urllib.request.urlopen(f"{context.uiWebUrl}/api/v1/applications/{context.applicationId}/jobs") as page:
        jobs = json.load(page)
    with urllib.request.urlopen(f"{context.uiWebUrl}/api/v1/applications/{context.applicationId}/executors") as page:
        executors = json.load(page)
    return {
        "application": context.appName,
        "jobs": [job.get("description") for job in jobs],
        "tasks": {executor["id"]: executor["totalTasks"] for executor in executors},
        "ui": context.uiWebUrl,
        "bound": listening(int(context.uiWebUrl.rpartition(":")[2])),
    }


def listening(port: int) -> list[str]:
    """Addresses of this machine, as Linux writes them, at which something listens at that port."""
    lines = [line.split() for name in ("tcp", "tcp6") for line in Path("/proc/net", name).read_text().splitlines()[1:]]
    places = [line[1].partition(":") for line in lines if line[3] == "0A"]
    return [address for address, _, number in places if int(number, 16) == port]


def main(text: str) -> int:
    """Counts the words and prints what Spark reports."""
    spec = json.loads(text)
    try:
        engine = SparkEngine(spec["master"], spec["options"], 2, spec["work"], driver=Driver("tm-1"))
        try:
            if spec.get("executors"):
                await_executors(engine._session, spec["executors"])
            engine.warm_up()
            result: dict[str, Any] = {"counts": run(engine, spec)}
            if not sessions.is_connect(engine._session):
                result |= session_settings(engine._session)
            result["plain"] = plain(engine._session, spec["input"])
        finally:
            engine.close()
    except EngineError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
