"""Count windows of a keyed stream: what is computed of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Generic, Protocol, TypeVar

from lockgate_proto.messages import Aggregate
from lockgate_proto.messages import CountWindow as Kind

from lockgate.pipeline import checks
from lockgate.pipeline.errors import PipelineError
from lockgate.pipeline.functions import AggregateExpression
from lockgate.pipeline.habits import Hinting
from lockgate.pipeline.pickled import describe, pickled
from lockgate.pipeline.processing import Rows

Results = TypeVar("Results")  # the stream of results, which is made of streams itself
MOST = 1_000_000


class CountWindow(Protocol):
    """The window that a function of count windows is called for. The records of a key are numbered from 0."""

    @property
    def start(self) -> int:
        """The number of its first record."""
        ...

    @property
    def end(self) -> int:
        """The number of the first record behind it."""
        ...


CountFunction = Callable[[Any, CountWindow, list[dict[str, Any]]], Rows]


class CountedStream(Hinting, Generic[Results]):
    """A keyed stream divided into count windows, as returned by `count_window`."""

    def __init__(
        self,
        window: Kind,
        aggregates: Callable[[Mapping[str, AggregateExpression]], tuple[Aggregate, ...]],
        results: Callable[[str, Any], Results],
    ) -> None:
        """window: without what is computed; results: adds an operator, by its method and kind."""
        self._window, self._aggregates, self._results = window, aggregates, results

    def aggregate(self, **aggregates: AggregateExpression) -> Results:
        """Emits (keys, window_start, window_end, aggregates) as soon as a window is complete.

        window_start, window_end: BIGINT, the numbers of its first record and of the first behind it, from 0.
        """
        return self._results("aggregate", replace(self._window, aggregates=self._aggregates(aggregates)))

    def process(self, function: CountFunction, *, schema: Any) -> Results:
        """Calls a function with the records of a key and window, as soon as the window is complete.

        >>> def steepest(key, window, records):
        ...     return {"sensor": key, "rise": records[-1]["value"] - records[0]["value"]}
        >>> values.key_by("sensor").count_window(10).process(steepest, schema="sensor STRING, rise DOUBLE")

        function: gets the value of the key column, a tuple of several; the `CountWindow`; and the records, a list of
        dicts by column, in order of arrival. It returns a dict by column or a tuple, a list of these, or None, or
        yields them. schema: of what it emits, Spark DDL. The cluster accepts such jobs from clients that present its
        secret.
        """
        data = pickled("process", function, ("key", "window", "records"), may_yield=True)
        kind = replace(
            self._window, function=data, description=describe(function), schema=checks.schema("process", schema)
        )
        return self._results("process", kind)


def count_window(keys: tuple[str, ...], size: Any, every: Any) -> Kind:
    """The definition of count windows. Raises PipelineError."""
    records = checks.whole("count_window()", "size", size, 1, MOST)
    if every is None:
        return Kind(keys, records, records)
    step = checks.whole("count_window()", "every", every, 1, MOST)
    if step > records:
        raise PipelineError(
            f"count_window({size}, every={every}) leaves records out between the windows; every must not exceed the "
            "size"
        )
    return Kind(keys, records, step)
