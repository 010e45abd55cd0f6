"""Count windows in the builder: what graph they become, and the errors their author gets."""

# ruff: noqa: ARG005  (each mistake is a lambda of one stream)

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from lockgate_proto import messages as m

from lockgate import Job, PipelineError, count, sum_


def clicks(job: Job | None = None) -> Any:
    return (job or Job("clicks")).read_json("/clicks", schema="user STRING, ms INT")


def test_aggregates_of_count_windows_are_one_operator_and_upserted_by_its_end() -> None:
    job = Job("clicks")
    windows = clicks(job).key_by("user").count_window(100, every=20)
    windows.aggregate(n=count(), total=sum_("ms")).write_sql("sqlite:////tmp/x.db", "clicks")
    aggregated, sink = job.graph().vertices[1].operators
    aggregates = (m.Aggregate("n", m.AggregateFunction.COUNT, ""), m.Aggregate("total", m.AggregateFunction.SUM, "ms"))
    assert aggregated.kind == m.CountWindow(("user",), 100, 20, aggregates)
    assert aggregated.id == "aggregate-1"
    assert sink.kind.keys == ("user", "window_end")  # type: ignore[union-attr]


@pytest.mark.spark  # functions are pickled with PySpark
def test_a_function_of_count_windows_is_one_operator() -> None:
    job = Job("clicks")

    def last(key: Any, window: Any, records: list[Any]) -> Any:
        yield {"user": key, "ms": records[-1]["ms"], "until": window.end}

    clicks(job).key_by("user").count_window(3).process(last, schema="user STRING, ms INT, until BIGINT").print()
    kind = job.graph().vertices[1].operators[0].kind
    assert isinstance(kind, m.CountWindow)
    assert (kind.keys, kind.size, kind.every, kind.aggregates) == (("user",), 3, 3, ())
    assert kind.function
    assert (kind.schema, "last" in kind.description) == ("user STRING, ms INT, until BIGINT", True)


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (lambda s: s.key_by("u").count_window(0), "count_window(): size must be a whole number from 1 to 1000000"),
        (lambda s: s.key_by("u").count_window("5 s"), "count_window(): size must be a whole number"),
        (lambda s: s.key_by("u").count_window(5, every=0), "count_window(): every must be a whole number"),
        (lambda s: s.key_by("u").count_window(5, every=6), "every must not exceed the size"),
        (lambda s: s.key_by("u").count_window(5).aggregate(), "needs at least one aggregate"),
        (lambda s: s.key_by("u").count_window(5).aggregate(window_end=count()), "the name of a window column"),
        (lambda s: s.key_by("u").count_window(5).process(lambda key: None, schema="a INT"), "(key, window, records)"),
        pytest.param(
            lambda s: s.key_by("u").count_window(5).process(print, schema=""),
            "process() needs schema= as text",
            marks=pytest.mark.spark,  # functions are pickled with PySpark
        ),
        (
            lambda s: s.key_by("u").count_window(5).aggregate(n=count()).late(),
            "late() belongs to the results of windows",
        ),
        (lambda s: s.count_window(5), 'a Stream has no count_window(); use key_by("user").count_window(100)'),
        (lambda s: s.key_by("u").countWindow(5), 'use key_by("user").count_window(100)'),
        (lambda s: s.key_by("u").count_window(5).reduce(max), "a CountedStream has no reduce()"),
        pytest.param(
            lambda s: s.key_by("u").count_window(5).process(print, schema="a INT").write_sql("sqlite:////x.db", "x"),
            "write_sql() needs key=",
            marks=pytest.mark.spark,
        ),
    ],
)
def test_mistakes(mistake: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(PipelineError, match=re.escape(message)):
        mistake(clicks())
