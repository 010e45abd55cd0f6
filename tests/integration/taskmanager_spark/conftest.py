"""One Spark session for all tests of this folder, and a way to run the vertices of a graph one after another."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lockgate_proto.messages import AttemptId, JobGraph, Partitioning, SubtaskId, SubtaskState, Watermark
from lockgate_taskmanager.spark.engine import SparkEngine
from lockgate_taskmanager.spark.program import ChainProgram
from lockgate_taskmanager.spark.sources.reading import BatchSizer
from lockgate_taskmanager.task.program import Batch, Exhausted, Idle, ProgramContext, SnapshotOrder
from lockgate_taskmanager.task.watermarks import MAX_WATERMARK, ChannelWatermarks, held_back


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkEngine]:
    """local[2], or the Spark of LOCKGATE_TEST_SPARK (`sc://...`). The first test pays for the start."""
    made = SparkEngine(os.environ.get("LOCKGATE_TEST_SPARK", ""), {}, 2, str(tmp_path_factory.mktemp("spark")))
    yield made
    made.close()


def await_listeners(engine: SparkEngine) -> None:
    """Until Spark's status store has caught up: its own thread updates it."""
    engine._session.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()


class FixedSize(BatchSizer):
    """Micro-batches of one size, however long they take."""

    def __init__(self, size_bytes: int) -> None:
        super().__init__(target_ms=300, max_bytes=size_bytes)
        self.budget_bytes = size_bytes

    def observed(self, size_bytes: int, took_ms: float, full: bool, may_pause: bool = False) -> None: ...


