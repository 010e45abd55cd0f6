"""Functions that are called with each record, or with tables of records: `map`, `flat_map` and `filter`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Literal, Protocol

from lockgate_proto.messages import RecordCall, RecordForm, RecordFunction

from lockgate.pipeline import checks
from lockgate.pipeline.errors import PipelineError
from lockgate.pipeline.object_state import broadcast_state, object_state, refuse_repeated_calls
from lockgate.pipeline.on_error import Choice, way
from lockgate.pipeline.pickled import describe, pickled

Vectorized = Literal["arrow", "pandas"] | None
Function = Callable[[Any], Any]
_CALLS = {"map": RecordCall.MAP, "flat_map": RecordCall.FLAT_MAP, "filter": RecordCall.FILTER}
_FORMS = {"arrow": RecordForm.ARROW, "pandas": RecordForm.PANDAS}
_ARGUMENTS = {RecordForm.RECORDS: "record", RecordForm.ARROW: "table", RecordForm.PANDAS: "frame"}


class FunctionContext(Protocol):
    """What `open(context)` of an object given to `map`, `flat_map` or `filter` can ask.

    >>> class Score:
    ...     def open(self, context):
    ...         self.model = load("model.bin")
    ...
    ...     def __call__(self, record):
    ...         return {**record, "score": self.model.score(record["text"])}
    ...
    ...     def close(self):
    ...         self.model.release()

    The object lives as long as its subtask: `open` is called once for each attempt, before the first record, and
    `close` at the end, also after a failure or a cancellation, and when `open` itself has failed half-way. Both are
    optional. An object may also have state, which is part of every snapshot: `state_fields = ("count",)`, or the
    methods `snapshot_state()` and `restore_state(state)`; see docs/operator-state.md.
    """

    @property
    def job_key(self) -> str:
        """The job's key."""
        ...

    @property
    def operator_id(self) -> str:
        """The operator's id, as set with `uid`."""
        ...

    @property
    def subtask(self) -> int:
        """The number of this subtask, from 0."""
        ...

    @property
    def parallelism(self) -> int:
        """The number of subtasks, each of which has an object of its own."""
        ...

    @property
    def attempt(self) -> int:
        """The number of the execution attempt, from 1."""
        ...


def record_function(
    method: str, function: Any, schema: Any, vectorized: Any, on_error: Choice, *, is_broadcast: bool = False
) -> RecordFunction:
    """The operator of `map`, `flat_map` and `filter`. schema: None for `filter`; is_broadcast: behind `with_broadcast`.

    Raises PipelineError.
    """
    call = _CALLS[method]
    form = RecordForm.RECORDS if vectorized is None else checks.one_of(method, "vectorized", vectorized, _FORMS)
    _refuse_frames(method, function, form)
    if schema is None and call is not RecordCall.FILTER:
        raise PipelineError(
            f"{method}() calls its function with each record, and needs the columns that it returns: {method}("
            'function, schema="word STRING, n INT"); a function DataFrame -> DataFrame belongs in transform()'
        )
    if isinstance(function, type) and any("__call__" in vars(kind) for kind in function.__mro__):
        raise PipelineError(f"{method}() takes an object, not the class: {method}({function.__name__}(...))")
    may_yield = call is RecordCall.FLAT_MAP and form is RecordForm.RECORDS
    data = pickled(method, function, (_ARGUMENTS[form],), place="in open() of an object", may_yield=may_yield)
    state = broadcast_state(method, function) if is_broadcast else object_state(method, function)
    refuse_repeated_calls(method, state, form is not RecordForm.RECORDS, way(method, on_error).on_error)
    columns = "" if call is RecordCall.FILTER else checks.schema(method, schema)
    return RecordFunction(data, describe(function), call, form, columns, state)


def _refuse_frames(method: str, function: Any, form: RecordForm) -> None:
    """A function whose parameter is annotated as a DataFrame wants no record."""
    if form is RecordForm.PANDAS or not inspect.isroutine(function):
        return
    kinds = [str(kind) for name, kind in getattr(function, "__annotations__", {}).items() if name != "return"]
    if any("DataFrame" in kind for kind in kinds):
        raise PipelineError(
            f"{method}() calls its function with each record, a dict, but {describe(function)} takes a DataFrame; use"
            f' transform() for a function DataFrame -> DataFrame, or {method}(..., vectorized="pandas")'
        )
