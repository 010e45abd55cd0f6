"""A stream with a broadcast stream beside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from lockgate_proto.messages import Partitioning, RecordFunction

from lockgate.pipeline.errors import PipelineError
from lockgate.pipeline.habits import Hinting
from lockgate.pipeline.on_error import Choice
from lockgate.pipeline.plan import Input
from lockgate.pipeline.records import Function, Vectorized, record_function

S = TypeVar("S")
_SPREAD = {
    Partitioning.HASH: "key_by()",
    Partitioning.REBALANCE: "rebalance()",
    Partitioning.BROADCAST: "broadcast()",
}


class BroadcastStream(Hinting, Generic[S]):
    """A stream and the broadcast stream beside it, as returned by `with_broadcast`.

    The object given to `map`, `flat_map` or `filter` has the methods `process_broadcast(record)` and
    `__call__(record)`, and state; see docs/operator-state.md.
    """

    def __init__(self, then: Callable[[str, RecordFunction, Choice], S]) -> None:
        self._then = then

    def map(
        self, function: Function, schema: Any = None, *, vectorized: Vectorized = None, on_error: Choice = "fail"
    ) -> S:
        """As `Stream.map`. on_error is for the records of the stream: an error of `process_broadcast` always fails."""
        return self._behind("map", function, schema, vectorized, on_error)

    def flat_map(
        self, function: Function, schema: Any = None, *, vectorized: Vectorized = None, on_error: Choice = "fail"
    ) -> S:
        """As `Stream.flat_map`. on_error: as for `map`."""
        return self._behind("flat_map", function, schema, vectorized, on_error)

    def filter(self, condition: Function, *, vectorized: Vectorized = None, on_error: Choice = "fail") -> S:
        """As `Stream.filter` with a function. on_error: as for `map`."""
        return self._behind("filter", condition, None, vectorized, on_error)

    def _behind(self, method: str, function: Any, schema: Any, vectorized: Any, on_error: Choice) -> S:
        kind = record_function(method, function, schema, vectorized, on_error, is_broadcast=True)
        return self._then(method, kind, on_error)


def with_state_of(inputs: tuple[Input, ...], broadcast: tuple[Input, ...]) -> tuple[Input, ...]:
    """The inputs of an operator with a broadcast stream beside them. Raises PipelineError when it cannot be one.

    The operator that sends it gets one subtask when the graph is built, see `widths`.
    """
    if any(input_.partitioning is Partitioning.BROADCAST for input_ in inputs):
        raise PipelineError("with_broadcast() behind broadcast(); only the stream in its parentheses is broadcast")
    if len(broadcast) > 1:
        raise PipelineError(
            "with_broadcast() takes the stream of one operator, which gives its records an order; put one behind"
            " union(), such as select('*')"
        )
    (sender,) = broadcast
    if sender.partitioning is not Partitioning.PARTITIONING_UNSPECIFIED:
        raise PipelineError(
            f"with_broadcast() sends each record to every subtask; leave out {_SPREAD[sender.partitioning]}"
        )
    if sender.side_output:
        raise PipelineError(
            "with_broadcast() takes the stream of an operator; put one behind the side output, such as select('*')"
        )
    if any(input_.node is sender.node for input_ in inputs):
        raise PipelineError("with_broadcast() of a stream with itself; put an operator, such as select('*'), between")
    return (*inputs, Input(sender.node, Partitioning.BROADCAST, is_state=True))
