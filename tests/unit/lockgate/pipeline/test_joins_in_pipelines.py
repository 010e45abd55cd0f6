"""Interval joins in the builder: what graph they become, and the errors their author gets."""

# ruff: noqa: ARG005  (each mistake is a lambda of two streams)

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from lockgate_proto import messages as m

from lockgate import Job, PipelineError, count, tumbling

HASH, LEFT, RIGHT = m.Partitioning.HASH, m.JoinSide.LEFT, m.JoinSide.RIGHT


def streams(job: Job | None = None) -> tuple[Any, Any]:
    job = job or Job("shop", parallelism=2)
    orders = job.read_json("/orders", schema="id STRING, at TIMESTAMP").event_time("at", out_of_order=0)
    payments = job.read_json("/payments", schema="order_id STRING, ms BIGINT").event_time("ms", out_of_order=0)
    return orders, payments


def test_a_join_is_a_vertex_with_a_left_and_a_right_input() -> None:
    job = Job("shop", parallelism=2)
    orders, payments = streams(job)
    pairs = orders.key_by("id").interval_join(
        payments.key_by("order_id"), lower="-5 seconds", upper="10 minutes", right_prefix="paid_"
    )
    pairs.uid("match").select("id").print()
    graph = job.graph()
    assert [op.id for op in graph.vertices[2].operators] == ["match", "select-1", "print-1"]
    kind = m.IntervalJoin(("id",), ("order_id",), "at", "ms", -5000, 600_000, "", "paid_")
    assert graph.vertices[2].operators[0].kind == kind
    assert graph.edges == (
        m.Edge("read_json-1", "match", HASH, ("id",), join_side=LEFT),
        m.Edge("read_json-2", "match", HASH, ("order_id",), join_side=RIGHT),
    )


def test_sides_may_be_unions_and_one_stream_may_be_both_behind_an_operator() -> None:
    job = Job("shop")
    orders, more = (
        job.read_json(path, schema="id STRING, at TIMESTAMP").event_time("at", out_of_order=0) for path in ("/a", "/b")
    )
    both = orders.union(more).key_by("id")
    both.interval_join(orders.select("*").key_by("id"), lower=-1, upper=1, left_prefix="l_").print()
    sides = [(edge.source, edge.join_side) for edge in job.graph().edges if edge.join_side]
    assert sides == [("read_json-1", LEFT), ("read_json-2", LEFT), ("select-1", RIGHT)]


def test_windows_behind_a_join_require_the_choice_of_a_time() -> None:
    orders, payments = streams()
    pairs = orders.key_by("id").interval_join(payments.key_by("order_id"), lower=0, upper=5, right_prefix="p_")
    with pytest.raises(PipelineError, match=re.escape('(at, p_ms): choose one, such as on="at"')):
        pairs.key_by("id").window(tumbling(5))
    assert pairs.key_by("id").window(tumbling(5), on="at").aggregate(n=count())


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (lambda a, b: a.interval_join(b.key_by("id"), lower=0, upper=1), "interval_join() needs a key on both sides"),
        (lambda a, b: a.key_by("id").interval_join(b, lower=0, upper=1), "takes another keyed stream"),
        (lambda a, b: a.key_by("id").interval_join(streams()[0].key_by("id"), lower=0, upper=1), "of the same Job"),
        (
            lambda a, b: a.key_by("id").interval_join(b.key_by("order_id", "ms"), lower=0, upper=1),
            "1 key columns on the left and 2 on the right",
        ),
        (lambda a, b: a.key_by("id").interval_join(a.key_by("id"), lower=0, upper=1), "of a stream with itself"),
        (
            lambda a, b: a.key_by("id").interval_join(b.key_by("order_id"), lower="5 s", upper="-5 s"),
            "from '5 s' to '-5 s' contains nothing",
        ),
        (
            lambda a, b: a.key_by("id").interval_join(b.key_by("order_id"), lower="- 5 parsecs", upper=0),
            "lower must be a time such as '5 seconds'",
        ),
        (
            lambda a, b: a.key_by("id").interval_join(b.key_by("order_id"), lower=0, upper=1, left_time=""),
            "needs left_time= as text",
        ),
        (
            lambda a, b: a.key_by("id").interval_join(b.key_by("order_id"), lower=0, upper=1, right_prefix=3),
            "needs right_prefix as text",
        ),
    ],
)
def test_mistakes(mistake: Callable[[Any, Any], Any], message: str) -> None:
    with pytest.raises(PipelineError, match=re.escape(message)):
        mistake(*streams())


def test_both_sides_need_a_declared_event_time() -> None:
    job = Job("shop")
    orders, _ = streams(job)
    rows = job.generate(5)
    with pytest.raises(PipelineError, match=r"interval_join\(\) needs to know the event time"):
        orders.key_by("id").interval_join(rows.key_by("partition"), lower=0, upper=1)
