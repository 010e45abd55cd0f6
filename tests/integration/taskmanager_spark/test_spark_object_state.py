"""Objects with state in a job that goes from 2 to 3 to 2 subtasks on real Spark, with each backend."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from lockgate_proto.messages import FilesystemBackend, JobGraph, MemoryBackend, RocksdbBackend, StateBackend
from lockgate_taskmanager.spark.functions.stage import FunctionStage

from lockgate import Job as Pipeline
from tests.committed import rows_of

from .results import rescale

pytestmark = pytest.mark.integration

Job = Callable[..., Any]
ROWS, PARTITIONS = 4_000, 6
BACKENDS = {
    "memory": StateBackend(MemoryBackend()),
    "filesystem": StateBackend(FilesystemBackend()),
    "rocksdb": StateBackend(RocksdbBackend(memory_bytes=16 << 20)),
}


class Counted:
    """A count that is divided."""

    on_rescale = "split"

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, record: dict[str, Any]) -> dict[str, Any]:
        self.count += 1
        return record

    def snapshot_state(self) -> list[int]:
        return [self.count]

    def restore_state(self, state: list[int]) -> None:
        self.count = sum(state)


class Seen:
    """Records by hundred, in parts that no two subtasks have; drops what it has seen."""

    on_rescale = "split"

    def open(self, context: Any) -> None:
        self.prefix, self.parts, self.changed = f"{context.attempt}-{context.subtask}", {}, set[str]()

    def __call__(self, record: dict[str, Any]) -> bool:
        name = f"{self.prefix}-{record['sequence'] // 100}"
        self.parts.setdefault(name, []).append((record["partition"], record["sequence"]))
        self.changed.add(name)
        return bool(record["sequence"] % 2)

    def snapshot_state(self) -> dict[str, Any]:
        return self.parts

    def changes_since_last_checkpoint(self) -> dict[str, Any]:
        names, self.changed = self.changed, set()
        return {name: self.parts.get(name) for name in names}

    def restore_state(self, state: dict[str, Any]) -> None:
        self.parts = state


def graph(folder: Path, parallelism: int, backend: str) -> JobGraph:
    pipeline = Pipeline("objects", parallelism=parallelism)
    rows = pipeline.generate(ROWS, partitions=PARTITIONS).select("partition", "sequence")
    counted = rows.map(Counted(), schema="partition BIGINT, sequence BIGINT").uid("counted")
    counted.filter(Seen()).uid("seen").write_parquet(folder / "out").uid("out")
    return replace(pipeline.graph(), state_backend=BACKENDS[backend])


@pytest.mark.parametrize("backend", BACKENDS)
def test_two_three_two_subtasks_count_and_keep_each_record_once(job: Job, tmp_path: Path, backend: str) -> None:
    run = job(graph(tmp_path, 2, backend))
    (source,) = {vertex for vertex, _ in run.programs}
    run.fix_batch_size(source, 5_000)
    for number, parallelism in ((1, 3), (3, 2)):
        for subtask in range(len(run.programs)):
            run.batch(source, subtask)
        run.checkpoint(number)
        run.batch(source, 0)
        kept = run.checkpoint(number + 1, commit=False, base_id=number)
        if backend != "memory":
            states = [state for subtask in kept.values() for state in subtask.operators if state.operator_id == "seen"]
            assert {file.checkpoint_id for state in states for file in state.files} == {number, number + 1}
        rescale(run, graph(tmp_path, parallelism, backend), kept, number + 1)
    run.to_end()
    run.checkpoint(5)
    stages = [
        stage
        for program in run.programs.values()
        for stage in program._layout.stages
        if isinstance(stage, FunctionStage)
    ]
    functions = [stage._function for stage in stages]
    everything = [(partition, sequence) for partition in range(PARTITIONS) for sequence in range(ROWS)]
    assert sum(function.count for function in functions if hasattr(function, "count")) == len(everything)
    parts = [part for function in functions if hasattr(function, "parts") for part in function.parts.values()]
    assert sorted(record for part in parts for record in part) == everything
    written = sorted((row["partition"], row["sequence"]) for row in rows_of(tmp_path / "out"))
    assert written == [(partition, sequence) for partition, sequence in everything if sequence % 2]
