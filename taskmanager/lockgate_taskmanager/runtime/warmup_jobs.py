"""Jobs that an idle task manager runs to warm up, so that a real job never starts in a cold process."""

from __future__ import annotations

import time
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
    FileSource,
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

from lockgate_taskmanager.task.program import Batch, ProgramContext, ProgramFactory, SubtaskProgram

ROWS = 30_000  # a few micro-batches of growing size
RUNS = 3  # of each plan of a job; the first one compiles its code
LINES = 25  # in a small micro-batch, as of 1,000 records/s

Continue = Callable[[], bool]
Rest = Callable[[float], object]
Programs = dict[tuple[str, int], SubtaskProgram]


def run_sample(
    factory: ProgramFactory,
    folder: Path,
    run_id: str,
    should_continue: Continue,
    rest: Rest = lambda _took_s: None,
) -> None:
    """One attempt of a small built-in job, from fresh plans to a commit. It stays within `folder`.

    rest: called after each micro-batch with the seconds since the previous call, the first time with those since the
    start.
    """
    started = time.monotonic()
    graph = _sample(folder)
    with suppress(_Stopped), _Stage(factory, graph, (folder / run_id).as_uri(), should_continue) as stage:
        attempt = AttemptId("warm-up", run_id, 1)
        for vertex in graph.vertices:
            stage.open(SubtaskId(attempt, vertex.id, 0))
        stage.begin()
        source = stage.programs["rows", 0]
        source.assign((SplitState(split="0", end=ROWS),), True)
        while isinstance(polled := source.poll(), Batch):
            stage.deliver(polled)
            rest(time.monotonic() - started)
            stage.check_stop()
            started = time.monotonic()
        for program in stage.programs.values():
            program.snapshot(1).persist()
            program.commit(1)


def run_batches(factory: ProgramFactory, folder: Path, run_id: str, should_continue: Continue, rest: Rest) -> int:
    """One attempt of a job with many small micro-batches of text, until it is stopped; returns how many there were.

    The JVM compiles what is called often: what Spark does for each job, of which the sample has few. It stays within
    `folder`. rest: called after each micro-batch with the seconds that it took.
    """
    done = 0
    lines = folder / run_id
    lines.mkdir()
    content = "".join(f"{number} 1700000000000\n" for number in range(LINES)).encode()
    with suppress(_Stopped), _Stage(factory, _text_job(lines), lines.as_uri(), should_continue) as stage:
        attempt = AttemptId("warm-up", run_id, 1)
        for vertex in ("lines", "counts"):
            stage.open(SubtaskId(attempt, vertex, 0))
        stage.begin()
        source = stage.programs["lines", 0]
        while True:
            stage.check_stop()
            started = time.monotonic()
            file = lines / str(done)
            file.write_bytes(content)
            source.assign((SplitState(split=file.name, end=len(content)),), True)
            polled = source.poll()
            if not isinstance(polled, Batch):
                raise RuntimeError(f"a micro-batch of the warm-up was not read: {polled}")
            stage.deliver(polled)
            file.unlink()
            done += 1
            rest(time.monotonic() - started)
    return done


def warm_up_job(factory: ProgramFactory, job: PrepareJob, folder: Path, should_continue: Continue) -> bool:
    """Makes a real job's plans and runs them over no records, for as many of its subtasks as there are free slots.

    Sinks are left out and sources read nothing; where a schema is only known from data, the warm-up stops there. The
    plans are kept, and a later attempt of the job finds them. False when it was stopped.
    """
    if job.graph is None or job.attempt is None:
        return True  # nothing to do
    attempt = AttemptId(job.attempt.job_key, job.attempt.run_id, 0)
    with suppress(_Stopped), _Stage(factory, job.graph, folder.as_uri(), should_continue, is_warmup=True) as stage:
        for vertex in job.graph.vertices:
            for number in range(min(vertex.parallelism, job.slots)):
                stage.open(SubtaskId(attempt, vertex.id, number))
        stage.begin()
        for _ in range(RUNS):
            stage.warm_up()
        return True
    return False


