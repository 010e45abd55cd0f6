"""The event time that an operator uses: the one declared upstream of it."""

from __future__ import annotations

from collections.abc import Iterable

from lockgate_proto.messages import EventTime, IntervalJoin

from lockgate.pipeline import checks
from lockgate.pipeline.errors import PipelineError
from lockgate.pipeline.plan import Input


def join_time(side: str, given: str | None, inputs: Iterable[Input]) -> str:
    """The event time of one side of a join."""
    name = f"{side}_time"
    if given is not None:
        return checks.text("interval_join", f"{name}=", given, "at")
    return event_time_of("interval_join()", name, inputs)


def event_time_of(method: str, argument: str, inputs: Iterable[Input]) -> str:
    """The event time column declared upstream of some inputs. Raises PipelineError unless there is exactly one."""
    declared = _event_times(inputs)
    if not declared:
        raise PipelineError(
            f"{method} needs to know the event time: declare it after the source, "
            'event_time("at", out_of_order="5 seconds")'
        )
    if len(declared) > 1:
        columns = ", ".join(sorted(declared))
        raise PipelineError(
            f'{method} has sources with several event times ({columns}): choose one, such as {argument}="at"'
        )
    return declared.pop()


def _event_times(inputs: Iterable[Input]) -> set[str]:
    """The event time columns declared upstream of some inputs."""
    found: set[str] = set()
    for input_ in inputs:
        if input_.is_feedback or input_.is_state:
            continue
        kind = input_.node.kind
        if isinstance(kind, EventTime):
            found.add(kind.column or kind.expression)
        elif isinstance(kind, IntervalJoin):
            found |= {kind.left_prefix + kind.left_time, kind.right_prefix + kind.right_time}
        else:
            found |= _event_times(input_.node.inputs)
    return found
