"""SparkEngine: starts and warms up Spark, and builds the programs of subtasks."""

from __future__ import annotations

import hashlib
import logging
import subprocess
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from lockgate_common.places import Places
from lockgate_common.storage import file_name
from lockgate_proto.broadcasts import broadcast_senders
from lockgate_proto.codec import encode
from lockgate_proto.key_groups import key_group_range
from lockgate_proto.messages import (
    AttemptId,
    CountWindow,
    Deduplicate,
    IntervalJoin,
    JobGraph,
    KeyedAggregate,
    KeyedProcess,
    MemoryBackend,
    Operator,
    SplitState,
    StateBackend,
    Vertex,
    WindowProcess,
)
from lockgate_proto.operators import is_keyed, is_source
from lockgate_proto.parts import is_made_again

from lockgate_taskmanager.spark import class_archive, operators, user_code
from lockgate_taskmanager.spark import session as sessions
from lockgate_taskmanager.spark.chain import named
from lockgate_taskmanager.spark.connect import watch_over
from lockgate_taskmanager.spark.dead_letters import DeadLetters
from lockgate_taskmanager.spark.errors import EngineError, explained
from lockgate_taskmanager.spark.event_time import observes
from lockgate_taskmanager.spark.executors import Executors
from lockgate_taskmanager.spark.functions.stage import FunctionContext, FunctionStage
from lockgate_taskmanager.spark.health import Health
from lockgate_taskmanager.spark.jobs import Jobs, description
from lockgate_taskmanager.spark.join_head import JoinHead
from lockgate_taskmanager.spark.keyed import process
from lockgate_taskmanager.spark.keyed.count_windows import CountStores
from lockgate_taskmanager.spark.keyed.process import ProcessStores
from lockgate_taskmanager.spark.keyed.window_process import WindowStores
from lockgate_taskmanager.spark.layout import ChainLayout, check, stages_of
from lockgate_taskmanager.spark.leaf import Form, Leaf, LeafSpec, SlotLeaf, TableLeaf
from lockgate_taskmanager.spark.limits import UNLIMITED, Limits
from lockgate_taskmanager.spark.master import NO_DRIVER, Driver
from lockgate_taskmanager.spark.outputs import DEFAULT_MAX_PARALLELISM, LATE, Outputs, out_edges
from lockgate_taskmanager.spark.program import ChainProgram
from lockgate_taskmanager.spark.sinks.none import NoSink
from lockgate_taskmanager.spark.sinks.transaction import Sink, SinkContext
from lockgate_taskmanager.spark.slot_files import SlotFolder
from lockgate_taskmanager.spark.sources.catching_up import CatchingUp
from lockgate_taskmanager.spark.sources.generator import unpaced
from lockgate_taskmanager.spark.sources.read_ahead import ReadAhead, is_at_most_once
from lockgate_taskmanager.spark.sources.reading import BatchSizer
from lockgate_taskmanager.spark.workbench import Key, Workbench, WorkbenchCache
from lockgate_taskmanager.spark.worker_sockets import WorkerSockets
from lockgate_taskmanager.state.backend import make_backend
from lockgate_taskmanager.state.contents.contents_spec import ContentsSpec
from lockgate_taskmanager.state.factory import AggregateStores, DeduplicateStores, StoreFactory
from lockgate_taskmanager.state.join.join_spec import JoinSpec
from lockgate_taskmanager.state.rows import deduplicate
from lockgate_taskmanager.state.rows.row_store import RowSpec
from lockgate_taskmanager.state.scratch import ScratchFolder
from lockgate_taskmanager.state.spec import StoreSpec
from lockgate_taskmanager.state.store import OperatorStores
from lockgate_taskmanager.task.program import ProgramContext, ProgramError, UserError

LOG = logging.getLogger(__name__)
_LET_GO_WAIT_S = 0.15
_KEPT_RUNS = 4  # whose plans are kept for a next attempt, or as many as there are slots
SPARK_FOLDER = "lockgate-spark-"
_OUT_OF_MEMORY = 52  # the exit status that Spark gives its JVM then
_WARM_LINES = b"to be or not to be\n" * 8_000

__all__ = ["EngineError", "SparkEngine"]


