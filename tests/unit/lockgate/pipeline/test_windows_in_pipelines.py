"""Event time and windows in the builder: what graph they become, and the errors their author gets."""

# ruff: noqa: ARG005  (each mistake is a lambda of one stream)

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from lockgate_proto import messages as m

from lockgate import Job, PipelineError, count, cumulating, session, sliding, sum_, tumbling


def clicks(job: Job | None = None, expression: str = "at", **options: Any) -> Any:
    job = job or Job("clicks", parallelism=2)
    source = job.read_json("/clicks", schema="user STRING, at TIMESTAMP")
    return source.event_time(expression, **{"out_of_order": "2 seconds", **options})


def test_windows_become_a_keyed_aggregate_behind_a_declared_event_time() -> None:
    job = Job("clicks", parallelism=2)
    windows = clicks(job, idle_after="1 minute").key_by("user").window(sliding("5 s", "1 s"), allowed_lateness=500)
    windows.aggregate(n=count()).write_sql("sqlite:////tmp/x.db", "clicks")
    read, aggregated = job.graph().vertices
    assert read.operators[1].kind == m.EventTime("at", "", 2000, 60_000)
    assert aggregated.operators[0].kind == m.KeyedAggregate(
        ("user",),
        (m.Aggregate("n", m.AggregateFunction.COUNT, ""),),
        m.Window(m.SlidingWindow(5000, 1000), "at", 500),
    )
    assert aggregated.operators[1].kind.keys == ("user", "window_start")  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("given", "kept"), [({}, 0), ({"max_ahead": "24 hours"}, 0), ({"max_ahead": 5000}, 5000), ({"max_ahead": None}, -1)]
)
def test_how_far_ahead_of_the_clock_a_time_may_lie(given: dict[str, Any], kept: int) -> None:
    """The default is left to the leader: the graph stays that of a job that was submitted before there was a bound."""
    job = Job("clicks")
    clicks(job, **given).write_parquet("/out")
    assert job.graph().vertices[0].operators[1].kind == m.EventTime("at", "", 2000, max_ahead_ms=kept)


def test_an_expression_is_put_into_a_column_that_windows_then_use() -> None:
    job = Job("clicks")
    named = clicks(job, "timestamp_millis(ms)", column="when")
    named.key_by("user").window(tumbling(5000)).aggregate(n=count()).print()
    operators = {operator.id: operator.kind for vertex in job.graph().vertices for operator in vertex.operators}
    assert operators["event_time-1"] == m.EventTime("timestamp_millis(ms)", "when", 2000)
    assert operators["aggregate-1"].window == m.Window(m.TumblingWindow(5000), "when")  # type: ignore[union-attr]
    assert clicks(Job("x"), "a + b")._node("uid").kind.column == "event_time"


def test_a_session_has_a_gap() -> None:
    job = Job("clicks")
    clicks(job).key_by("user").window(session("30 minutes")).aggregate(n=count()).print()
    kind = job.graph().vertices[1].operators[0].kind
    assert kind.window == m.Window(m.SessionWindow(1_800_000), "at")  # type: ignore[union-attr]
    with pytest.raises(PipelineError, match="gap must be 1 to"):
        session(0)


def test_cumulating_windows_are_upserted_by_both_bounds() -> None:
    job = Job("clicks")
    windows = clicks(job).key_by("user").window(cumulating("1 day", "1 hour", offset="22 hours"))
    windows.aggregate(n=count()).write_sql("sqlite:////tmp/x.db", "clicks")
    aggregated, sink = job.graph().vertices[1].operators
    assert aggregated.kind.window == m.Window(  # type: ignore[union-attr]
        m.CumulatingWindow(86_400_000, 3_600_000, 79_200_000), "at"
    )
    assert sink.kind.keys == ("user", "window_start", "window_end")  # type: ignore[union-attr]


def test_a_trigger_is_part_of_the_window() -> None:
    job = Job("clicks")
    windows = clicks(job).key_by("user").window(tumbling("1 minute", offset="1 second"), allowed_lateness="1 s")
    windows.trigger(every_count=1000, every="10 seconds").aggregate(n=count()).write_sql(
        "sqlite:////tmp/x.db", "clicks"
    )
    aggregated, sink = job.graph().vertices[1].operators
    wanted = m.Window(m.TriggeredWindow(60_000, 1000, 1000, 10_000), "at", 1000)
    assert aggregated.kind.window == wanted  # type: ignore[union-attr]
    assert sink.kind.keys == ("user", "window_start")  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("window", "kind", "keys"),
    [
        (tumbling("1 minute", offset=5), m.EarlyFiringWindow(60_000, 60_000, 5, False, 7), ("user", "window_start")),
        (sliding("1 minute", "10 s"), m.EarlyFiringWindow(60_000, 10_000, 0, False, 7), ("user", "window_start")),
        (
            cumulating("1 minute", "10 s"),
            m.EarlyFiringWindow(60_000, 10_000, 0, True, 7),
            ("user", "window_start", "window_end"),
        ),
    ],
)
@pytest.mark.parametrize("time", ["event", "processing"])
def test_triggers_of_all_kinds_and_times(window: Any, kind: Any, keys: tuple[str, ...], time: Any) -> None:
    if isinstance(window.kind, m.TumblingWindow) and time == "event":
        kind = m.TriggeredWindow(60_000, 5, 7)  # which earlier task managers know
    job = Job("clicks")
    windows = clicks(job).key_by("user").window(window, time=time).trigger(every_count=7)
    windows.aggregate(n=count()).write_sql("sqlite:////tmp/x.db", "clicks")
    aggregated, sink = job.graph().vertices[1].operators
    by_clock = time == "processing"
    assert aggregated.kind.window == m.Window(kind, "" if by_clock else "at", processing_time=by_clock)  # type: ignore[union-attr]
    assert sink.kind.keys == keys  # type: ignore[union-attr]


