"""SparkEngine: the task manager's way into Spark. Starts it, warms it, and builds the programs of subtasks."""

from __future__ import annotations

import hashlib
import logging
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from lockgate_proto.codec import encode
from lockgate_proto.key_groups import key_group_range
from lockgate_proto.messages import (
    AttemptId,
    ConsoleSink,
    Deduplicate,
    DeltaSink,
    FileFormat,
    FileSink,
    FileSource,
    ForeachBatchSink,
    GeneratorSource,
    IntervalJoin,
    JobGraph,
    KafkaSink,
    KafkaSource,
    KafkaWriteMode,
    KeyedAggregate,
    KeyedProcess,
    Operator,
    PythonSink,
    PythonSource,
    SocketSource,
    SplitState,
    SqlSink,
    StateBackend,
    Vertex,
)

from lockgate_process.storage import file_name
from taskmanager.spark import class_archive
from taskmanager.spark import session as sessions
from taskmanager.spark.chain import loaded, named, unpickled
from taskmanager.spark.connect import watch_over
from taskmanager.spark.errors import EngineError, explained
from taskmanager.spark.event_time import observes
from taskmanager.spark.executors import Executors
from taskmanager.spark.health import Health
from taskmanager.spark.jobs import Jobs, description
from taskmanager.spark.join_head import JoinHead
from taskmanager.spark.keyed import process
from taskmanager.spark.keyed.process import ProcessStores
from taskmanager.spark.layout import ChainLayout, check, is_keyed, is_source, stages_of
from taskmanager.spark.leaf import Form, Leaf, LeafSpec, SlotLeaf, TableLeaf, passable_schema
from taskmanager.spark.master import NOBODY, Driver
from taskmanager.spark.outputs import DEFAULT_MAX_PARALLELISM, LATE, Outputs, out_edges
from taskmanager.spark.program import ChainProgram
from taskmanager.spark.sinks.console import ConsoleSink as ConsoleWriter
from taskmanager.spark.sinks.custom import CustomWriter
from taskmanager.spark.sinks.delta import DeltaSink as DeltaWriter
from taskmanager.spark.sinks.delta import warm as warm_delta
from taskmanager.spark.sinks.files import FileSink as FileWriter
from taskmanager.spark.sinks.foreach import ForeachBatchSink as ForeachBatchCaller
from taskmanager.spark.sinks.kafka import KafkaSink as KafkaWriter
from taskmanager.spark.sinks.kafka_direct import DirectKafkaSink
from taskmanager.spark.sinks.none import NoSink
from taskmanager.spark.sinks.sql import SqlSink as SqlWriter
from taskmanager.spark.sinks.transaction import Sink, SinkContext
from taskmanager.spark.slots import SlotFolder
from taskmanager.spark.sources import custom, kafka, listing, sockets
from taskmanager.spark.sources.custom import CustomReader
from taskmanager.spark.sources.generator import RangeSource
from taskmanager.spark.sources.kafka import KafkaReader
from taskmanager.spark.sources.lines import LineSource
from taskmanager.spark.sources.parquet import ParquetSource
from taskmanager.spark.sources.reading import BatchSizer, Source
from taskmanager.spark.sources.sockets import SocketReader
from taskmanager.spark.workbench import Key, Workbench, WorkbenchCache
from taskmanager.state import deduplicate
from taskmanager.state.backend import make_backend
from taskmanager.state.join_home import JoinSpec
from taskmanager.state.join_store import JoinStores
from taskmanager.state.row_store import RowSpec
from taskmanager.state.row_stores import RowStores
from taskmanager.state.scratch import ScratchFolder
from taskmanager.state.store import OperatorStores, StoreSpec
from taskmanager.state.stores import AggregateStores, StoreMaker
from taskmanager.task.program import ProgramContext, ProgramError, UserError

LOG = logging.getLogger(__name__)
_LET_GO_WAIT_S = 0.15
_KEPT_RUNS = 4  # whose plans are kept for a next attempt, or as many as there are slots
_OUT_OF_MEMORY = 52  # the exit status that Spark gives its JVM then
_WARM_LINES = b"to be or not to be\n" * 8_000

__all__ = ["EngineError", "SparkEngine"]


