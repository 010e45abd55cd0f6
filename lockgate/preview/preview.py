"""One preview: checks the graph as a leader does, runs it on a sample, and returns what its sinks were given."""

from __future__ import annotations

import atexit
import shutil
import tempfile
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lockgate_proto.messages import JobGraph

from lockgate.connectors import CustomSink, Transaction
from lockgate.errors import UserError
from lockgate.preview.sample import sampled, sinks

if TYPE_CHECKING:
    import pyarrow as pa
    from lockgate_taskmanager.spark.engine import SparkEngine

_LEAST_BATCH_BYTES, _BYTES_A_ROW = 1024, 16
"""Small micro-batches, so that little more than the sample is read."""


class PreviewFailed(UserError):
    """The pipeline, its input or Spark. `traceback`: of the pipeline's Python code, "" where that did not fail."""

    exit_code = 1

    def __init__(self, message: str, traceback: str = "") -> None:
        super().__init__(message)
        self.traceback = traceback


@dataclass(frozen=True, slots=True)
class Output:
    """What came out. read: rows by source vertex; tables: what each sink was given, by operator id; names: of sinks."""

    read: Mapping[str, int]
    tables: Mapping[str, pa.Table]
    names: Mapping[str, str]


class _Collector(CustomSink):
    """Keeps the rows in this process, where the preview finds them."""

    collected: dict[str, list[pa.Table]] = {}  # noqa: RUF012  of the process

    def __init__(self, operator_id: str) -> None:
        self._operator_id = operator_id

    def stage(self, transaction: Transaction, rows: pa.Table) -> None:  # noqa: ARG002
        self.collected.setdefault(self._operator_id, []).append(rows)

    def commit(self, transaction: Transaction) -> None:
        """Nothing is written."""

    def abort(self, transaction: Transaction) -> None:
        """Nothing is staged."""

    def staged(self) -> Iterable[str]:
        return ()


class _Engine:
    """Spark, once for each process: a test suite starts it once."""

    started: SparkEngine | None = None


def preview_graph(graph: JobGraph, rows: int) -> Output:
    """Runs the graph on about `rows` rows of each source. Raises UserError, PreviewFailed."""
    import pyarrow as pa
    from lockgate_coordinator.graph.validate import validate
    from lockgate_taskmanager.task.program import ProgramError

    from lockgate.preview.runner import Runner

    if problems := validate(graph):
        raise UserError("\n".join(problems))
    sample = sampled(graph, rows, _pickled)
    _Collector.collected.clear()
    with tempfile.TemporaryDirectory(prefix="lockgate-preview-") as folder:
        try:
            runner = Runner(_engine(rows), sample, f"{folder}/checkpoints", uuid.uuid4().hex)
            try:
                read = runner.run(rows)
            finally:
                runner.close()
        except ProgramError as error:
            raise _failed(error) from error
    tables = {key: pa.concat_tables(found) for key, found in _Collector.collected.items()}
    return Output(read, tables, sinks(graph))


def _pickled(operator_id: str) -> bytes:
    from lockgate.pipeline.pickled import pickled_connector

    return pickled_connector("preview", _Collector(operator_id), CustomSink)


def _failed(error: Exception) -> PreviewFailed:
    from lockgate_taskmanager.runtime.failures import place_of, text_of

    place = place_of(error, None)
    return PreviewFailed(text_of(error), place.traceback if place is not None else "")


def _engine(rows: int) -> SparkEngine:
    """Spark, started at the first call; it ends with the process."""
    from lockgate_taskmanager.spark.engine import SparkEngine

    if _Engine.started is None:
        work = tempfile.mkdtemp(prefix="lockgate-preview-spark-")
        engine = SparkEngine(slots=2, work_dir=work, max_batch_bytes=max(_LEAST_BATCH_BYTES, rows * _BYTES_A_ROW))
        _Engine.started = engine

        def end() -> None:
            engine.close_jvm()
            shutil.rmtree(work, ignore_errors=True)

        atexit.register(end)
    return _Engine.started
