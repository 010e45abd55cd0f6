"""Windows of a keyed stream: what is computed of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from lockgate_proto.messages import KeyedAggregate, SessionWindow, Window, WindowProcess

from lockgate.pipeline import checks
from lockgate.pipeline.errors import PipelineError
from lockgate.pipeline.functions import AggregateExpression
from lockgate.pipeline.habits import Hinting
from lockgate.pipeline.pickled import describe, pickled
from lockgate.pipeline.processing import Rows
from lockgate.pipeline.windows import Duration, TimeWindow, is_triggered, triggered

Results = TypeVar("Results")  # the stream of results, which is made of streams itself
WindowFunction = Callable[[Any, TimeWindow, list[dict[str, Any]]], Rows]


class WindowedStream(Hinting, Generic[Results]):
    """A keyed stream divided into windows, as returned by `window`."""

    def __init__(
        self,
        keys: tuple[str, ...],
        window: Window,
        aggregation: Callable[[Mapping[str, AggregateExpression], Window], KeyedAggregate],
        results: Callable[[str, Any], Results],
    ) -> None:
        """aggregation: the operator of some aggregates; results: adds an operator, by its method and kind."""
        self._keys, self._window = keys, window
        self._aggregation, self._results = aggregation, results

    def aggregate(self, **aggregates: AggregateExpression) -> Results:
        """Emits (keys, window_start, window_end, aggregates) once its time has passed the end of a window."""
        return self._results("aggregate", self._aggregation(aggregates, self._window))

    def trigger(
        self, *, every_count: int | None = None, every: Duration | None = None, purge: bool = False
    ) -> WindowedStream[Results]:
        """Also emits results early, before its time has passed the end of a window.

        >>> from lockgate import count, tumbling
        >>> windows = clicks.key_by("user").window(tumbling("1 hour"))
        >>> windows.trigger(every_count=1000, every="10 seconds").aggregate(n=count())

        every_count: when at least so many records of a key have come into the window since it last fired; every: this
        often, by the wall clock, if there are new records. purge: each result, the final one too, holds only the
        records since the one before; by default all so far. The results have a column `is_early` (BOOLEAN) behind
        `window_end`, false for the one final result of each key and window. For aggregates, not of sessions; a record
        is in at most 100 windows, and counts in each. See docs/event-time.md. Raises PipelineError.
        """
        return WindowedStream(
            self._keys, triggered(self._window, every_count, every, purge), self._aggregation, self._results
        )

    def process(self, function: WindowFunction, *, schema: Any) -> Results:
        """Calls a function with all records of a key and window, once its time has passed the end.

        >>> def busiest(key, window, records):
        ...     return max(records, key=lambda record: record["amount"])
        >>> clicks.key_by("user").window(tumbling("1 minute")).process(busiest, schema="user STRING, amount BIGINT")

        function: gets the value of the key column, a tuple of several; the `TimeWindow`; and the records, a list of
        dicts by column, in order of their time. It returns a dict by column or a tuple, a list of these, or None,
        or yields them. schema: of what it emits, Spark DDL. The cluster accepts such jobs from clients that present its
        secret. Raises PipelineError for sessions, and for `allowed_lateness`.
        """
        self._require_whole_contents()
        data = pickled("process", function, ("key", "window", "records"), may_yield=True)
        ddl = checks.schema("process", schema)
        return self._results("process", WindowProcess(self._keys, self._window, data, describe(function), ddl))

    def _require_whole_contents(self) -> None:
        if is_triggered(self._window):
            raise PipelineError(
                "process() calls its function once for each window, so leave trigger() out; aggregate() can fire early"
            )
        if isinstance(self._window.kind, SessionWindow):
            why = "a session may last" if self._window.processing_time else "a record may join two of them"
            raise PipelineError(
                f"process() of session windows is not possible, because {why}: use aggregate(), or "
                "key_by(...).process() with a ListState and a timer"
            )
        if self._window.allowed_lateness_ms:
            raise PipelineError(
                "process() calls its function once for each window, so leave allowed_lateness= out; to wait for late "
                'records use event_time(..., out_of_order="1 minute")'
            )
