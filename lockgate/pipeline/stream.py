"""Streams between operators. Each method adds one operator and returns the stream behind it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal

from lockgate_proto.event_times import ANY_TIME_AHEAD, DEFAULT_MAX_AHEAD_MS
from lockgate_proto.messages import (
    Aggregate,
    Deduplicate,
    EventTime,
    IntervalJoin,
    JoinSide,
    KeyedAggregate,
    KeyedProcess,
    Partitioning,
    PythonTransform,
    SqlTransform,
    Window,
    WindowProcess,
)

from lockgate.pipeline import checks
from lockgate.pipeline.broadcast import BroadcastStream, with_state_of
from lockgate.pipeline.counted import CountedStream, count_window
from lockgate.pipeline.errors import PipelineError
from lockgate.pipeline.functions import AggregateExpression
from lockgate.pipeline.on_error import Choice, way
from lockgate.pipeline.pickled import describe, pickled, pickled_process
from lockgate.pipeline.plan import LOOP, Input, Node, Plan
from lockgate.pipeline.processing import ProcessFunction
from lockgate.pipeline.records import Function, Vectorized, record_function
from lockgate.pipeline.states import declared_states
from lockgate.pipeline.times import event_time_of, join_time
from lockgate.pipeline.windowed import WindowedStream
from lockgate.pipeline.windows import Duration, WindowExpression, is_triggered
from lockgate.pipeline.writing import Writable


class Stream(Writable):
    """Rows between two operators."""

    def sql(self, query: str, *, on_error: Choice = "fail") -> Stream:
        """Transforms every micro-batch with Spark SQL over the relation `input`.

        >>> stream.sql("SELECT explode(split(value, ' ')) AS word FROM input")

        on_error: handling of a record that it fails on. "fail": the job's restart strategy decides; "skip": it is
        skipped and counted; `dead_letter("bad")`: it goes to `job.dead_letters("bad")`, and is counted.
        """
        return self._then("sql", SqlTransform(checks.query(query)), on_error)

    def select(self, *expressions: str, on_error: Choice = "fail") -> Stream:
        """Keeps or computes columns: `select("word", "length(word) AS n")`. on_error: as for `sql`."""
        if not expressions:
            raise PipelineError('select() needs at least one expression, such as select("word")')
        listed = ", ".join(
            checks.text("select", "expressions", expression, "length(word) AS n") for expression in expressions
        )
        return self._then("select", SqlTransform(f"SELECT {listed} FROM input"), on_error)

    def filter(self, condition: str | Function, *, vectorized: Vectorized = None, on_error: Choice = "fail") -> Stream:
        """Keeps the rows for which an SQL condition is true: `filter("price > 0")`; or for which a function is:
        `filter(lambda record: record["price"] > 0)`.

        A function returns True or False; None counts as False. vectorized, on_error: as for `map`; a vectorized
        function returns an array of booleans.
        """
        if callable(condition):
            return self._then("filter", record_function("filter", condition, None, vectorized, on_error), on_error)
        if vectorized is not None:
            raise PipelineError("filter() takes vectorized= for a function only; an SQL condition is computed by Spark")
        text = checks.text("filter", "an SQL condition", condition, "price > 0")
        return self._then("filter", SqlTransform(f"SELECT * FROM input WHERE {text}"), on_error)

    where = filter

    def transform(self, function: Callable[[Any], Any], *, on_error: Choice = "fail") -> Stream:
        """Transforms every micro-batch with a Python function DataFrame -> DataFrame.

        It runs on the task managers and sees one micro-batch at a time: row-wise work only, no totals. The cluster
        accepts such jobs from clients that present its secret. on_error: as for `sql`.
        """
        return self._python("transform", function, on_error)

    def map(
        self, function: Function, schema: Any = None, *, vectorized: Vectorized = None, on_error: Choice = "fail"
    ) -> Stream:
        """Calls a function with each record, a dict by column, and puts out the record that it returns.

        >>> lines.map(lambda record: {"words": len(record["value"].split())}, schema="words INT")

        It returns a dict by column, a tuple in the order of the schema, or, for a single column, the value itself.
        schema: of what it returns, as Spark DDL; required. vectorized: "arrow" or "pandas": it is called with a
        pyarrow.Table or pandas.DataFrame of many records instead, and returns one with as many rows. function may be
        an object with `open(context)` and `close()`, which lives as long as its subtask. It runs in the task manager;
        the cluster accepts such jobs from clients that present its secret. on_error: as for `sql`.
        """
        return self._then("map", record_function("map", function, schema, vectorized, on_error), on_error)

    def flat_map(
        self, function: Function, schema: Any = None, *, vectorized: Vectorized = None, on_error: Choice = "fail"
    ) -> Stream:
        """Calls a function with each record, and puts out all records that it returns: a list, a generator, or None.

        >>> lines.flat_map(lambda record: record["value"].split(), schema="word STRING")

        Each is what the function of `map` may return, whose arguments this has as well. A vectorized function returns
        a table with any number of rows.
        """
        return self._then("flat_map", record_function("flat_map", function, schema, vectorized, on_error), on_error)

    def event_time(
        self,
        expression: str,
        *,
        out_of_order: Duration,
        idle_after: Duration | None = None,
        column: str | None = None,
        max_ahead: Duration | None = "1 day",
        on_error: Choice = "fail",
    ) -> Stream:
        """Declares the event time of the records, for windows further down. Use it directly after a source, or its
        transforms.

        >>> job.read_json("clicks", schema="user STRING, at TIMESTAMP").event_time("at", out_of_order="5 seconds")

        expression: SQL, a TIMESTAMP or whole milliseconds since 1970; out_of_order: how much older than earlier records
        a record may be, as text or milliseconds; idle_after: a file or partition that has had nothing to read for so
        long no longer holds windows back; column: the new column for an expression that is not a column, `event_time`
        by default; max_ahead: a record further ahead of the clock than that is processed, but does not advance event
        time, which would make all others late; None for no bound. on_error: as for `sql`.
        """
        text = checks.text("event_time", "an SQL expression", expression, "at")
        name = checks.text("event_time", "column=", column, "event_time") if column is not None else ""
        if not name and not checks.is_column(text):
            name = "event_time"
        bound = checks.duration("event_time", "out_of_order", out_of_order, 0)
        idle = 0 if idle_after is None else checks.duration("event_time", "idle_after", idle_after, 1)
        ahead = ANY_TIME_AHEAD if max_ahead is None else checks.duration("event_time", "max_ahead", max_ahead, 1)
        if ahead == DEFAULT_MAX_AHEAD_MS:
            ahead = 0  # the graph, and so the job under its key, is the same as in versions without the bound
        return self._then("event_time", EventTime(text, name, bound, idle, ahead), on_error)

    def union(self, *others: Stream) -> Stream:
        """The rows of this and other streams, in any order. Their columns must be the same."""
        if not others:
            raise PipelineError("union() needs at least one other stream")
        inputs = list(self._inputs)
        for other in others:
            if not isinstance(other, Stream):
                raise PipelineError(f"union() takes streams, not {type(other).__name__}")
            if other._plan is not self._plan:
                raise PipelineError("union() takes streams of the same Job")
            inputs += other._inputs
        if any(input_.partitioning is not Partitioning.PARTITIONING_UNSPECIFIED for input_ in inputs):
            raise PipelineError("union() comes before key_by(), rebalance() and broadcast()")
        if len({input_.node.id for input_ in inputs}) != len(inputs):
            raise PipelineError("union() of a stream with itself; put an operator, such as select('*'), between")
        return Stream(self._plan, tuple(inputs))

    def loop(self) -> Loop:
        """Begins a loop: its records are those of this stream, and those that `close_with` feeds back here.

        >>> tries = job.read_json("calls", schema="url STRING, tries INT").loop()
        >>> called = tries.transform(call)
        >>> tries.close_with(called.filter("NOT done AND tries < 5"))
        >>> called.filter("done OR tries >= 5").write_parquet("answers")
        """
        node = self._plan.add(LOOP, SqlTransform("SELECT * FROM input"), self._inputs)
        return Loop(self._plan, (Input(node),))

    def key_by(self, *columns: str) -> KeyedStream:
        """Sends rows with equal values in `columns` to the same subtask of the next operator."""
        names = checks.columns("key_by", columns)
        return KeyedStream(self._plan, self._repartitioned("key_by", Partitioning.HASH, names), names)

    def rebalance(self) -> Stream:
        """Distributes the rows evenly over the subtasks of the next operator."""
        return Stream(self._plan, self._repartitioned("rebalance", Partitioning.REBALANCE))

    def broadcast(self) -> Stream:
        """Sends every row to every subtask of the next operator."""
        return Stream(self._plan, self._repartitioned("broadcast", Partitioning.BROADCAST))

    def with_broadcast(self, other: Stream) -> BroadcastStream[Stream]:
        """Rules or a model beside the records: an object gets both, and keeps what it needs of the other stream.

        >>> payments.with_broadcast(models).map(Scored(), schema="id BIGINT, score DOUBLE, version INT")

        Every subtask gets every record of `other` by `process_broadcast(record)`, in the same order, and each snapshot
        has the same state in all of them. `__call__(record)` gets the records of this stream, as in `map`. The operator
        of `other` gets parallelism 1, and can have no other. See docs/operator-state.md.
        """
        if not isinstance(other, Stream):
            raise PipelineError(f"with_broadcast() takes a stream, not {type(other).__name__}")
        if other._plan is not self._plan:
            raise PipelineError("with_broadcast() takes a stream of the same Job")
        return BroadcastStream(Stream(self._plan, with_state_of(self._inputs, other._inputs))._then)

    def aggregate(self, **aggregates: AggregateExpression) -> Stream:
        """Only for keyed streams: raises a PipelineError that says so."""
        del aggregates
        raise PipelineError('aggregate() needs a key: key_by("word").aggregate(n=count())')

    def window(
        self,
        window: WindowExpression,
        *,
        time: Literal["event", "processing"] = "event",
        on: str | None = None,
        allowed_lateness: Duration = 0,
    ) -> WindowedStream[WindowResults]:
        """Only for keyed streams: raises a PipelineError that says so."""
        del window, time, on, allowed_lateness
        raise PipelineError('window() needs a key: key_by("user").window(tumbling("5 seconds")).aggregate(n=count())')

    def interval_join(self, *others: Any, **options: Any) -> Stream:
        """Only for keyed streams: raises a PipelineError that says so."""
        del others, options
        raise PipelineError(
            'interval_join() needs a key on both sides: orders.key_by("id").interval_join(payments.key_by("order_id"), '
            "lower=..., upper=...)"
        )

    def late(self) -> Stream:
        """Only for the results of windows: raises a PipelineError that says so."""
        raise PipelineError(
            "late() belongs to the results of windows of event time: results = ....aggregate(...), then results.late()"
        )

    def process(self, function: Any, *, schema: Any, on_error: Choice = "fail") -> Stream:
        """Only for keyed streams: raises a PipelineError that says so."""
        del function, schema, on_error
        raise PipelineError('process() needs a key: key_by("word").process(MyFunction(), schema="word STRING")')

    def deduplicate(self, *, ttl: Duration | None = None) -> Stream:
        """Only for keyed streams: raises a PipelineError that says so."""
        del ttl
        raise PipelineError('deduplicate() needs a key: key_by("id").deduplicate(ttl="1 hour")')

    def _then(self, method: str, kind: Any, on_error: Choice = "fail") -> Stream:
        return Stream(self._plan, (Input(self._plan.add(method, kind, self._inputs, way=way(method, on_error))),))

    def _python(self, method: str, function: Callable[[Any], Any], on_error: Choice) -> Stream:
        return self._then(method, PythonTransform(pickled(method, function, ("df",)), describe(function)), on_error)

    def _repartitioned(self, method: str, partitioning: Partitioning, keys: tuple[str, ...] = ()) -> tuple[Input, ...]:
        if any(input_.partitioning is not Partitioning.PARTITIONING_UNSPECIFIED for input_ in self._inputs):
            raise PipelineError(f"{method}() right after another repartitioning; keep one of the two")
        return tuple(Input(input_.node, partitioning, keys, input_.side_output) for input_ in self._inputs)


class Loop(Stream):
    """A loop, as returned by `loop`."""

    def close_with(self, *streams: Stream) -> None:
        """Feeds the records of streams of this loop back to its beginning. They must have the same columns.

        Each goes to the same subtask, or to the next one in turn if the parallelism differs or `rebalance()` asks for
        it; `key_by()` sends equal keys to the same one.
        """
        head = self._node("close_with")
        if not streams:
            raise PipelineError("close_with() needs the stream to feed back")
        if any(input_.is_feedback for input_ in head.inputs):
            raise PipelineError("this loop is closed already; pass all streams in one close_with()")
        back: list[Input] = []
        for stream in streams:
            if not isinstance(stream, Stream):
                raise PipelineError(f"close_with() takes streams, not {type(stream).__name__}")
            back += stream._inputs
        for input_ in back:
            if head not in _upstream(input_.node):
                raise PipelineError(
                    f"close_with(): {input_.node.method}() at {input_.node.where} is not part of this loop"
                )
            if input_.partitioning is Partitioning.BROADCAST or input_.side_output:
                raise PipelineError("close_with() takes neither broadcast() nor side outputs, such as late()")
        if len({input_.node.id for input_ in back}) != len(back):
            raise PipelineError("close_with() names a stream twice")
        head.inputs += tuple(replace(input_, is_feedback=True) for input_ in back)
        for node in {input_.node.id: input_.node for input_ in back}.values():
            node.consumers.append(head)


class KeyedStream(Stream):
    """A stream partitioned by key, as returned by `key_by`."""

    def __init__(self, plan: Plan, inputs: tuple[Input, ...], keys: tuple[str, ...]) -> None:
        super().__init__(plan, inputs)
        self._keys = keys

    def aggregate(self, **aggregates: AggregateExpression) -> Stream:
        """Keeps aggregates per key and emits the new values of every key that a micro-batch has changed.

        >>> from lockgate import avg, count
        >>> stream.key_by("city").aggregate(n=count(), mean=avg("price"))
        """
        return self._then("aggregate", self._aggregation(aggregates, None))

    def window(
        self,
        window: WindowExpression,
        *,
        time: Literal["event", "processing"] = "event",
        on: str | None = None,
        allowed_lateness: Duration = 0,
    ) -> WindowedStream[WindowResults]:
        """Divides each key into windows, to aggregate their records, or to call a function with them:
        `window(tumbling("5 seconds")).aggregate(n=count())`.

        time: "event", or "processing" for the clock at the arrival of each record. on: SQL of the event time, the
        column declared by `event_time` by default; allowed_lateness: how long after its end a window still accepts late
        records, and emits an updated result for them. Both are for event time only.
        """
        if not isinstance(window, WindowExpression):
            raise PipelineError(
                f'window() takes tumbling("5 seconds") or sliding("5 s", "1 s") from lockgate, not {window!r}'
            )
        lateness = checks.duration("window", "allowed_lateness", allowed_lateness, 0)
        if checks.one_of("window", "time", time, {"event": False, "processing": True}):
            if on is not None or lateness:
                raise PipelineError(
                    'window(time="processing") takes neither on= nor allowed_lateness=: a record belongs to the time '
                    "of its arrival, so none is late"
                )
            return self._windowed(Window(window.kind, processing_time=True))
        column = (
            checks.text("window", "on=", on, "at") if on is not None else event_time_of("window()", "on", self._inputs)
        )
        return self._windowed(Window(window.kind, column, lateness))

    def interval_join(
        self,
        other: KeyedStream,
        *,
        lower: Duration,
        upper: Duration,
        left_time: str | None = None,
        right_time: str | None = None,
        left_prefix: str = "",
        right_prefix: str = "",
    ) -> Stream:
        """Pairs of a row of this stream, the left, and one of another, the right, with equal keys and near in time.

        >>> orders.key_by("id").interval_join(payments.key_by("order_id"), lower="-5 seconds", upper="10 minutes")

        lower, upper: the right time is at least the left time plus `lower` and at most that plus `upper`, both as text
        or milliseconds, and negative for times before the left row. left_time, right_time: SQL of the event times, the
        columns declared by `event_time` by default. left_prefix, right_prefix: prefixes for the columns of a side;
        needed when both sides have a column of the same name that is not a key of both.
        """
        if not isinstance(other, KeyedStream):
            raise PipelineError(
                'interval_join() takes another keyed stream: orders.key_by("id").interval_join('
                f'payments.key_by("order_id"), ...), not {type(other).__name__}'
            )
        if other._plan is not self._plan:
            raise PipelineError("interval_join() takes streams of the same Job")
        if len(self._keys) != len(other._keys):
            raise PipelineError(
                f"interval_join() has {len(self._keys)} key columns on the left and {len(other._keys)} on the right; "
                "use the same number of keys on both, in the same order"
            )
        inputs = tuple(
            replace(input_, join_side=side)
            for side, stream in ((JoinSide.LEFT, self), (JoinSide.RIGHT, other))
            for input_ in stream._inputs
        )
        if len({input_.node.id for input_ in inputs}) != len(inputs):
            raise PipelineError(
                "interval_join() of a stream with itself; put an operator, such as select('*'), between"
            )
        low, high = (
            checks.signed_duration("interval_join", name, bound) for name, bound in (("lower", lower), ("upper", upper))
        )
        if low > high:
            raise PipelineError(
                f"interval_join() from {lower!r} to {upper!r} contains nothing; lower must be before upper"
            )
        times = (join_time("left", left_time, self._inputs), join_time("right", right_time, other._inputs))
        prefixes = (_prefix("left_prefix", left_prefix), _prefix("right_prefix", right_prefix))
        kind = IntervalJoin(self._keys, other._keys, *times, low, high, *prefixes)
        return Stream(self._plan, (Input(self._plan.add("interval_join", kind, inputs)),))

    def process(self, function: ProcessFunction, *, schema: Any, on_error: Choice = "fail") -> Stream:
        """Calls your function for every record, with state and timers of the record's key.

        >>> stream.key_by("sensor").process(EmitIfGreater(), schema="sensor STRING, value DOUBLE")

        function: an instance of a class derived from `lockgate.ProcessFunction`; schema: of the rows it emits, Spark
        DDL. The cluster accepts such jobs from clients that present its secret. on_error: as for `sql`; a failed call
        of `process` changes neither the state nor the timers of its key and emits nothing.
        """
        data = pickled_process("process", function, ProcessFunction)
        states = declared_states(function)
        ddl = checks.schema("process", schema)
        no_timers = type(function).on_timer is ProcessFunction.on_timer
        kind = KeyedProcess(self._keys, data, describe(function), ddl, states, without_timers=no_timers)
        return self._then("process", kind, on_error)

    def deduplicate(self, *, ttl: Duration | None = None) -> Stream:
        """Passes the first record of each key on, and drops later ones.

        ttl: how long after that, by the wall clock, its key counts as new again. By default every key is kept forever.
        """
        return self._then("deduplicate", Deduplicate(self._keys, _ttl("deduplicate", "ttl", ttl)))

    def count_window(self, size: int, *, every: int | None = None) -> CountedStream[Stream]:
        """Divides the records of each key into windows by their number: `count_window(100).aggregate(n=count())`.

        size: how many records a window has; every: after every so many records a window of the last `size` ends, and
        the first ones have fewer; by default each record is in one window. The last, incomplete ones give no result.
        See docs/event-time.md.
        """

        def aggregates(given: Mapping[str, AggregateExpression]) -> tuple[Aggregate, ...]:
            return self._aggregation(given, Window()).aggregates

        return CountedStream(count_window(self._keys, size, every), aggregates, self._then)

    def _windowed(self, window: Window) -> WindowedStream[WindowResults]:
        def results(method: str, kind: Any) -> WindowResults:
            return WindowResults(self._plan, self._then(method, kind)._inputs)

        return WindowedStream(self._keys, window, self._aggregation, results)

    def _aggregation(self, aggregates: Mapping[str, AggregateExpression], window: Window | None) -> KeyedAggregate:
        taken = self._keys if window is None else (*self._keys, "window_start", "window_end")
        if is_triggered(window):
            taken = (*taken, "is_early")
        if not aggregates:
            raise PipelineError("aggregate() needs at least one aggregate, such as aggregate(n=count())")
        listed = []
        for output, expression in aggregates.items():
            if output == "on_error" and not isinstance(expression, AggregateExpression):
                raise PipelineError(
                    "aggregate() cannot skip single records; compute its inputs with select(..., on_error=...) "
                    "before it"
                )
            if not isinstance(expression, AggregateExpression):
                raise PipelineError(
                    f"aggregate({output}=...) takes count(), sum_(), min_(), max_() or avg() from lockgate, "
                    f"not {expression!r}"
                )
            if output in taken:
                kind = "key" if output in self._keys else "window"
                raise PipelineError(f"aggregate({output}=...) has the name of a {kind} column; choose another")
            listed.append(Aggregate(output, expression.function, expression.input))
        return KeyedAggregate(self._keys, tuple(listed), window)


class WindowResults(Stream):
    """The results of windows."""

    def late(self) -> Stream:
        """Records that arrived too late for their window: of aggregates aggregated, rows like the results; of
        `process` as they came.

        Raises PipelineError for windows of processing time.
        """
        node = self._node("late")
        kind = node.kind
        if isinstance(kind, KeyedAggregate | WindowProcess) and kind.window is not None and kind.window.processing_time:
            raise PipelineError("late() has no records here: no record is late for windows of processing time")
        return Stream(self._plan, (Input(node, side_output="late"),))


def _prefix(name: str, value: str) -> str:
    if not isinstance(value, str):
        raise PipelineError(f"interval_join() needs {name} as text, such as 'payment_', not {value!r}")
    return value.strip()


def _ttl(method: str, name: str, value: Duration | None) -> int:
    return 0 if value is None else checks.duration(method, name, value, 1)


def _upstream(node: Node) -> set[Node]:
    """The operator and all its direct and indirect inputs."""
    found, more = {node}, [node]
    while more:
        fresh = {input_.node for input_ in more.pop().inputs} - found
        found |= fresh
        more += fresh
    return found
