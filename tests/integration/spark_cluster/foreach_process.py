"""`python foreach_process.py SPEC`: a foreach_batch that is cancelled while its function runs a long query.

SPEC is JSON: {"master": URL, "ui": URL, "input": text file, "work": folder}. Prints one JSON object: how the commit
failed, and what the function got in the next attempt, which starts from the snapshot of the first one.
"""

from __future__ import annotations

import json
import sys
import threading
import urllib.request
from pathlib import Path
from typing import Any

from lockgate_proto.messages import (
    AttemptId,
    FileFormat,
    FileSource,
    ForeachBatchSink,
    JobGraph,
    Operator,
    SubtaskId,
    Vertex,
)
from lockgate_taskmanager.spark.engine import SparkEngine
from lockgate_taskmanager.spark.program import ChainProgram
from lockgate_taskmanager.task.program import ProgramContext
from pyspark import cloudpickle

LOOK_EVERY_S = 0.1
PATIENCE_S = 240.0


def graph(spec: dict[str, Any]) -> JobGraph:
    """A file, and the function behind it."""
    begun, seen = Path(spec["work"], "begun"), Path(spec["work"], "seen")

    def long_at_first(frame: Any, _checkpoint_id: int) -> None:
        if begun.exists():
            seen.write_text(json.dumps(sorted(row.value for row in frame.repartition(1).collect())))
            return
        begun.touch()
        numbers = frame.sparkSession.range(0, 30_000_000_000, 1, 1)
        numbers.crossJoin(frame).where("sha2(value, 256) = string(id)").count()

    kinds = {
        "read": FileSource(path=spec["input"], format=FileFormat.TEXT),
        "call": ForeachBatchSink(cloudpickle.dumps(long_at_first)),
    }
    operators = tuple(Operator(id=name, name=name, kind=kind) for name, kind in kinds.items())
    return JobGraph(name="calls", vertices=(Vertex(id="v", name="v", parallelism=1, operators=operators),))


def build(engine: SparkEngine, spec: dict[str, Any], attempt: int, **restored: Any) -> ChainProgram:
    """The job's only subtask."""
    where = SubtaskId(AttemptId("calls", "run-1", attempt), "v", 0)
    return engine.build(ProgramContext(where, graph(spec), f"{spec['work']}/checkpoints", **restored))


def descriptions(ui: str) -> list[str]:
    """How a Connect server's UI calls its jobs."""
    with urllib.request.urlopen(f"{ui}/api/v1/applications", timeout=PATIENCE_S) as response:
        (application,) = json.load(response)
    with urllib.request.urlopen(f"{ui}/api/v1/applications/{application['id']}/jobs", timeout=PATIENCE_S) as response:
        return [job.get("description", "") for job in json.load(response)]


def commit_and_cancel(program: ChainProgram, ui: str) -> str:
    """What the commit fails with when the subtask is cancelled in the middle of the function's query."""
    failures: list[str] = []

    def commit() -> None:
        try:
            program.commit(1)
        except Exception as error:
            failures.append(type(error).__name__)

    thread = threading.Thread(target=commit, name="subtask")
    thread.start()
    while thread.is_alive():
        thread.join(LOOK_EVERY_S)
        if "calls v[0] attempt 1, after checkpoint 1" in descriptions(ui):
            program.cancel()  # as often as a task manager does
    return ", ".join(failures)


def main(text: str) -> int:
    """Prints how the cancelled commit ended."""
    spec = json.loads(text)
    engine = SparkEngine(spec["master"], {}, 1, spec["work"])
    try:
        first = build(engine, spec, 1)
        first.open()
        first.assign(*engine.discover(graph(spec), "v", ()))
        first.poll()
        state = first.snapshot(1).persist()
        failure = commit_and_cancel(first, spec["ui"])
        first.close()
        second = build(engine, spec, 2, restore=state, restored_checkpoint_id=1)
        second.open()
        second.close()
    finally:
        engine.close()
    print(json.dumps({"failure": failure, "next": json.loads(Path(spec["work"], "seen").read_text())}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
