"""A rehearsal: an idle task manager runs a small job of its own, so that a real one never meets a cold process.

A task manager that was just started is the spare on which a job may have to go on within a second. The first plan and
the first micro-batches in a fresh JVM take seconds (classes to load, code to compile), the tenth takes milliseconds.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

from lockgate_proto.messages import (
    Aggregate,
    AggregateFunction,
    AttemptId,
    Edge,
    FileFormat,
    FileSink,
    GeneratorSource,
    JobGraph,
    KeyedAggregate,
    Operator,
    Partitioning,
    SplitState,
    SqlSink,
    SqlTransform,
    SubtaskId,
    Vertex,
)

from taskmanager.task.program import Batch, ProgramContext, ProgramFactory, SubtaskProgram

log = logging.getLogger(__name__)

FIRST_AFTER_S = 1.0
PERFORMANCES = 6
ROWS = 30_000  # a few micro-batches, which grow from small ones


class Rehearsal:
    """Performs on a thread of its own, and only while `is_idle()`; stops between two micro-batches otherwise."""

    def __init__(self, factory: ProgramFactory, work_dir: str, is_idle: Callable[[], bool]) -> None:
        self._factory = factory
        self._work_dir = work_dir
        self._is_idle = is_idle
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rehearsal", daemon=True)

    def start(self) -> None:
        """Begins a second from now."""
        self._thread.start()

    def stop(self) -> None:
        """Ends it and waits for its end: at most one micro-batch."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        if self._stopping.wait(FIRST_AFTER_S):
            return
        folder = Path(tempfile.mkdtemp(prefix="rehearsal-", dir=self._work_dir))
        try:
            for number in range(PERFORMANCES):
                if not self._may_go_on():
                    return
                self._perform(folder, f"rehearsal-{number}")
            log.info("rehearsed: plans and operators are warm")
        except Exception as error:  # a nicety: a real job will tell what is wrong in its own words
            log.info("the rehearsal failed: %s", error)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _may_go_on(self) -> bool:
        return not self._stopping.is_set() and self._is_idle()

    def _perform(self, folder: Path, run_id: str) -> None:
        """One attempt of the job, from fresh plans to a commit."""
        graph = _graph(folder)
        programs: dict[str, SubtaskProgram] = {}
        try:
            for vertex in reversed(graph.vertices):
                subtask = SubtaskId(AttemptId("rehearsal", run_id, 1), vertex.id, 0)
                parallelism = {one.id: one.parallelism for one in graph.vertices}
                context = ProgramContext(subtask, graph, (folder / run_id).as_uri(), parallelism=parallelism)
                programs[vertex.id] = self._factory.build(context)
                _deliver(programs[vertex.id].open(), graph, programs)
            programs["rows"].assign((SplitState(split="0", end=ROWS),), True)
            while isinstance(polled := programs["rows"].poll(), Batch):
                if not self._may_go_on():
                    return
                _deliver(polled, graph, programs)
            for program in programs.values():
                program.snapshot(1).persist()
                program.commit(1)
        finally:
            for program in programs.values():
                program.close()


def _deliver(batch: Batch, graph: JobGraph, programs: dict[str, SubtaskProgram]) -> None:
    for emission in batch.emissions:
        edge = graph.edges[emission.edge]
        _deliver(programs[edge.target].process(edge.source, emission.table), graph, programs)


def _graph(folder: Path) -> JobGraph:
    shape = "SELECT partition, sequence, CAST(sequence % 500 AS STRING) AS word FROM input"
    count = KeyedAggregate(("word",), (Aggregate("n", AggregateFunction.COUNT),))
    return JobGraph(
        name="rehearsal",
        vertices=(
            Vertex(
                "rows",
                "rows",
                1,
                128,
                (
                    _operator("read", GeneratorSource(1, ROWS)),
                    _operator("shape", SqlTransform(shape)),
                ),
            ),
            Vertex(
                "files", "files", 1, 128, (_operator("write", FileSink(str(folder / "files"), FileFormat.PARQUET)),)
            ),
            Vertex(
                "totals",
                "totals",
                1,
                128,
                (
                    _operator("count", count),
                    _operator("upsert", SqlSink(f"sqlite:///{folder / 'totals.db'}", "totals", ("word",))),
                ),
            ),
        ),
        edges=(
            Edge("rows", "files", Partitioning.HASH, ("word",)),
            Edge("rows", "totals", Partitioning.HASH, ("word",)),
        ),
    )


def _operator(name: str, kind: GeneratorSource | SqlTransform | KeyedAggregate | FileSink | SqlSink) -> Operator:
    return Operator(name, name, kind)