class SparkEngine:
    """The ProgramFactory of a task manager. One per process: it owns the process's SparkSession."""

    def __init__(
        self,
        master: str = "",
        options: Mapping[str, str] | None = None,
        slots: int = 2,
        work_dir: str = ".",
        target_batch_ms: int = 300,
        max_batch_bytes: int = 32 << 20,
        java_options: str | None = None,
        driver: Driver = NO_DRIVER,
        limits: Limits | None = None,
        batch_interval_ms: int = 0,
        niceness: int = 0,
    ) -> None:
        """Starts Spark (seconds). master: empty means local[slots]. Raises EngineError, OSError.

        limits: of jobs whose authors may not run code; None: only the folders of this process are private.

        java_options: for the JVM on this machine; None means those that load the class archive, if there is one. A
        remote master has to be reachable and to provide an executor within a minute. niceness: see `sessions.start`.
        """
        if java_options is None:
            java_options = class_archive.options_to_use()
        self._limits = limits or Limits(Places((work_dir,)))
        self._new_sizer = partial(BatchSizer, target_batch_ms, max_batch_bytes, batch_interval_ms)
        self._spark_folder = ScratchFolder(Path(work_dir), SPARK_FOLDER)
        scratch = "" if master.startswith("sc://") else str(self._spark_folder.path)
        self._is_local = sessions.is_local(master or "local")
        self._sockets = WorkerSockets(Path(scratch)) if self._is_local else None
        options = {**(self._sockets.settings if self._sockets else {}), **(options or {})}
        self._session = sessions.start(master, options, slots, work_dir, java_options, driver, scratch, niceness)
        self._server = watch_over(self._session, master) if sessions.is_connect(self._session) else None
        self._executors = None if self._is_local or self._server else Executors(self._session)
        self._health = Health(self._session) if self._server is None else None
        self._warm_jobs = Jobs(self._session, "lockgate:warm-up", "warm-up of the task manager")
        self._slots = SlotFolder(work_dir) if self._is_local else None
        self._benches = WorkbenchCache(self._new_bench, runs=max(_KEPT_RUNS, slots))
        self._scratch = ScratchFolder(Path(work_dir), "lockgate-state-")
        self._closed = False

    def warm_up(self) -> None:
        """Runs word count once, so that the JVM has loaded the classes of a first job. Takes some seconds.

        It does no more than that: a cluster that starts needs its cores for the first real job. `warm_python` comes
        later.
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
        """Its one task uses one of Spark's slots for that second, not all of them."""
        try:
            self._warm_jobs.adopt_thread()
            with explained("Python on the executors"):
                self._session.range(0, 1, 1, 1).mapInArrow(lambda batches: batches, "id BIGINT").toArrow()
            self._warm_jobs.leave_thread()
        except ProgramError as error:  # jobs without Python functions do not need it
            LOG.log(logging.DEBUG if self._is_local or self._closed else logging.WARNING, "%s", error)
        except Exception as error:  # optional; the engine may have been closed meanwhile
            LOG.debug("warming a Python worker failed: %s", error)

    def on_death(self, callback: Callable[[str], None]) -> None:
        """Calls back with a sentence when Spark is lost before `close`: nothing works here from then on.

        The cause is the end of the JVM, or of the session on a Connect server. A JVM that is cut off from its Spark
        cluster, or in which Spark cannot run jobs any more, counts as dead and is terminated.
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
        """A subtask has failed here: checks soon whether Spark is the cause."""
        if self._health is not None:
            self._health.suspect()

    def build(self, context: ProgramContext) -> ChainProgram:
        vertex = _vertex(context.graph, context.subtask.vertex_id)
        check(vertex)
        self._check_storage(context)
        key = _bench_key(context)
        wait_s = 0 if context.is_warmup else _LET_GO_WAIT_S
        bench = self._benches.check_out(key, context.subtask.subtask, wait_s, context.is_warmup)
        try:
            if context.graph.confined:
                sessions.confine(bench.session)
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
                _dead_letters(context, vertex, bench),
                Jobs(bench.session, f"lockgate:{attempt.run_id}:{prefix}", _description(context), context.engine_time),
                make_backend(context.graph.state_backend, context.checkpoint_directory, prefix, context.copied_run),
                self._stores(layout, context.graph.state_backend, bench),
                self._new_sizer(),
                self._join(layout, context.graph.state_backend),
            )
        except BaseException:
            self._benches.check_in(key, context.subtask.subtask, bench)
            raise

    def discover(self, graph: JobGraph, vertex_id: str, known: Collection[str]) -> tuple[tuple[SplitState, ...], bool]:
        return operators.discover(_vertex(graph, vertex_id), known, self._limits_of(graph))

    def _check_storage(self, context: ProgramContext) -> None:
        """Raises UserError for a storage that the job may not choose. From now on the cluster's folder in it is
        private: `<storage>/<cluster>/<job>/<run>` is this run's.
        """
        backend = (context.graph.state_backend or StateBackend()).backend
        if uri := getattr(backend, "uri", ""):
            self._limits_of(context.graph).check_name(uri, "the state backend's folder", writes=True)
        attempt, places = context.subtask.attempt or AttemptId(), self._limits.places
        folder = context.checkpoint_directory.partition("?")[0]
        if places is not None and not context.is_warmup and attempt.job_key:
            places.add(folder.removesuffix(f"/{quote(attempt.job_key)}/{quote(attempt.run_id)}"))

    def _limits_of(self, graph: JobGraph) -> Limits:
        return self._limits if graph.confined else UNLIMITED

    def interrupt_user_code(self, thread: int) -> None:
        user_code.end(thread)

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
            self._server.close()  # not earlier: closing a session on a server that is gone takes time
        if self._slots is not None:
            self._slots.close()
        sessions.stop(self._session)
        if self._sockets is not None:
            self._sockets.close()
        self._spark_folder.close()

    def close_jvm(self) -> int | None:
        """Stops Spark and the JVM, and waits for its end; returns its exit status, None when the JVM is not ours."""
        self.close()
        process = sessions.driver_process(self._session)
        return None if process is None else sessions.end(process, None)  # it may be writing its class archive

    def _layout(self, context: ProgramContext, vertex: Vertex, bench: Workbench) -> ChainLayout:
        first = vertex.operators[0]
        by_split = observes(vertex.operators)
        source, gives_tables, limits = None, True, self._limits_of(context.graph)
        if is_source(first):
            source, gives_tables = operators.source_of(first, bench.session, by_split, limits)
            if is_at_most_once(context.graph) and not context.is_warmup:
                source = ReadAhead(source)
            if any(context.received):
                again = partial(operators.source_of, unpaced(first), bench.session, by_split, limits)
                source = CatchingUp(source, lambda: again()[0], context.received)
        join = first if isinstance(first.kind, IntervalJoin) else None
        behind = vertex.operators[1:] if source or is_keyed(first) else vertex.operators
        sink, function = partial(self._sink, context, bench), partial(_function, context, bench)
        groups = vertex.max_parallelism or DEFAULT_MAX_PARALLELISM
        parallelism = _parallelism(context, vertex)
        return ChainLayout(
            operators=vertex.operators,
            head=first if source else None,
            source=source,
            keyed=first if is_keyed(first) and join is None else None,
            join=join,
            sides={edge.source: edge.join_side for edge in context.graph.edges if edge.target == vertex.id},
            stages=stages_of(behind, bench, sink, function, needs_first_job=not gives_tables),
            broadcast_senders=broadcast_senders(context.graph, vertex.id),
            key_groups=key_group_range(context.subtask.subtask, parallelism, groups),
            max_parallelism=groups,
            is_made_again=is_made_again(context.graph, vertex.id),
            reopened=partial(operators.reopened, first, limits),
        )

    def _stores(self, layout: ChainLayout, choice: StateBackend | None, bench: Workbench) -> OperatorStores | None:
        """Of the operator with keyed state; None when there is none."""
        keyed, groups, owned = layout.keyed, layout.max_parallelism, layout.key_groups
        if keyed is None:
            return None
        factory = StoreFactory(choice, self._scratch)
        match keyed.kind:
            case KeyedAggregate() as aggregate:
                return AggregateStores(factory, StoreSpec(keyed.id, aggregate, groups, owned))
            case KeyedProcess(keys=keys):
                return ProcessStores(keyed, RowSpec(keyed.id, process.OWNER, keys, groups, owned), factory, bench)
            case WindowProcess(keys=keys, window=window):
                assert window is not None
                return WindowStores(keyed, ContentsSpec(keyed.id, keys, window, groups, owned), factory, bench)
            case CountWindow():
                return CountStores.of(keyed, groups, owned, factory, bench)
            case Deduplicate(keys=keys, ttl_ms=ttl_ms):
                spec = RowSpec(keyed.id, deduplicate.OWNER, keys, groups, owned)
                return DeduplicateStores(factory.without_diffs(), spec, ttl_ms)
            case kind:
                raise AssertionError(f"{type(kind).__name__} has no keyed state")

    def _join(self, layout: ChainLayout, choice: StateBackend | None) -> JoinHead | None:
        """The interval join at the head; None when there is none."""
        join = layout.join
        if join is None or not isinstance(join.kind, IntervalJoin):
            return None
        spec = JoinSpec(join.id, join.kind, layout.max_parallelism, layout.key_groups)
        return JoinHead(join, layout.sides, StoreFactory(choice, self._scratch).join(spec))

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
            limits=self._limits_of(context.graph),
            is_at_most_once=is_at_most_once(context.graph),
            is_fresh=not context.restored_checkpoint_id,
        )
        if context.is_warmup:
            operators.warm(operator)
            return NoSink(where)
        return operators.sink_of(operator, where, bench.session)

    def _new_bench(self) -> Workbench:
        session = sessions.another(self._session)
        return Workbench(self._server.keep(session) if self._server else session, self._new_leaf)

    def _new_leaf(self, session: Any, spec: LeafSpec) -> Leaf:
        return TableLeaf(session, spec) if self._slots is None else SlotLeaf(session, spec, self._slots.new_path())


def _dead_letters(context: ProgramContext, vertex: Vertex, bench: Workbench) -> DeadLetters:
    names = sorted({operator.dead_letters for operator in vertex.operators if operator.dead_letters})
    edges = {name: out_edges(context.graph, vertex.id, context.parallelism, name) for name in names}
    return DeadLetters({name: Outputs(edges[name], context.subtask.subtask, bench, name) for name in names})


def _function(context: ProgramContext, bench: Workbench, operator: Operator) -> FunctionStage:
    subtask, attempt = context.subtask, context.subtask.attempt or AttemptId()
    about = FunctionContext(
        job_key=attempt.job_key,
        operator_id=operator.id,
        subtask=subtask.subtask,
        parallelism=_parallelism(context, _vertex(context.graph, subtask.vertex_id)),
        attempt=attempt.attempt,
    )
    backend = (context.graph.state_backend or StateBackend()).backend
    has_files = not isinstance(backend, MemoryBackend)
    return FunctionStage(operator, about, bench.session, context.is_warmup, has_files)


def _give_up(process: subprocess.Popen[bytes], why: str) -> None:
    """At once: until the JVM has ended, slots are offered in which nothing can run."""
    LOG.critical("%s; terminating its JVM", why)
    process.kill()


def _warm_query(frame: Any) -> Any:
    words = frame.selectExpr("explode(split(value, ' ')) AS word")
    return words.groupBy("word").count().selectExpr("CAST(pmod(xxhash64(word), 128) AS INT) AS kg", "*")


def _vertex(graph: JobGraph, vertex_id: str) -> Vertex:
    for vertex in graph.vertices:
        if vertex.id == vertex_id:
            return vertex
    raise UserError(f"the job graph has no vertex '{vertex_id}'")


def _parallelism(context: ProgramContext, vertex: Vertex) -> int:
    return context.parallelism.get(vertex.id) or vertex.parallelism or 1


def _description(context: ProgramContext) -> str:
    return description(context.subtask, context.restored_checkpoint_id, context.is_warmup)


def _bench_key(context: ProgramContext) -> Key:
    """Same run, same graph, same vertex: same plans.

    Independent of the parallelism: records are routed after the plans.
    """
    attempt = context.subtask.attempt or AttemptId()
    vertices = tuple(replace(vertex, parallelism=0) for vertex in context.graph.vertices)
    graph = hashlib.sha256(encode(replace(context.graph, vertices=vertices))).digest()
    return (attempt.run_id, graph, context.subtask.vertex_id)
