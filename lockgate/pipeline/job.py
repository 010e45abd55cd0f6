"""The pipeline builder: a pipeline file creates a Job and submits it."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from lockgate_proto.messages import (
    CheckpointMode,
    CheckpointOptions,
    FileFormat,
    FileSource,
    FilesystemBackend,
    GeneratorSource,
    JobGraph,
    LeaderFailover,
    MemoryBackend,
    PythonSource,
    RestartStrategy,
    RocksdbBackend,
    SocketSource,
    StateBackend,
    StragglerReplacement,
    TaskManagerFailover,
)

from lockgate.connectors import CustomSource
from lockgate.pipeline import checks, kafka
from lockgate.pipeline.errors import PipelineError
from lockgate.pipeline.habits import Hinting
from lockgate.pipeline.pickled import describe, pickled_connector
from lockgate.pipeline.plan import Input, Plan, check_ends, vertices_and_edges
from lockgate.pipeline.restart import Restart
from lockgate.pipeline.stragglers import replacement
from lockgate.pipeline.stream import Stream

if TYPE_CHECKING:
    from lockgate.client import JobHandle

MAX_KEY_GROUPS = 32768
MODES = {  # defaults are omitted, so that the graph of a job that uses them does not change
    "exactly_once": CheckpointMode.CHECKPOINT_MODE_UNSPECIFIED,
    "at_least_once": CheckpointMode.AT_LEAST_ONCE,
    "at_most_once": CheckpointMode.AT_MOST_ONCE,
    "unaligned": CheckpointMode.UNALIGNED,
    "stop_the_world": CheckpointMode.STOP_THE_WORLD,
}
FAILOVERS = {
    "reattach": LeaderFailover.LEADER_FAILOVER_REATTACH,
    "restart": LeaderFailover.LEADER_FAILOVER_RESTART,
}
PARTS = {
    "whole": TaskManagerFailover.TASK_MANAGER_FAILOVER_WHOLE,
    "part": TaskManagerFailover.TASK_MANAGER_FAILOVER_PART,
}
MAX_FULL_EVERY = 1_000
MAX_CONCURRENT = 100
MAX_REPLICAS = 8

Location = str | os.PathLike[str]


class Job(Hinting):
    """A streaming job under construction.

    >>> job = Job("wordcount", parallelism=2)
    >>> words = job.read_text("books").sql("SELECT explode(split(value, ' ')) AS word FROM input")
    >>> words.key_by("word").aggregate(n=count()).write_sql("sqlite:///counts.db", "counts", key="word")
    >>> job.submit()

    name: for listings; key: the job key, made from the name by default; submitting the same Job object again is the
    same job; parallelism: subtasks of each operator by default; max_parallelism: number of key groups, a permanent
    upper limit; state: "filesystem" (the cluster's storage), "memory", "rocksdb", a pyarrow.fs URI or a StateBackend
    message;
    full_snapshot_every: with 10 every tenth snapshot of keyed state is full, the nine between are incremental;
    binary_diff: increments of a process function's state hold binary differences where these are at most half as large;
    restart: `Restart.exponential()` by default; replace_stragglers: True or `stragglers(...)` moves a subtask that is
    much slower than its siblings to another task manager; leader_failover: whether a new leader goes on with what
    runs ("reattach", the cluster's default) or starts the job again from its newest checkpoint ("restart");
    standby_replicas: how many task managers with free slots keep copies of the newest checkpoint's files on their own
    disks, while those that run the job keep theirs: a restart then reads no storage (docs/standby-copies.md);
    task_manager_failover: "part" restarts only what a lost task manager ran, also where records are distributed by key;
    with it you assert that what a Python function in front of `key_by` makes of a record depends on the record alone,
    and not on its neighbours, the time or chance, and that what is looked up there does not change
    (docs/pipeline-authors.md). Times in milliseconds. Errors raise PipelineError.
    """

    def __init__(
        self,
        name: str,
        *,
        key: str | None = None,
        parallelism: int = 1,
        max_parallelism: int = 128,
        checkpoint_interval_ms: int = 1000,
        checkpoint_timeout_ms: int = 60_000,
        min_pause_ms: int = 0,
        tolerable_failed_checkpoints: int = 0,
        retained_checkpoints: int = 1,
        retain_after_end: bool = False,
        checkpoint_mode: Literal[
            "exactly_once", "at_least_once", "at_most_once", "unaligned", "stop_the_world"
        ] = "exactly_once",
        aligned_timeout_ms: int = 0,
        max_concurrent_checkpoints: int = 1,
        state: Literal["filesystem", "memory", "rocksdb"] | str | StateBackend = "filesystem",
        full_snapshot_every: int = 1,
        binary_diff: bool = False,
        restart: RestartStrategy | None = None,
        replace_stragglers: bool | StragglerReplacement = False,
        leader_failover: Literal["reattach", "restart"] | None = None,
        standby_replicas: int = 0,
        task_manager_failover: Literal["whole", "part"] | None = None,
    ) -> None:
        self.name = checks.text("Job", "a name", name, "wordcount")
        self.max_parallelism = checks.whole("Job", "max_parallelism", max_parallelism, 1, MAX_KEY_GROUPS)
        self.default_parallelism = checks.whole("Job", "parallelism", parallelism, 1, self.max_parallelism)
        self._key = None if key is None else checks.job_key(key)
        at_a_time = checks.whole("Job", "max_concurrent_checkpoints", max_concurrent_checkpoints, 1, MAX_CONCURRENT)
        self._checkpoints = CheckpointOptions(
            interval_ms=checks.whole("Job", "checkpoint_interval_ms", checkpoint_interval_ms, 10),
            timeout_ms=checks.whole("Job", "checkpoint_timeout_ms", checkpoint_timeout_ms, 100),
            min_pause_ms=checks.whole("Job", "min_pause_ms", min_pause_ms, 0),
            tolerable_failures=checks.whole("Job", "tolerable_failed_checkpoints", tolerable_failed_checkpoints, 0),
            retained=checks.whole("Job", "retained_checkpoints", retained_checkpoints, 1, 1000),
            retain_after_end=bool(retain_after_end),
            mode=checks.one_of("Job", "checkpoint_mode", checkpoint_mode, MODES),
            aligned_timeout_ms=checks.whole("Job", "aligned_timeout_ms", aligned_timeout_ms, 0),
            max_concurrent=0 if at_a_time == 1 else at_a_time,
        )
        if aligned_timeout_ms and checkpoint_mode != "unaligned":
            raise PipelineError('Job: aligned_timeout_ms belongs to checkpoint_mode="unaligned"')
        full_every = checks.whole("Job", "full_snapshot_every", full_snapshot_every, 1, MAX_FULL_EVERY)
        self._state = _with_increments(_state_backend(state), full_every, bool(binary_diff))
        self._restart = _restart_strategy(restart)
        self._stragglers = replacement(replace_stragglers)
        self._failover = LeaderFailover.LEADER_FAILOVER_UNSPECIFIED
        if leader_failover is not None:
            self._failover = checks.one_of("Job", "leader_failover", leader_failover, FAILOVERS)
        self._parts = TaskManagerFailover.TASK_MANAGER_FAILOVER_UNSPECIFIED
        if task_manager_failover is not None:
            self._parts = checks.one_of("Job", "task_manager_failover", task_manager_failover, PARTS)
        self._replicas = checks.whole("Job", "standby_replicas", standby_replicas, 0, MAX_REPLICAS)
        self._plan = Plan(self.max_parallelism)
        self._submitted: JobGraph | None = None

    @property
    def key(self) -> str:
        """The job key; made once, so that every submit of this object is the same job."""
        if self._key is None:
            slug = re.sub(r"[^A-Za-z0-9._-]+", "-", self.name).strip("-")[:100] or "job"
            self._key = f"{slug}-{secrets.token_hex(4)}"
        return self._key

    def read_text(
        self, path: Location, *, include: str = "", continuous: bool = False, poll_interval_ms: int = 1000
    ) -> Stream:
        """Lines of text files, as one column `value STRING`.

        path: a file or a folder, local or a pyarrow.fs URI, that every task manager can read; include: a glob on the
        file name, such as "*.py"; continuous: watch the folder for new files and never end.
        """
        return self._read("read_text", FileFormat.TEXT, path, "", {}, include, continuous, poll_interval_ms)

    def read_csv(self, path: Location, *, schema: Any = None, **options: Any) -> Stream:
        """Rows of CSV files. schema: Spark DDL or a StructType.

        options: `include`, `continuous` and `poll_interval_ms` as for `read_text`, and Spark's own, such as
        header=True, sep=";"; with multiLine=True newlines inside quotes belong to the value.
        """
        return self._read_rows("read_csv", FileFormat.CSV, path, schema, **options)

    def read_json(self, path: Location, *, schema: Any = None, **options: Any) -> Stream:
        """Rows of files of JSON lines. schema: Spark DDL or a StructType; options: as for `read_csv`."""
        return self._read_rows("read_json", FileFormat.JSON_LINES, path, schema, **options)

    def read_parquet(
        self,
        path: Location,
        *,
        schema: Any = None,
        include: str = "",
        continuous: bool = False,
        poll_interval_ms: int = 1000,
    ) -> Stream:
        """Rows of Parquet files; the schema is that of the files by default. Other arguments as for `read_text`."""
        ddl = "" if schema is None else checks.schema("read_parquet", schema)
        return self._read("read_parquet", FileFormat.PARQUET, path, ddl, {}, include, continuous, poll_interval_ms)

    def generate(self, rows: int | None = None, *, rate: float | None = None, partitions: int | None = None) -> Stream:
        """Generated rows (partition INT, sequence BIGINT), sequence counting from 0 in each partition.

        rows: per partition, None for no end; rate: rows a second per partition, None for as fast as possible;
        partitions: one per subtask by default.
        """
        source = GeneratorSource(
            partitions=0 if partitions is None else checks.whole("generate()", "partitions", partitions, 1, 100_000),
            rows_per_partition=0 if rows is None else checks.whole("generate()", "rows", rows, 1, 2**62),
            rows_per_second=0.0 if rate is None else _rate(rate),
        )
        return Stream(self._plan, (Input(self._plan.add("generate", source)),))

    def read_socket(self, host: str, port: int) -> Stream:
        """Lines of text from a TCP server, as one column `value STRING`, until the server closes the connection.

        For experiments: a socket cannot be read again. After a failure the lines since the last checkpoint are lost,
        and a new connection is made: each line counts at most once. A single subtask reads; add `rebalance()` or
        `key_by()` to process with more.
        """
        source = SocketSource(checks.text("read_socket", "a host", host, "localhost"), _port(port))
        node = self._plan.add("read_socket", source)
        node.width = 1
        return Stream(self._plan, (Input(node),))

    def read_kafka(
        self,
        servers: str,
        topics: str | Iterable[str],
        *,
        starting: Literal["earliest", "latest"] = "earliest",
        bounded: bool = False,
        new_partitions_every_ms: int = 30_000,
        options: Mapping[str, Any] | None = None,
    ) -> Stream:
        """Records of Kafka: key and value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP.

        servers: `host:port`, several with commas; starting: where a new job begins, independent of consumer groups;
        bounded: end after the records that exist at the start, instead of never; options: librdkafka's, such as
        {"security.protocol": "SASL_SSL"}; a value "${NAME}" is taken from the task managers' environment. Needs
        `lockgate[kafka]` there.
        """
        kind = kafka.source(servers, topics, starting, bounded, new_partitions_every_ms, options)
        return Stream(self._plan, (Input(self._plan.add("read_kafka", kind)),))

    def read_from(self, source: CustomSource) -> Stream:
        """Rows of a custom source: an instance of a class derived from `lockgate.CustomSource`."""
        data = pickled_connector("read_from", source, CustomSource)
        interval_ms = checks.whole("read_from()", "new_splits_every_ms", source.new_splits_every_ms, 0)
        kind = PythonSource(
            source=data,
            description=describe(source),
            schema=checks.schema("read_from", source.schema),
            continuous=interval_ms > 0,
            poll_interval_ms=interval_ms,
        )
        return Stream(self._plan, (Input(self._plan.add("read_from", kind)),))

    def dead_letters(self, name: str) -> Stream:
        """Records that failed in operators with `on_error=dead_letter(name)`: call it after the last of these.

        Columns: operator STRING, its id; error STRING, the message; record STRING, the operator's input as JSON.
        """
        found = [node for node in self._plan.nodes if name and node.way.dead_letters == name]
        if not found:
            raise PipelineError(
                f"dead_letters({name!r}): no operator before this line has on_error=dead_letter({name!r})"
            )
        return Stream(self._plan, tuple(Input(node, side_output=name) for node in found))

    def graph(self) -> JobGraph:
        """The current job graph. Raises PipelineError when records would go nowhere."""
        check_ends(self._plan.nodes)
        vertices, edges = vertices_and_edges(self._plan.nodes, self.default_parallelism, self.max_parallelism)
        options = (self._checkpoints, self._restart, self._state, self._stragglers)
        return JobGraph(
            self.name,
            vertices,
            edges,
            *options,
            leader_failover=self._failover,
            standby_replicas=self._replicas,
            task_manager_failover=self._parts,
        )

    def submit(
        self,
        cluster: str | None = None,
        *,
        wait: bool = False,
        restore_from: str | None = None,
        allow_unmatched_state: bool = False,
        trust_snapshot: bool = False,
    ) -> JobHandle:
        """Submits the job and follows it until it runs; prints `job KEY is running (attempt 1)`.

        cluster: `host:port,...` or the directory of a `lockgate cluster`; located as for the commands by default. wait:
        follow the job to its end. restore_from: pointer of a savepoint or retained checkpoint, whose state is matched
        by operator id (`uid`), for any parallelism; allow_unmatched_state: state of operators that this job does not
        have is dropped instead of being an error; trust_snapshot: it need not be sealed by this cluster.
        Raises ClientError with the reason when the cluster refuses the job, or it fails (at once, or with `wait`
        later).
        """
        from lockgate.pipeline.submission import Start, submit

        graph = self.graph()
        if self._submitted is not None and self._submitted != graph:
            raise PipelineError(
                f"the job {self.key!r} was submitted already and has changed since; make a new Job for the new pipeline"
            )
        self._submitted = graph
        start = Start(restore_from or "", allow_unmatched_state, trust_snapshot)
        return submit(self.key, graph, cluster, wait, start)

    def _read_rows(
        self,
        method: str,
        file_format: FileFormat,
        path: Location,
        schema: Any,
        /,  # Spark may have an option called `method`
        *,
        include: str = "",
        continuous: bool = False,
        poll_interval_ms: int = 1000,
        **options: Any,
    ) -> Stream:
        ddl = _required_schema(method, schema)
        plain = {name: _option(value) for name, value in options.items()}
        return self._read(method, file_format, path, ddl, plain, include, continuous, poll_interval_ms)

    def _read(
        self,
        method: str,
        file_format: FileFormat,
        path: Location,
        schema: str,
        options: Mapping[str, str],
        include: str,
        continuous: bool,
        poll_interval_ms: int,
    ) -> Stream:
        source = FileSource(
            path=checks.location(method, path),
            format=file_format,
            schema=schema,
            options=options,
            continuous=bool(continuous),
            poll_interval_ms=checks.whole(f"{method}()", "poll_interval_ms", poll_interval_ms, 10) if continuous else 0,
            include=checks.text(method, "include=", include, "*.py") if include else "",
        )
        return Stream(self._plan, (Input(self._plan.add(method, source)),))


def _required_schema(method: str, schema: Any) -> str:
    if schema is None:
        raise PipelineError(
            f'{method}() needs schema=, such as schema="name STRING, price DOUBLE": a stream cannot infer it from data'
        )
    return checks.schema(method, schema)


def _option(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _port(value: Any) -> int:
    return checks.whole("read_socket()", "port", value, 1, 65_535)


def _rate(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e12:
        raise PipelineError(f"generate(): rate must be a number above 0, in rows a second per partition, not {value!r}")
    return float(value)


def _state_backend(state: Any) -> StateBackend:
    if state == "filesystem":
        return StateBackend(FilesystemBackend())
    if state == "memory":
        return StateBackend(MemoryBackend())
    if state == "rocksdb":
        return StateBackend(RocksdbBackend())
    if isinstance(state, StateBackend):
        return state
    if isinstance(state, str) and "/" in state:
        return StateBackend(FilesystemBackend(checks.location("Job", state)))
    raise PipelineError(
        f'Job: state must be "filesystem", "memory", "rocksdb" or a folder or URI for it, not {state!r}'
    )


def _with_increments(choice: StateBackend, full_every: int, binary_diff: bool) -> StateBackend:
    """Defaults are omitted, so that the graph does not change."""
    if full_every != 1:
        choice = replace(choice, full_every=full_every)
    if not binary_diff:
        return choice
    if isinstance(choice.backend, RocksdbBackend):
        raise PipelineError(
            'Job: binary_diff=True belongs to state="filesystem" and "memory"; snapshots of rocksdb consist of its '
            "tables, and increments store the new ones"
        )
    if choice.full_every <= 1:
        raise PipelineError(
            "Job: binary_diff=True needs full_snapshot_every, such as 10: differences are stored between "
            "two full snapshots"
        )
    return replace(choice, binary_diff=True)


def _restart_strategy(restart: Any) -> RestartStrategy:
    if restart is None:
        return Restart.exponential()
    if not isinstance(restart, RestartStrategy):
        raise PipelineError(f"Job: restart takes one of the Restart methods, such as Restart.never(), not {restart!r}")
    return restart