def test_pieces_of_windows_are_appended() -> None:
    job = Job("clicks")
    windows = clicks(job).key_by("user").window(tumbling("1 minute")).trigger(every_count=5, purge=True)
    found = windows.aggregate(n=count())
    with pytest.raises(PipelineError, match=r'needs mode="append" behind trigger\(purge=True\)'):
        found.write_sql("sqlite:////tmp/x.db", "clicks")
    found.write_sql("sqlite:////tmp/x.db", "clicks", mode="append")
    kind = job.graph().vertices[1].operators[0].kind
    assert kind.window == m.Window(m.TriggeredWindow(60_000, 0, 5, 0, True), "at")  # type: ignore[union-attr]


TRIGGER_MISTAKES: list[tuple[Any, str]] = [
    (lambda w: w(tumbling(5)).trigger(), "trigger() would never fire: give it every_count=1000"),
    (lambda w: w(tumbling(5)).trigger(every_count=0), "every_count must be a whole number from 1 to"),
    (lambda w: w(tumbling(5)).trigger(every="soon"), "trigger(): every must be a time such as"),
    (lambda w: w(tumbling(5)).trigger(every=5, purge=1), "purge must be True or False, not 1"),
    (lambda w: w(tumbling(5)).trigger(every=5).trigger(every_count=5), "trigger() is given once"),
    (lambda w: w(session(5)).trigger(every_count=5), "trigger() is not for session windows, because a record may join"),
    (lambda w: w(session(5), time="processing").trigger(every_count=5), "trigger() is not for session windows"),
    (lambda w: w(sliding(5, 1)).trigger(every=5).trigger(every_count=5), "trigger() is given once"),
    (lambda w: w(sliding(5, 1)).trigger(every=5).process(print, schema="a INT"), "so leave trigger() out"),
    (lambda w: w(cumulating(5, 1)).trigger(every=5).aggregate(is_early=count()), "the name of a window column"),
    (lambda w: w(tumbling(5), allowed_lateness=5).trigger(every=5, purge=True), "so leave allowed_lateness= out"),
    (lambda w: w(tumbling(5)).trigger(every=5).process(print, schema="a INT"), "so leave trigger() out"),
    (lambda w: w(tumbling(5)).trigger(every=5).aggregate(is_early=count()), "the name of a window column"),
]


@pytest.mark.parametrize(("mistake", "message"), TRIGGER_MISTAKES)
def test_mistakes_with_triggers(mistake: Any, message: str) -> None:
    with pytest.raises(PipelineError) as caught:
        mistake(clicks(Job("x")).key_by("user").window)
    assert message in str(caught.value)


def test_windows_of_processing_time_need_no_event_time() -> None:
    job = Job("words", parallelism=2)
    words = job.read_socket("localhost", 9999).select("value AS word")
    counts = words.key_by("word").window(sliding("5 s", "1 s"), time="processing").aggregate(n=count())
    counts.write_sql("sqlite:////tmp/x.db", "words")
    aggregated = job.graph().vertices[1]
    assert aggregated.operators[0].kind == m.KeyedAggregate(
        ("word",),
        (m.Aggregate("n", m.AggregateFunction.COUNT, ""),),
        m.Window(m.SlidingWindow(5000, 1000), processing_time=True),
    )
    assert aggregated.operators[1].kind.keys == ("word", "window_start")  # type: ignore[union-attr]


@pytest.mark.spark  # functions are pickled with PySpark
def test_a_function_of_windows_is_an_operator_whose_late_records_leave_as_they_are() -> None:
    job = Job("clicks", parallelism=2)

    def last(key: Any, window: Any, records: list[Any]) -> Any:
        yield {"user": key, "page": records[-1]["page"], "at": window.start}

    windows = clicks(job).key_by("user").window(cumulating("1 hour", "1 minute"))
    found = windows.process(last, schema="user STRING, page STRING, at TIMESTAMP")
    found.print()
    found.late().write_json("/late")
    graph = job.graph()
    kind = graph.vertices[1].operators[0].kind
    assert isinstance(kind, m.WindowProcess)
    assert (kind.keys, kind.schema) == (("user",), "user STRING, page STRING, at TIMESTAMP")
    assert kind.window == m.Window(m.CumulatingWindow(3_600_000, 60_000), "at")
    assert kind.function
    assert "last" in kind.description
    assert graph.edges[1].side_output == "late"


