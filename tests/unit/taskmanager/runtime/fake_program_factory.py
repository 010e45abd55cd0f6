"""A ProgramFactory whose programs only say what is done with them: no Spark, no records."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from lockgate_proto.messages import AttemptId, Edge, JobGraph, Partitioning, PrepareJob, SplitState, Vertex
from lockgate_taskmanager.task.program import Batch, Emission, Exhausted, Poll, ProgramContext

WAIT_S = 60.0
EMPTY = pa.schema([("word", pa.string())]).empty_table()


def chain(*names: str, parallelism: int = 1, reverse: bool = False) -> JobGraph:
    """Vertices one behind the other. reverse: the last one is listed first; names are in the order of the data."""
    vertices = [Vertex(name, parallelism=parallelism) for name in names]
    edges = [Edge(*pair, Partitioning.HASH, ("word",)) for pair in itertools.pairwise(names)]
    return JobGraph("chain", tuple(vertices[::-1] if reverse else vertices), tuple(edges))


def advice(key: str, slots: int = 1, attempt: int = 1, graph: JobGraph | None = None) -> PrepareJob:
    """What the leader says about a job."""
    return PrepareJob(AttemptId(key, f"run of {key}", attempt), graph or chain("read", "count"), slots)


class FakeProgramFactory:
    """See the module. calls: (job key, "<method> <vertex>-<subtask>") in order.

    on_call: called with both, on the performing thread, after the call was noted. failing: what a call raises.
    silent: vertices that do not know their schema when they are opened. batches: that a source of the sample polls.
    python_starts: calls of warm_python.
    """

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self.contexts: list[ProgramContext] = []
        self.on_call: Callable[[str, str], None] = lambda _key, _call: None
        self.failing: dict[tuple[str, str], Exception] = {}
        self.silent: set[str] = set()
        self.batches = 0
        self.python_starts = 0
        self._changed = threading.Condition()

    def build(self, context: ProgramContext) -> Any:
        self.contexts.append(context)
        self.note(context, "build")
        return FakeProgram(self, context)

    def discover(self, graph: JobGraph, vertex_id: str, known: Sequence[str]) -> Any:
        """Never called: no record is read."""
        raise AssertionError(f"{vertex_id} of {graph.name} is to be discovered, known {known}")

    def interrupt_user_code(self, thread: int) -> None:
        """See ProgramFactory. There is no author's code here."""

    def warm_python(self) -> None:
        with self._changed:
            self.python_starts += 1
            self._changed.notify_all()

    def note(self, context: ProgramContext, method: str) -> None:
        """One call of a program."""
        subtask = context.subtask
        assert subtask.attempt is not None
        key, call = subtask.attempt.job_key, f"{method} {subtask.vertex_id}-{subtask.subtask}"
        with self._changed:
            self.calls.append((key, call))
            self._changed.notify_all()
        self.on_call(key, call)
        if (key, call) in self.failing:
            raise self.failing[key, call]

    def calls_of(self, key: str) -> list[str]:
        """Of one job."""
        with self._changed:
            return [call for called, call in self.calls if called == key]

    def count(self, *methods: str) -> int:
        """Calls of these methods so far."""
        with self._changed:
            return sum(call.split()[0] in methods for _, call in self.calls)

    def wait(self, condition: Callable[[], object]) -> None:
        """Until the condition, looked at after every call, holds."""
        with self._changed:
            assert self._changed.wait_for(condition, WAIT_S), self.calls


class FakeProgram:
    """A SubtaskProgram. A source is a vertex that no edge leads to."""

    def __init__(self, factory: FakeProgramFactory, context: ProgramContext) -> None:
        self._factory, self._context = factory, context
        vertex = context.subtask.vertex_id
        self.is_source = all(edge.target != vertex for edge in context.graph.edges)
        self._batches = factory.batches
        self._has_spoken = False

    def open(self) -> Batch:
        self._factory.note(self._context, "open")
        is_silent = not self.is_source or self._context.subtask.vertex_id in self._factory.silent
        return Batch() if is_silent else self._speak()

    def assign(self, splits: Sequence[SplitState], complete: bool) -> None:
        assert not self._context.is_warmup, (splits, complete)

    def poll(self) -> Poll:
        assert not self._context.is_warmup, "a warm-up reads nothing"
        if not self._batches:
            return Exhausted()
        self._factory.note(self._context, "poll")
        self._batches -= 1
        return self._speak()

    def process(self, source_vertex: str, table: pa.Table) -> Batch:
        assert source_vertex
        assert table.num_rows == 0
        self._factory.note(self._context, "process")
        if self._has_spoken:
            return Batch()
        return self._speak()

    def warm_up(self) -> None:
        self._factory.note(self._context, "warm_up")

    def snapshot(self, checkpoint_id: int) -> FakeProgram:
        assert checkpoint_id == 1
        self._factory.note(self._context, "snapshot")
        return self

    def persist(self) -> None: ...

    def release(self) -> None: ...

    def commit(self, checkpoint_id: int) -> None:
        assert checkpoint_id == 1
        self._factory.note(self._context, "commit")

    def close(self) -> None:
        self._factory.note(self._context, "close")

    def _speak(self) -> Batch:
        """An empty table to every target."""
        self._has_spoken = True
        context = self._context
        return Batch(
            tuple(
                Emission(number, target, EMPTY)
                for number, edge in enumerate(context.graph.edges)
                if edge.source == context.subtask.vertex_id
                for target in range(context.parallelism[edge.target])
            )
        )