class Run:
    """A job in one process: builds subtasks, passes what they emit on, keeps what reaches no edge."""

    def __init__(self, engine: SparkEngine, folder: Path, graph: JobGraph, run_id: str) -> None:
        self.engine = engine
        self.graph = graph
        self.directory = str(folder / "checkpoints")
        self.run_id = run_id
        self.attempt = 0
        self.programs: dict[tuple[str, int], ChainProgram] = {}
        self.watermarks: dict[tuple[str, int], ChannelWatermarks] = {}
        self.received: dict[tuple[str, int], list[pa.Table]] = {}
        self._batch_sizes: dict[str, int] = {}

    def start(self, restore: Mapping[tuple[str, int], SubtaskState] | None = None, restored_id: int = 0) -> None:
        """The next attempt: every subtask opened, splits assigned when the start is fresh."""
        self.attempt += 1
        self.received = {}
        for vertex in self.graph.vertices:
            for subtask in range(vertex.parallelism):
                attempt = AttemptId("job", self.run_id, self.attempt)
                state = (restore or {}).get((vertex.id, subtask))
                where = SubtaskId(attempt, vertex.id, subtask)
                parallelism = {vertex.id: vertex.parallelism for vertex in self.graph.vertices}
                context = ProgramContext(where, self.graph, self.directory, state, restored_id, parallelism)
                self.programs[vertex.id, subtask] = self.engine.build(context)
        self._fix_batch_sizes()
        for (vertex_id, _), program in self.programs.items():
            self.deliver(vertex_id, program.open())
        self.watermarks = {key: ChannelWatermarks(len(self.channels(*key))) for key in self.programs}
        for vertex in self.graph.vertices:
            if self.programs[vertex.id, 0].is_source and not restore:
                splits, complete = self.engine.discover(self.graph, vertex.id, ())
                for subtask in range(vertex.parallelism):
                    mine = splits[subtask :: vertex.parallelism]
                    self.programs[vertex.id, subtask].assign(mine, complete)

    def channels(self, vertex_id: str, subtask: int) -> list[tuple[str, int]]:
        """The subtasks that send to this one."""
        widths = {vertex.id: vertex.parallelism for vertex in self.graph.vertices}
        edges = [edge for edge in self.graph.edges if edge.target == vertex_id]
        return [
            (edge.source, number)
            for edge in edges
            for number in ((subtask,) if edge.partitioning is Partitioning.FORWARD else range(widths[edge.source]))
        ]

    def advance(self, source: str, subtask: int, watermark: Watermark | None, drained: bool = False) -> None:
        """Tells those behind a subtask how far event time has come in it, None for its end."""
        for key, combined in self.watermarks.items():
            channels = self.channels(*key)
            if (source, subtask) not in channels:
                continue
            number = channels.index((source, subtask))
            news = combined.ended(number, drained) if watermark is None else combined.arrived(number, watermark)
            if news is not None and news.event_time_ms == MAX_WATERMARK and not news.idle:
                self.deliver_all(key, self.programs[key].finish())
                self.advance(*key, None, drained)
            elif news is not None:
                batch = self.programs[key].advance(news.event_time_ms)
                self.deliver_all(key, batch)
                self.advance(*key, held_back(news, batch.held_back_ms))

    def deliver(self, source: str, batch: Batch) -> None:
        """Hands emissions over to the targets, and theirs to theirs."""
        for emission in batch.emissions:
            target = self.graph.edges[emission.edge].target
            self.received.setdefault((target, emission.target), []).append(emission.table)
            program = self.programs.get((target, emission.target))
            if program is not None:
                self.deliver_all((target, emission.target), program.process(source, emission.table))

    def deliver_all(self, key: tuple[str, int], batch: Batch) -> None:
        """A batch and the portions behind it."""
        self.deliver(key[0], batch)
        while batch.has_more:
            batch = self.programs[key].go_on()
            self.deliver(key[0], batch)

    def fix_batch_size(self, vertex_id: str, size_bytes: int) -> None:
        """Micro-batches of this size from a source, in this attempt and all later ones, on whatever machine."""
        self._batch_sizes[vertex_id] = size_bytes
        self._fix_batch_sizes()

    def _fix_batch_sizes(self) -> None:
        for (vertex_id, _), program in self.programs.items():
            if vertex_id in self._batch_sizes:
                program._sizer = FixedSize(self._batch_sizes[vertex_id])

    def batch(self, vertex_id: str, subtask: int = 0) -> bool:
        """One micro-batch of a source; False when there was none."""
        poll = self.programs[vertex_id, subtask].poll()
        if isinstance(poll, Batch):
            self.deliver(vertex_id, poll)
            if poll.watermark is not None:
                self.advance(vertex_id, subtask, poll.watermark)
        return isinstance(poll, Batch)

    def to_end(self) -> None:
        """Reads every source to its end."""
        for key, program in self.programs.items():
            while program.is_source:
                poll = program.poll()
                if isinstance(poll, Exhausted):
                    self.advance(*key, None)
                    break
                assert not isinstance(poll, Idle)
                self.deliver(key[0], poll)
                if poll.watermark is not None:
                    self.advance(*key, poll.watermark)

    def drain(self) -> None:
        """Ends every source where it is."""
        for key, program in self.programs.items():
            if program.is_source:
                self.advance(*key, None, drained=True)

    def checkpoint(
        self, checkpoint_id: int, commit: bool = True, base_id: int = 0
    ) -> dict[tuple[str, int], SubtaskState]:
        """A snapshot of all subtasks between two micro-batches. base_id: a completed one, which it may build on."""
        order = SnapshotOrder(base_id)
        snapshots = {key: program.snapshot(checkpoint_id, order) for key, program in self.programs.items()}
        states = {key: snapshot.persist() for key, snapshot in snapshots.items()}
        if commit:
            for program in self.programs.values():
                program.commit(checkpoint_id)
        return states

    def chained(self, fill: Callable[[int], None], keyed: str, last: int) -> list[int]:
        """Checkpoints 1 to `last`, each behind what `fill(its number)` reads, and then the end.

        Every third one is lost, and behind the fifth comes another attempt. Returns for each how many earlier ones the
        state of the vertex `keyed`, all its subtasks together, was built on.
        """
        kept, base_id, found = None, 0, []
        for number in range(1, last + 1):
            fill(number)
            states = self.checkpoint(number, commit=number % 3 != 0, base_id=base_id)
            pieces = {increment.checkpoint_id for key, state in states.items() if key[0] == keyed
                      for operator in state.operators
                      for increment in (operator.handle, *operator.increments, *operator.files)
                      if increment is not None}  # fmt: skip
            found.append(len(pieces - {0, number}))
            if number % 3:
                kept, base_id = states, number
            if number == 5:
                self.close()
                self.start(kept, 5)
        self.close()
        self.start(kept, base_id)
        self.to_end()
        self.checkpoint(last + 1)
        return found

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