class _Stopped(Exception):
    """Other work has priority now."""


class _Stage:
    """The programs of one warm-up run, wired without channels: open all of them, then begin.

    Raises _Stopped before the next call of a program once `should_continue` returns False: a call may make a plan,
    which takes a second in a cold process.
    """

    def __init__(
        self,
        factory: ProgramFactory,
        graph: JobGraph,
        directory: str,
        should_continue: Continue,
        is_warmup: bool = False,
    ) -> None:
        self.programs: Programs = {}
        self._factory, self._graph, self._directory = factory, graph, directory
        self._should_continue, self._is_warmup = should_continue, is_warmup
        self._prologue: list[Batch] = []

    def __enter__(self) -> _Stage:
        return self

    def __exit__(self, *_: object) -> None:
        for program in self.programs.values():
            program.close()

    def open(self, subtask: SubtaskId) -> None:
        """Builds and opens a program."""
        self.check_stop()
        parallelism = {vertex.id: vertex.parallelism for vertex in self._graph.vertices}
        context = ProgramContext(
            subtask, self._graph, self._directory, parallelism=parallelism, is_warmup=self._is_warmup
        )
        program = self.programs[subtask.vertex_id, subtask.subtask] = self._factory.build(context)
        self._prologue.append(program.open())

    def begin(self) -> None:
        """Passes on what the programs emitted when they were opened, so that those downstream know their input."""
        for batch in self._prologue:
            self.deliver(batch)

    def deliver(self, batch: Batch) -> None:
        """Passes a program's output to the downstream programs that are here."""
        for emission in batch.emissions:
            edge = self._graph.edges[emission.edge]
            target = self.programs.get((edge.target, emission.target))
            if target is not None:
                self.check_stop()
                self.deliver(target.process(edge.source, emission.table))

    def warm_up(self) -> None:
        """Runs every program over no records."""
        for program in self.programs.values():
            self.check_stop()
            program.warm_up()

    def check_stop(self) -> None:
        """Raises _Stopped when other work has priority."""
        if not self._should_continue():
            raise _Stopped


def _sample(folder: Path) -> JobGraph:
    from sqlalchemy import URL

    shape = "SELECT partition, sequence, CAST(sequence % 500 AS STRING) AS word FROM input"
    count = KeyedAggregate(("word",), (Aggregate("n", AggregateFunction.COUNT),))
    database = URL.create("sqlite", database=str(folder / "totals.db")).render_as_string()
    return JobGraph(
        name="warm-up",
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
                    _operator("upsert", SqlSink(database, "totals", ("word",))),
                ),
            ),
        ),
        edges=(
            Edge("rows", "files", Partitioning.HASH, ("word",)),
            Edge("rows", "totals", Partitioning.HASH, ("word",)),
        ),
    )


def _text_job(lines: Path) -> JobGraph:
    shape = (
        "SELECT pmod(CAST(split(value, ' ')[0] AS BIGINT), 500) AS key,"
        " timestamp_millis(CAST(split(value, ' ')[1] AS BIGINT)) AS at FROM input"
    )
    count = KeyedAggregate(("key",), (Aggregate("n", AggregateFunction.COUNT),))
    source = _operator("read", FileSource(str(lines), FileFormat.TEXT))
    return JobGraph(
        name="warm-up",
        vertices=(
            Vertex("lines", "lines", 1, 128, (source, _operator("shape", SqlTransform(shape)))),
            Vertex("counts", "counts", 1, 128, (_operator("count", count),)),
        ),
        edges=(Edge("lines", "counts", Partitioning.HASH, ("key",)),),
    )


def _operator(
    name: str, kind: FileSource | GeneratorSource | SqlTransform | KeyedAggregate | FileSink | SqlSink
) -> Operator:
    return Operator(name, name, kind)
