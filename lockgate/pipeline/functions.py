"""Aggregates for `Stream.aggregate`, named as in PySpark; a trailing `_` where Python has the name already."""

from __future__ import annotations

from dataclasses import dataclass

from lockgate_proto.messages import AggregateFunction

from lockgate.pipeline.errors import PipelineError


@dataclass(frozen=True, slots=True)
class AggregateExpression:
    """One aggregate, not yet named. input: an SQL expression over the stream; empty means every row."""

    function: AggregateFunction
    input: str = ""


def count(expression: str = "*") -> AggregateExpression:
    """The number of rows, or of rows where `expression` is not NULL."""
    text = _checked("count", expression)
    return AggregateExpression(AggregateFunction.COUNT, "" if text == "*" else text)


def sum_(expression: str) -> AggregateExpression:
    """The sum of an SQL expression, such as `"price * quantity"`."""
    return AggregateExpression(AggregateFunction.SUM, _checked("sum_", expression))


def min_(expression: str) -> AggregateExpression:
    """The smallest value."""
    return AggregateExpression(AggregateFunction.MIN, _checked("min_", expression))


def max_(expression: str) -> AggregateExpression:
    """The largest value."""
    return AggregateExpression(AggregateFunction.MAX, _checked("max_", expression))


def avg(expression: str) -> AggregateExpression:
    """The mean of the values that are not NULL."""
    return AggregateExpression(AggregateFunction.AVG, _checked("avg", expression))


def _checked(name: str, expression: object) -> str:
    if not isinstance(expression, str) or not expression.strip():
        raise PipelineError(f'{name}() takes a column name or SQL expression as text, such as {name}("price")')
    return expression.strip()
