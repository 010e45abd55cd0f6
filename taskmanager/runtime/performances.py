"""What a task manager performs while it is idle, so that a real job never meets a cold process."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
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
    PrepareJob,
    SplitState,
    SqlSink,
    SqlTransform,
    SubtaskId,
    Vertex,
)

from taskmanager.task.program import Batch, ProgramContext, ProgramFactory, SubtaskProgram

ROWS = 30_000  # a few micro-batches, which grow from small ones
RUNS = 3  # of each plan of a job; the first compiles its code

MayGoOn = Callable[[], bool]
Programs = dict[tuple[str, int], SubtaskProgram]


def perform_sample(factory: ProgramFactory, folder: Path, run_id: str, may_go_on: MayGoOn) -> None:
    """One attempt of a small job of our own, from fresh plans to a commit. It stays within `folder`."""
    graph = _sample(folder)
    with suppress(_Stopped), _Stage(factory, graph, (folder / run_id).as_uri(), may_go_on) as stage:
        attempt = AttemptId("rehearsal", run_id, 1)
        for vertex in graph.vertices:
            stage.open(SubtaskId(attempt, vertex.id, 0))
        stage.begin()
        source = stage.programs["rows", 0]
        source.assign((SplitState(split="0", end=ROWS),), True)
        while isinstance(polled := source.poll(), Batch):
            stage.deliver(polled)
        for program in stage.programs.values():
            program.snapshot(1).persist()
            program.commit(1)


def perform_job(factory: ProgramFactory, job: PrepareJob, folder: Path, may_go_on: MayGoOn) -> bool:
    """Makes a real job's plans and runs them over no records, for as many of its subtasks as slots are free.

    Its sinks are left out and its sources read nothing; where a schema is only known from data, that is as far as it
    goes. The plans stay behind, and an attempt of the job that comes here finds them. False when it was stopped.
    """
    if job.graph is None or job.attempt is None:
        return True  # nothing to do
    attempt = AttemptId(job.attempt.job_key, job.attempt.run_id, 0)
    with suppress(_Stopped), _Stage(factory, job.graph, folder.as_uri(), may_go_on, is_rehearsal=True) as stage:
        for vertex in job.graph.vertices:
            for number in range(min(vertex.parallelism, job.slots)):
                stage.open(SubtaskId(attempt, vertex.id, number))
        stage.begin()
        for _ in range(RUNS):
            stage.rehearse()
        return True
    return False


class _Stopped(Exception):
    """Something else goes first now."""


class _Stage:
    """The programs of one performance, wired without channels: open all of them, then begin.

    Raises _Stopped before the next program is called once `may_go_on` says no: a call may make a plan, which takes a
    second in a cold process.
    """

    def __init__(
        self, factory: ProgramFactory, graph: JobGraph, directory: str, may_go_on: MayGoOn, is_rehearsal: bool = False
    ) -> None:
        self.programs: Programs = {}
        self._factory, self._graph, self._directory = factory, graph, directory
        self._may_go_on, self._is_rehearsal = may_go_on, is_rehearsal
        self._prologue: list[Batch] = []

    def __enter__(self) -> _Stage:
        return self

    def __exit__(self, *_: object) -> None:
        for program in self.programs.values():
            program.close()

    def open(self, subtask: SubtaskId) -> None:
        """Builds and opens a program."""
        self._require_leave()
        parallelism = {vertex.id: vertex.parallelism for vertex in self._graph.vertices}
        context = ProgramContext(
            subtask, self._graph, self._directory, parallelism=parallelism, is_rehearsal=self._is_rehearsal
        )
        program = self.programs[subtask.vertex_id, subtask.subtask] = self._factory.build(context)
        self._prologue.append(program.open())

    def begin(self) -> None:
        """Hands on what the programs said when they were opened, so that those downstream know their input."""
        for batch in self._prologue:
            self.deliver(batch)

    def deliver(self, batch: Batch) -> None:
        """Hands what a program has put out to those downstream that are here."""
        for emission in batch.emissions:
            edge = self._graph.edges[emission.edge]
            target = self.programs.get((edge.target, emission.target))
            if target is not None:
                self._require_leave()
                self.deliver(target.process(edge.source, emission.table))

    def rehearse(self) -> None:
        """Runs every program over nothing."""
        for program in self.programs.values():
            self._require_leave()
            program.rehearse()

    def _require_leave(self) -> None:
        if not self._may_go_on():
            raise _Stopped


def _sample(folder: Path) -> JobGraph:
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
