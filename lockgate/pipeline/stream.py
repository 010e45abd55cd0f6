"""Streams: what flows between operators. Each method adds one operator and returns the stream behind it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

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
)

from lockgate.pipeline import checks
from lockgate.pipeline.errors import PipelineError
from lockgate.pipeline.functions import AggregateExpression
from lockgate.pipeline.pickled import describe, pickled, pickled_process
from lockgate.pipeline.plan import LOOP, Input, Node
from lockgate.pipeline.processing import ProcessFunction
from lockgate.pipeline.states import declared_states
from lockgate.pipeline.times import event_time_of, join_time
from lockgate.pipeline.windows import Duration, WindowExpression
from lockgate.pipeline.writing import Writable

if TYPE_CHECKING:
    from lockgate.pipeline.job import Job


class Stream(Writable):
    """Rows on their way from one operator to the next."""

    def sql(self, query: str) -> Stream:
        """Transforms every micro-batch with Spark SQL over the relation `input`.

        >>> stream.sql("SELECT explode(split(value, ' ')) AS word FROM input")
        """
        return self._then("sql", SqlTransform(checks.query(query)))

    def select(self, *expressions: str) -> Stream:
        """Keeps or computes columns: `select("word", "length(word) AS n")`."""
        if not expressions:
            raise PipelineError('select() needs at least one expression, such as select("word")')
        listed = ", ".join(checks.text("select", "expressions", one, "length(word) AS n") for one in expressions)
        return self._then("select", SqlTransform(f"SELECT {listed} FROM input"))

    def filter(self, condition: str) -> Stream:
        """Keeps the rows for which an SQL condition is true: `filter("price > 0")`."""
        text = checks.text("filter", "an SQL condition", condition, "price > 0")
        return self._then("filter", SqlTransform(f"SELECT * FROM input WHERE {text}"))

    where = filter

    def transform(self, function: Callable[[Any], Any]) -> Stream:
        """Transforms every micro-batch with a Python function DataFrame -> DataFrame.

        It runs on the task managers and sees one micro-batch at a time: row-wise work only, no totals. The cluster
        takes such jobs from clients that show its secret.
        """
        return self._python("transform", function)

    def map(self, function: Callable[[Any], Any]) -> Stream:
        """The same as `transform`: the function maps a DataFrame to a DataFrame."""
        return self._python("map", function)

    def event_time(
        self, expression: str, *, out_of_order: Duration, idle_after: Duration | None = None, column: str | None = None
    ) -> Stream:
        """Says when the records have happened, for windows further down. Right behind a source, or its transforms.

        >>> job.read_json("clicks", schema="user STRING, at TIMESTAMP").event_time("at", out_of_order="5 seconds")

        expression: SQL, a TIMESTAMP or whole milliseconds since 1970; out_of_order: how much later than a record one
        may come that is older, as text or milliseconds; idle_after: a file or partition that has had nothing to read
        for so long holds windows back no longer; column: what an expression that is no column is put into,
        `event_time` unless given.
        """
        text = checks.text("event_time", "an SQL expression", expression, "at")
        name = checks.text("event_time", "column=", column, "event_time") if column is not None else ""
        if not name and not checks.is_column(text):
            name = "event_time"
        bound = checks.duration("event_time", "out_of_order", out_of_order, 0)
        idle = 0 if idle_after is None else checks.duration("event_time", "idle_after", idle_after, 1)
        return self._then("event_time", EventTime(text, name, bound, idle))

    def union(self, *others: Stream) -> Stream:
        """The rows of this and other streams, in any order. Their columns must be the same."""
        if not others:
            raise PipelineError("union() needs at least one other stream")
        inputs = list(self._inputs)
        for other in others:
            if not isinstance(other, Stream):
                raise PipelineError(f"union() takes streams, not {type(other).__name__}")
            if other._job is not self._job:
                raise PipelineError("union() takes streams of the same Job")
            inputs += other._inputs
        if any(one.partitioning is not Partitioning.PARTITIONING_UNSPECIFIED for one in inputs):
            raise PipelineError("union() comes before key_by(), rebalance() and broadcast()")
        if len({one.node.id for one in inputs}) != len(inputs):
            raise PipelineError("union() of a stream with itself; put an operator, such as select('*'), between")
        return Stream(self._job, tuple(inputs))

    def loop(self) -> Loop:
        """Begins a loop: its records are those of this stream, and those that `close_with` leads back here.

        >>> tries = job.read_json("calls", schema="url STRING, tries INT").loop()
        >>> called = tries.transform(call)
        >>> tries.close_with(called.filter("NOT done AND tries < 5"))
        >>> called.filter("done OR tries >= 5").write_parquet("answers")
        """
        node = self._job._add(LOOP, SqlTransform("SELECT * FROM input"), self._inputs)
        return Loop(self._job, (Input(node),))

    def key_by(self, *columns: str) -> KeyedStream:
        """Brings rows with equal values in `columns` to the same subtask of the next operator."""
        names = checks.columns("key_by", columns)
        return KeyedStream(self._job, self._repartitioned("key_by", Partitioning.HASH, names), names)

    def rebalance(self) -> Stream:
        """Spreads the rows evenly over the subtasks of the next operator."""
        return Stream(self._job, self._repartitioned("rebalance", Partitioning.REBALANCE))

    def broadcast(self) -> Stream:
        """Sends every row to every subtask of the next operator."""
        return Stream(self._job, self._repartitioned("broadcast", Partitioning.BROADCAST))

    def aggregate(self, **aggregates: AggregateExpression) -> Stream:
        """Only for keyed streams: raises PipelineError that says so."""
        del aggregates
        raise PipelineError('aggregate() needs a key: key_by("word").aggregate(n=count())')

    def window(
        self, window: WindowExpression, *, on: str | None = None, allowed_lateness: Duration = 0
    ) -> WindowedStream:
        """Only for keyed streams: raises PipelineError that says so."""
        del window, on, allowed_lateness
        raise PipelineError('window() needs a key: key_by("user").window(tumbling("5 seconds")).aggregate(n=count())')

    def interval_join(self, *others: Any, **options: Any) -> Stream:
        """Only for keyed streams: raises PipelineError that says so."""
        del others, options
        raise PipelineError(
            'interval_join() needs a key on both sides: orders.key_by("id").interval_join(payments.key_by("order_id"), '
            "lower=..., upper=...)"
        )

    def late(self) -> Stream:
        """Only for the results of windows: raises PipelineError that says so."""
        raise PipelineError("late() is of the results of windows: results = ....aggregate(...), then results.late()")

    def process(self, function: Any, *, schema: Any) -> Stream:
        """Only for keyed streams: raises PipelineError that says so."""
        del function, schema
        raise PipelineError('process() needs a key: key_by("word").process(MyFunction(), schema="word STRING")')

    def deduplicate(self, *, ttl: Duration | None = None) -> Stream:
        """Only for keyed streams: raises PipelineError that says so."""
        del ttl
        raise PipelineError('deduplicate() needs a key: key_by("id").deduplicate(ttl="1 hour")')

    def _then(self, method: str, kind: Any) -> Stream:
        return Stream(self._job, (Input(self._job._add(method, kind, self._inputs)),))

    def _python(self, method: str, function: Callable[[Any], Any]) -> Stream:
        return self._then(method, PythonTransform(pickled(method, function, ("df",)), describe(function)))

    def _repartitioned(self, method: str, partitioning: Partitioning, keys: tuple[str, ...] = ()) -> tuple[Input, ...]:
        if any(one.partitioning is not Partitioning.PARTITIONING_UNSPECIFIED for one in self._inputs):
            raise PipelineError(f"{method}() right after another repartitioning; keep one of the two")
        return tuple(Input(one.node, partitioning, keys, one.side_output) for one in self._inputs)


class Loop(Stream):
    """What goes round: what `loop` returns."""

    def close_with(self, *streams: Stream) -> None:
        """Leads the records of streams that come out of this loop back to its beginning. Their columns are the same.

        Each comes back to the same subtask, or to the next one in turn where the parallelism differs or
        `rebalance()` asks for it; `key_by()` sends equal keys to the same one.
        """
        head = self._node("close_with")
        if not streams:
            raise PipelineError("close_with() needs the stream that goes back")
        if any(one.is_feedback for one in head.inputs):
            raise PipelineError("this loop is closed already; name all streams that go back in one close_with()")
        back: list[Input] = []
        for stream in streams:
            if not isinstance(stream, Stream):
                raise PipelineError(f"close_with() takes streams, not {type(stream).__name__}")
            back += stream._inputs
        for one in back:
            if head not in _upstream(one.node):
                raise PipelineError(f"close_with(): {one.node.method}() at {one.node.where} is not behind this loop")
            if one.partitioning is Partitioning.BROADCAST or one.side_output:
                raise PipelineError("close_with() takes neither broadcast() nor late() streams")
        if len({one.node.id for one in back}) != len(back):
            raise PipelineError("close_with() names a stream twice")
        head.inputs += tuple(replace(one, is_feedback=True) for one in back)
        for node in {one.node.id: one.node for one in back}.values():
            node.consumers.append(head)


class KeyedStream(Stream):
    """A stream partitioned by key: what `key_by` returns."""

    def __init__(self, job: Job, inputs: tuple[Input, ...], keys: tuple[str, ...]) -> None:
        super().__init__(job, inputs)
        self._keys = keys

    def aggregate(self, **aggregates: AggregateExpression) -> Stream:
        """Keeps aggregates per key and emits the new values of every key that a micro-batch has changed.

        >>> from lockgate import avg, count
        >>> stream.key_by("city").aggregate(n=count(), mean=avg("price"))
        """
        return self._then("aggregate", self._aggregation(aggregates, None))

    def window(
        self, window: WindowExpression, *, on: str | None = None, allowed_lateness: Duration = 0
    ) -> WindowedStream:
        """Aggregates per key and window of event time: `window(tumbling("5 seconds")).aggregate(n=count())`.

        on: SQL of the event time, the column declared by `event_time` unless given; allowed_lateness: how long after
        its end a window still takes late records, and gives its new result for them.
        """
        if not isinstance(window, WindowExpression):
            raise PipelineError(
                f'window() takes tumbling("5 seconds") or sliding("5 s", "1 s") from lockgate, not {window!r}'
            )
        time = (
            checks.text("window", "on=", on, "at") if on is not None else event_time_of("window()", "on", self._inputs)
        )
        lateness = checks.duration("window", "allowed_lateness", allowed_lateness, 0)
        return WindowedStream(self, Window(window.kind, time, lateness))

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
        or milliseconds, and below zero for what comes before the left row. left_time, right_time: SQL of the event
        times, the columns declared by `event_time` unless given. left_prefix, right_prefix: put in front of the
        columns of a side; where both sides have a column of one name that is no key of both, one of them is needed.
        """
        if not isinstance(other, KeyedStream):
            raise PipelineError(
                'interval_join() takes another keyed stream: orders.key_by("id").interval_join('
                f'payments.key_by("order_id"), ...), not {type(other).__name__}'
            )
        if other._job is not self._job:
            raise PipelineError("interval_join() takes streams of the same Job")
        if len(self._keys) != len(other._keys):
            raise PipelineError(
                f"interval_join() has {len(self._keys)} key columns on the left and {len(other._keys)} on the right; "
                "key both by as many, in the same order"
            )
        inputs = tuple(
            replace(one, join_side=side)
            for side, stream in ((JoinSide.LEFT, self), (JoinSide.RIGHT, other))
            for one in stream._inputs
        )
        if len({one.node.id for one in inputs}) != len(inputs):
            raise PipelineError(
                "interval_join() of a stream with itself; put an operator, such as select('*'), between"
            )
        low, high = (checks.signed_duration("interval_join", *one) for one in (("lower", lower), ("upper", upper)))
        if low > high:
            raise PipelineError(f"interval_join() from {lower!r} to {upper!r} holds nothing; lower comes before upper")
        times = (join_time("left", left_time, self._inputs), join_time("right", right_time, other._inputs))
        prefixes = (_prefix("left_prefix", left_prefix), _prefix("right_prefix", right_prefix))
        kind = IntervalJoin(self._keys, other._keys, *times, low, high, *prefixes)
        return Stream(self._job, (Input(self._job._add("interval_join", kind, inputs)),))

    def process(self, function: ProcessFunction, *, schema: Any) -> Stream:
        """Calls a function of your own for every record, with state and timers of the record's key.

        >>> stream.key_by("sensor").process(EmitIfGreater(), schema="sensor STRING, value DOUBLE")

        function: an object of a class that derives from `lockgate.ProcessFunction`; schema: of the rows it puts out,
        Spark DDL. The cluster takes such jobs from clients that show its secret.
        """
        data = pickled_process("process", function, ProcessFunction)
        states = declared_states(function)
        told = checks.schema("process", schema)
        return self._then("process", KeyedProcess(self._keys, data, describe(function), told, states))

    def deduplicate(self, *, ttl: Duration | None = None) -> Stream:
        """Passes the first record of each key on, and drops those that follow.

        ttl: so long after it was passed on, by the wall clock, its key counts as new again. Without it every key is
        kept for ever.
        """
        return self._then("deduplicate", Deduplicate(self._keys, _ttl("deduplicate", "ttl", ttl)))

    def _aggregation(self, aggregates: Mapping[str, AggregateExpression], window: Window | None) -> KeyedAggregate:
        taken = self._keys if window is None else (*self._keys, "window_start", "window_end")
        if not aggregates:
            raise PipelineError("aggregate() needs at least one aggregate, such as aggregate(n=count())")
        listed = []
        for output, expression in aggregates.items():
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