class SparkEngine:
    """See `taskmanager.task.program.ProgramFactory`. One per process: it owns the process's SparkSession."""

    def __init__(
        self,
        master: str = "",
        options: Mapping[str, str] | None = None,
        slots: int = 2,
        work_dir: str = ".",
        target_batch_ms: int = 300,
        max_batch_bytes: int = 32 << 20,
        java_options: str | None = None,
        driver: Driver = NOBODY,
    ) -> None:
        """Starts Spark (seconds). master: empty means local[slots]. Raises EngineError, OSError.

        java_options: of the JVM on this machine; None means those that load the class archive, where there is one.
        A master elsewhere has to be there and to give an executor within a minute.
        """
        if java_options is None:
            java_options = class_archive.options_to_use()
        self._target_batch_ms = target_batch_ms
        self._max_batch_bytes = max_batch_bytes
        self._session = sessions.start(master, options or {}, slots, work_dir, java_options, driver)
        self._is_local = sessions.is_local(master or "local")
        self._server = watch_over(self._session, master) if sessions.is_connect(self._session) else None
        self._executors = None if self._is_local or self._server else Executors(self._session)
        self._health = Health(self._session) if self._server is None else None
        self._warm_jobs = Jobs(self._session, "lockgate:warm-up", "warm-up of the task manager")
        self._slots = SlotFolder(work_dir) if self._is_local else None
        self._benches = WorkbenchCache(self._new_bench, runs=max(_KEPT_RUNS, slots))
        self._scratch = ScratchFolder(Path(work_dir), "lockgate-state-")
        self._closed = False

    def warm_up(self) -> None:
        """Runs word count once, so that the JVM has loaded what a first job needs. Some seconds.

        No more than that: a cluster that starts wants its cores for the first real job. `warm_python` is for later.
        """
        if self._executors is not None:
            self._executors.await_first()
        self._warm_jobs.adopt_thread()
        bench = self._new_bench()
        try:
            bench.plan("lines", LeafSpec(Form.TEXT), _warm_query, "warm-up").run([_WARM_LINES])
        finally:
            bench.close()
            self._warm_jobs.leave_thread()

    def warm_python(self) -> None:
        """See ProgramFactory. Its one task holds one of Spark's slots for that second, not all of them."""
        try:
            self._warm_jobs.adopt_thread()
            with explained("Python on the executors"):
                self._session.range(0, 1, 1, 1).mapInArrow(lambda batches: batches, "id BIGINT").toArrow()
            self._warm_jobs.leave_thread()
        except ProgramError as error:  # the jobs that have no Python functions do without
            LOG.log(logging.DEBUG if self._is_local or self._closed else logging.WARNING, "%s", error)
        except Exception as error:  # a nicety; closing may have been quicker
            LOG.debug("warming a Python worker failed: %s", error)

    def on_death(self, callback: Callable[[str], None]) -> None:
        """Calls back with a sentence when Spark is lost before `close`: nothing works here from then on.

        That is the end of the JVM, or of the session in a Connect server. A JVM that is cut off from its Spark cluster,
        or in which Spark runs no jobs any more, is as good as dead, and ended.
        """
        if self._server is not None:
            self._server.start(callback)
        process = sessions.driver_process(self._session)
        if process is None:
            return
        if self._executors is not None:
            self._executors.watch(partial(sessions.end, process))
        if self._health is not None:
            self._health.watch(partial(_give_up, process))

        def wait() -> None:
            status = process.wait()
            if not self._closed:
                why = ", out of memory" if status == _OUT_OF_MEMORY else ""
                callback(f"Spark's JVM ended with status {status}{why}")

        threading.Thread(target=wait, name="spark-jvm-watch", daemon=True).start()

    def suspect(self) -> None:
        """A subtask has failed here: it is looked soon whether Spark is to blame."""
        if self._health is not None:
            self._health.suspect()

    def build(self, context: ProgramContext) -> ChainProgram:
        """See ProgramFactory."""
        vertex = _vertex(context.graph, context.subtask.vertex_id)
        check(vertex)
        key = _bench_key(context)
        wait_s = 0 if context.is_rehearsal else _LET_GO_WAIT_S
        bench = self._benches.check_out(key, context.subtask.subtask, wait_s, context.is_rehearsal)
        try:
            layout = self._layout(context, vertex, bench)
            layout.release = partial(self._benches.check_in, key, context.subtask.subtask, bench)
            edges = out_edges(context.graph, vertex.id, context.parallelism)
            late = out_edges(context.graph, vertex.id, context.parallelism, LATE)
            attempt = context.subtask.attempt or AttemptId()
            prefix = f"a{attempt.attempt}-{file_name(vertex.id)}-{context.subtask.subtask}"
            return ChainProgram(
                context,
                layout,
                Outputs(edges, context.subtask.subtask, bench),
                Outputs(late, context.subtask.subtask, bench, LATE),
                Jobs(bench.session, f"lockgate:{attempt.run_id}:{prefix}", _description(context)),
                make_backend(context.graph.state_backend, context.checkpoint_directory, prefix),
                self._stores(layout, context.graph.state_backend, bench),
                BatchSizer(self._target_batch_ms, self._max_batch_bytes),
                self._join(layout, context.graph.state_backend),
            )
        except BaseException:
            self._benches.check_in(key, context.subtask.subtask, bench)
            raise

    def discover(self, graph: JobGraph, vertex_id: str, known: Sequence[str]) -> tuple[tuple[SplitState, ...], bool]:
        """See ProgramFactory."""
        vertex = _vertex(graph, vertex_id)
        kind = vertex.operators[0].kind if vertex.operators else None
        if isinstance(kind, FileSource):
            return listing.discover(kind, known)
        if isinstance(kind, GeneratorSource):
            names = [str(n) for n in range(kind.partitions or vertex.parallelism or 1)]
            end = kind.rows_per_partition or -1
            return tuple(SplitState(split=name, end=end) for name in names if name not in set(known)), True
        if isinstance(kind, PythonSource):
            return custom.discover(kind, known, named(vertex.operators[0]))
        if isinstance(kind, SocketSource):
            return sockets.discover(kind, known)
        if isinstance(kind, KafkaSource):
            return kafka.discover(kind, known, named(vertex.operators[0]))
        raise UserError(f"vertex '{vertex_id}' has no source, so there is nothing to discover")

    def close(self) -> None:
        """Stops Spark. Idempotent."""
        if self._closed:
            return
        self._closed = True
        if self._executors is not None:
            self._executors.close()
        if self._health is not None:
            self._health.close()
        self._benches.close()
        self._scratch.close()
        if self._server is not None:
            self._server.close()  # not before: to say good-bye to a server that is gone takes its time
        if self._slots is not None:
            self._slots.close()
        sessions.stop(self._session)

    def close_jvm(self) -> int | None:
        """Stops Spark, ends the JVM as well and waits for that; its exit status, None where it is not ours."""
        self.close()
        process = sessions.driver_process(self._session)
        return None if process is None else sessions.end(process, None)  # it may be writing its class archive

    def _layout(self, context: ProgramContext, vertex: Vertex, bench: Workbench) -> ChainLayout:
        first = vertex.operators[0]
        by_split = observes(vertex.operators)
        source = self._source(first, bench, by_split) if is_source(first) else None
        join = first if isinstance(first.kind, IntervalJoin) else None
        behind = vertex.operators[1:] if source or is_keyed(first) else vertex.operators
        needs_job = source is not None and not isinstance(source, ParquetSource | CustomReader | KafkaReader)
        sink = partial(self._sink, context, bench)
        groups = vertex.max_parallelism or DEFAULT_MAX_PARALLELISM
        parallelism = _parallelism(context, vertex)
        return ChainLayout(
            operators=vertex.operators,
            head=first if source else None,
            source=source,
            keyed=first if is_keyed(first) and join is None else None,
            join=join,
            sides={edge.source: edge.join_side for edge in context.graph.edges if edge.target == vertex.id},
            stages=stages_of(behind, bench, sink, needs_job),
            key_groups=key_group_range(context.subtask.subtask, parallelism, groups),
            max_parallelism=groups,
        )

    def _stores(self, layout: ChainLayout, choice: StateBackend | None, bench: Workbench) -> OperatorStores | None:
        """Of the operator with keyed state, None where there is none."""
        keyed, groups, owned = layout.keyed, layout.max_parallelism, layout.key_groups
        rows = RowStores(choice or StateBackend(), self._scratch)
        kind = None if keyed is None else keyed.kind
        if keyed is not None and isinstance(kind, KeyedAggregate):
            return AggregateStores(StoreMaker(choice, self._scratch), StoreSpec(keyed.id, kind, groups, owned))
        if keyed is not None and isinstance(kind, KeyedProcess):
            return ProcessStores(keyed, RowSpec(keyed.id, process.OWNER, kind.keys, groups, owned), rows, bench)
        if keyed is not None and isinstance(kind, Deduplicate):
            spec = RowSpec(keyed.id, deduplicate.OWNER, kind.keys, groups, owned)
            return deduplicate.DeduplicateStores(spec, rows.without_diffs(), kind.ttl_ms)
        return None

    def _join(self, layout: ChainLayout, choice: StateBackend | None) -> JoinHead | None:
        """The interval join at the head, None where there is none."""
        join = layout.join
        if join is None or not isinstance(join.kind, IntervalJoin):
            return None
        stores = JoinStores(choice or StateBackend(), self._scratch)
        store = stores.fresh(JoinSpec(join.id, join.kind, layout.max_parallelism, layout.key_groups))
        return JoinHead(join, layout.sides, store)

    def _source(self, operator: Operator, bench: Workbench, by_split: bool) -> Source:
        kind = operator.kind
        if isinstance(kind, GeneratorSource):
            return RangeSource(kind, by_split)
        if isinstance(kind, SocketSource):
            return SocketReader(kind, named(operator))
        if isinstance(kind, KafkaSource):
            return KafkaReader(kind, named(operator), by_split)
        if isinstance(kind, PythonSource):
            declared = self._declared(kind.schema, named(operator), bench)
            return CustomReader(kind, declared, named(operator), by_split)
        assert isinstance(kind, FileSource)
        if kind.format == FileFormat.PARQUET:
            declared = self._declared(kind.schema, named(operator), bench) if kind.schema else None
            return ParquetSource(kind, declared, by_split)
        if kind.format == FileFormat.TEXT:
            return LineSource(kind, ("value",), by_split)
        if kind.format not in (FileFormat.CSV, FileFormat.JSON_LINES):
            raise UserError(f"{named(operator)} has no file format")
        if not kind.schema:
            raise UserError(
                f"{named(operator)}: {kind.format.name} needs a schema, for example 'id BIGINT, name STRING'"
            )
        with _declared_well(kind.schema, named(operator)):  # of types that need not leave Spark
            return LineSource(kind, bench.session.createDataFrame([], kind.schema).columns, by_split)

    def _declared(self, ddl: str, where: str, bench: Workbench) -> pa.Schema:
        with _declared_well(ddl, where):
            return passable_schema(bench.session.createDataFrame([], ddl), f"{where}: its schema")

    def _sink(self, context: ProgramContext, bench: Workbench, operator: Operator) -> Sink:
        subtask, attempt = context.subtask, context.subtask.attempt or AttemptId()
        where = SinkContext(
            job_key=attempt.job_key,
            run_id=attempt.run_id,
            attempt=attempt.attempt,
            vertex_id=subtask.vertex_id,
            subtask=subtask.subtask,
            operator_id=operator.id,
            where=named(operator),
            parallelism=_parallelism(context, _vertex(context.graph, subtask.vertex_id)),
        )
        kind = operator.kind
        if context.is_rehearsal:
            if isinstance(kind, DeltaSink):
                warm_delta()
            return NoSink(where)
        if isinstance(kind, FileSink):
            return FileWriter(where, kind)
        if isinstance(kind, SqlSink):
            return SqlWriter(where, kind)
        if isinstance(kind, ConsoleSink):
            return ConsoleWriter(where, kind)
        if isinstance(kind, DeltaSink):
            return DeltaWriter(where, kind)
        if isinstance(kind, KafkaSink):
            is_loose = kind.mode is KafkaWriteMode.KAFKA_AT_LEAST_ONCE
            return DirectKafkaSink(where, kind) if is_loose else KafkaWriter(where, kind)
        if isinstance(kind, PythonSink):
            methods = ("stage", "commit", "abort", "staged")
            return CustomWriter(where, loaded(kind.sink, where.where, "its sink", methods))
        assert isinstance(kind, ForeachBatchSink)
        return ForeachBatchCaller(where, unpickled(kind.function, where.where), bench.session.createDataFrame)

    def _new_bench(self) -> Workbench:
        session = sessions.another(self._session)
        return Workbench(self._server.keep(session) if self._server else session, self._new_leaf)

    def _new_leaf(self, session: Any, spec: LeafSpec) -> Leaf:
        return TableLeaf(session, spec) if self._slots is None else SlotLeaf(session, spec, self._slots.new_path())


