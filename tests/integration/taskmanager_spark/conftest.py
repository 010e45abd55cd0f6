"""One Spark session for all tests of this folder, and a way to run the vertices of a graph one after another."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lockgate_proto.messages import AttemptId, JobGraph, SubtaskId, SubtaskState

from taskmanager.spark.engine import SparkEngine
from taskmanager.spark.program import ChainProgram
from taskmanager.task.program import Batch, Exhausted, Idle, ProgramContext


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkEngine]:
    """local[2]. The first test pays for the start."""
    made = SparkEngine("", {}, 2, str(tmp_path_factory.mktemp("spark")))
    yield made
    made.close()


class Run:
    """A job in one process: builds subtasks, passes what they emit on, keeps what reaches no edge."""

    def __init__(self, engine: SparkEngine, folder: Path, graph: JobGraph, run_id: str) -> None:
        self.engine = engine
        self.graph = graph
        self.directory = str(folder / "checkpoints")
        self.run_id = run_id
        self.attempt = 0
        self.programs: dict[tuple[str, int], ChainProgram] = {}
        self.received: dict[tuple[str, int], list[pa.Table]] = {}

    def start(self, restore: Mapping[tuple[str, int], SubtaskState] | None = None) -> None:
        """The next attempt: every subtask opened, splits assigned when the start is fresh."""
        self.attempt += 1
        self.received = {}
        for vertex in self.graph.vertices:
            for subtask in range(vertex.parallelism):
                attempt = AttemptId("job", self.run_id, self.attempt)
                state = (restore or {}).get((vertex.id, subtask))
                where = SubtaskId(attempt, vertex.id, subtask)
                parallelism = {one.id: one.parallelism for one in self.graph.vertices}
                context = ProgramContext(where, self.graph, self.directory, state, parallelism=parallelism)
                self.programs[vertex.id, subtask] = self.engine.build(context)
        for (vertex_id, _), program in self.programs.items():
            self.deliver(vertex_id, program.open())
        for vertex in self.graph.vertices:
            if self.programs[vertex.id, 0].is_source and not restore:
                splits, complete = self.engine.discover(self.graph, vertex.id, ())
                for subtask in range(vertex.parallelism):
                    mine = splits[subtask :: vertex.parallelism]
                    self.programs[vertex.id, subtask].assign(mine, complete)

    def deliver(self, source: str, batch: Batch) -> None:
        """Hands emissions over to the targets, and theirs to theirs."""
        for emission in batch.emissions:
            target = self.graph.edges[emission.edge].target
            self.received.setdefault((target, emission.target), []).append(emission.table)
            program = self.programs.get((target, emission.target))
            if program is not None:
                self.deliver(target, program.process(source, emission.table))

    def batch(self, vertex_id: str, subtask: int = 0) -> bool:
        """One micro-batch of a source; False when there was none."""
        poll = self.programs[vertex_id, subtask].poll()
        if isinstance(poll, Batch):
            self.deliver(vertex_id, poll)
        return isinstance(poll, Batch)

    def to_end(self) -> None:
        """Reads every source to its end."""
        for key, program in self.programs.items():
            while program.is_source:
                poll = program.poll()
                if isinstance(poll, Exhausted):
                    break
                assert not isinstance(poll, Idle)
                self.deliver(key[0], poll)

    def checkpoint(self, checkpoint_id: int, commit: bool = True) -> dict[tuple[str, int], SubtaskState]:
        """A snapshot of all subtasks between two micro-batches."""
        snapshots = {key: program.snapshot(checkpoint_id) for key, program in self.programs.items()}
        states = {key: snapshot.persist() for key, snapshot in snapshots.items()}
        if commit:
            for program in self.programs.values():
                program.commit(checkpoint_id)
        return states

    def rows(self, vertex_id: str, subtask: int = 0) -> list[dict[str, Any]]:
        """Everything a subtask has received."""
        return [row for table in self.received.get((vertex_id, subtask), []) for row in table.to_pylist()]

    def close(self) -> None:
        """Ends the attempt."""
        for program in self.programs.values():
            program.close()


@pytest.fixture
def job(engine: SparkEngine, tmp_path: Path) -> Iterator[Callable[..., Run]]:
    """Makes runs; closes them."""
    runs: list[Run] = []

    def make(graph: JobGraph, start: bool = True) -> Run:
        run = Run(engine, tmp_path, graph, f"{tmp_path.name}-{len(runs)}")
        runs.append(run)
        if start:
            run.start()
        return run

    yield make
    for run in runs:
        run.close()