class WindowedStream:
    """A keyed stream cut into windows: what `window` returns."""

    def __init__(self, keyed: KeyedStream, window: Window) -> None:
        self._keyed = keyed
        self._window = window

    def aggregate(self, **aggregates: AggregateExpression) -> WindowResults:
        """Emits (keys, window_start, window_end, aggregates) once event time has passed the end of a window."""
        keyed = self._keyed
        stream = keyed._then("aggregate", keyed._aggregation(aggregates, self._window))
        return WindowResults(keyed._job, stream._inputs)


class WindowResults(Stream):
    """The results of windows."""

    def late(self) -> Stream:
        """What came too late for its window: rows like the results, with the aggregates of the late records alone."""
        return Stream(self._job, (Input(self._node("late"), side_output="late"),))


def _prefix(name: str, value: str) -> str:
    if not isinstance(value, str):
        raise PipelineError(f"interval_join() needs {name} as text, such as 'payment_', not {value!r}")
    return value.strip()


def _ttl(method: str, name: str, value: Duration | None) -> int:
    return 0 if value is None else checks.duration(method, name, value, 1)


def _upstream(node: Node) -> set[Node]:
    """The operator and every one that its records come from."""
    found, more = {node}, [node]
    while more:
        fresh = {one.node for one in more.pop().inputs} - found
        found |= fresh
        more += fresh
    return found