def test_late_rows_leave_by_an_edge_of_their_own() -> None:
    job = Job("clicks", parallelism=2)
    windows = clicks(job).key_by("user").window(tumbling("5 seconds", offset="1 second")).aggregate(n=count())
    windows.select("user", "n").print()
    windows.late().write_json("/late")
    graph = job.graph()
    assert [[op.id for op in vertex.operators] for vertex in graph.vertices] == [
        ["read_json-1", "event_time-1"],
        ["aggregate-1", "select-1", "print-1"],
        ["write_json-1"],
    ]
    assert graph.edges[1:] == (m.Edge("aggregate-1", "write_json-1", m.Partitioning.FORWARD, side_output="late"),)


def test_a_window_with_only_its_late_rows_used_is_refused() -> None:
    job = Job("clicks")
    clicks(job).key_by("user").window(tumbling("5 s")).aggregate(n=count()).late().print()
    with pytest.raises(PipelineError, match="is not used"):
        job.graph()


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (lambda s: s.event_time("at", out_of_order="5 parsecs"), "out_of_order must be a time such as '5 seconds'"),
        (lambda s: s.event_time("", out_of_order=0), "event_time() needs an SQL expression"),
        (lambda s: s.key_by("u").window("5 seconds"), 'window() takes tumbling("5 seconds")'),
        (lambda s: s.window(tumbling("5 s")), 'window() needs a key: key_by("user")'),
        (lambda s: s.key_by("u").aggregate(n=count()).late(), "late() belongs to the results of windows"),
        (lambda s: tumbling("0 seconds"), "size must be 1 to"),
        (lambda s: sliding("1 second", "5 seconds"), "every must not exceed the size"),
        (lambda s: cumulating("1 day", "7 hours"), "the size must be a multiple of the step"),
        (lambda s: cumulating("1 day", "2 days"), "the size must be a multiple of the step"),
        (lambda s: tumbling("5 s", offset="5 s"), "less than the time between two windows"),
        (lambda s: s.key_by("u").window(tumbling(5)).aggregate(), "needs at least one aggregate"),
        (lambda s: s.key_by("u").window(tumbling(5)).aggregate(window_end=sum_("a")), "the name of a window column"),
        (lambda s: s.key_by("u").window(tumbling(5)).aggregate(n=count()).late().uid("x"), "belongs to an operator"),
        (lambda s: s.key_by("u").window(tumbling(5), time="wall"), 'time must be one of "event", "processing"'),
        (lambda s: s.key_by("u").window(tumbling(5), time="processing", on="at"), "takes neither on= nor"),
        (lambda s: s.key_by("u").window(tumbling(5), time="processing", allowed_lateness=5), "takes neither on= nor"),
        (lambda s: s.key_by("u").window(session(5)).process(print, schema="a INT"), "a record may join two of them"),
        (
            lambda s: s.key_by("u").window(session(5), time="processing").process(print, schema="a INT"),
            "process() of session windows is not possible",
        ),
        pytest.param(
            lambda s: s.key_by("u").window(tumbling(5), time="processing").process(print, schema="a INT").late(),
            "late() has no records here",
            marks=pytest.mark.spark,  # functions are pickled with PySpark
        ),
        (
            lambda s: s.key_by("u").window(tumbling(5), allowed_lateness=5).process(print, schema="a INT"),
            "calls its function once for each window, so leave allowed_lateness= out",
        ),
        (
            lambda s: s.key_by("u").window(tumbling(5)).process(lambda key, rows: None, schema="a INT"),
            "process() calls its function with (key, window, records)",
        ),
        pytest.param(
            lambda s: s.key_by("u").window(tumbling(5)).process(print, schema=""),
            "process() needs schema= as text",
            marks=pytest.mark.spark,  # functions are pickled with PySpark
        ),
        (
            lambda s: s.key_by("u").window(tumbling(5), time="processing").aggregate(n=count()).late(),
            "late() has no records here",
        ),
    ],
)
def test_mistakes(mistake: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(PipelineError, match=re.escape(message)):
        mistake(clicks())


def test_windows_need_a_declared_event_time() -> None:
    with pytest.raises(PipelineError, match="declare it after the source"):
        Job("j").generate(5).key_by("partition").window(tumbling(5))
    job = Job("j")
    both = clicks(job).union(clicks(job, "a + b").select("*"))
    with pytest.raises(PipelineError, match=re.escape('(at, event_time): choose one, such as on="at"')):
        both.key_by("user").window(tumbling(5))
    both.key_by("user").window(tumbling(5), on="at")


@pytest.mark.parametrize("name", ["count", "tumbling"])
def test_any_name_may_be_imported_first(name: str) -> None:
    subprocess.run([sys.executable, "-c", f"from lockgate import {name}"], check=True)