def _give_up(process: subprocess.Popen[bytes], why: str) -> None:
    """At once: until the JVM has ended, slots are offered in which nothing runs."""
    LOG.critical("%s; its JVM is ended", why)
    process.kill()


def _warm_query(frame: Any) -> Any:
    words = frame.selectExpr("explode(split(value, ' ')) AS word")
    return words.groupBy("word").count().selectExpr("CAST(pmod(xxhash64(word), 128) AS INT) AS kg", "*")


def _declared_well(ddl: str, where: str) -> AbstractContextManager[None]:
    return explained(f"{where}: the schema '{ddl}' is wrong")


def _vertex(graph: JobGraph, vertex_id: str) -> Vertex:
    for vertex in graph.vertices:
        if vertex.id == vertex_id:
            return vertex
    raise UserError(f"the job graph has no vertex '{vertex_id}'")


def _parallelism(context: ProgramContext, vertex: Vertex) -> int:
    return context.parallelism.get(vertex.id) or vertex.parallelism or 1


def _description(context: ProgramContext) -> str:
    return description(context.subtask, context.restored_checkpoint_id, context.is_rehearsal)


def _bench_key(context: ProgramContext) -> Key:
    """Same run, same graph, same vertex: same plans. Whatever the parallelism: plans end before records are routed."""
    attempt = context.subtask.attempt or AttemptId()
    vertices = tuple(replace(vertex, parallelism=0) for vertex in context.graph.vertices)
    graph = hashlib.sha256(encode(replace(context.graph, vertices=vertices))).digest()
    return (attempt.run_id, graph, context.subtask.vertex_id)
