"""Triggers of windows: what the leader refuses, in one sentence each."""

from __future__ import annotations

from typing import Any

import pytest
from lockgate_coordinator.graph.validate import validate
from lockgate_proto.messages import EarlyFiringWindow, SessionWindow, TriggeredWindow, Window

from .test_validate import of_windows, windowed, with_side_output


def test_good_triggers_have_no_problem() -> None:
    for kind in (TriggeredWindow(5000, 4999, 1), TriggeredWindow(5000, 0, 0, 1), TriggeredWindow(5000, 0, 7, 8, True)):
        graph = windowed(Window(kind, "at"))
        assert validate(graph) == ()
        assert validate(with_side_output(graph, "late")) == ()
    assert validate(windowed(Window(TriggeredWindow(5000, every_count=3), "at", 1000))) == ()
    for early in (
        EarlyFiringWindow(5000, 5000, 4999, False, 1),
        EarlyFiringWindow(100, 1, 0, False, 0, 1),
        EarlyFiringWindow(100, 1, 99, True, 7, 8, True),
    ):
        assert validate(windowed(Window(early, "at"))) == ()
        assert validate(windowed(Window(early, processing_time=True))) == ()


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        (Window(TriggeredWindow(5000), "at"), "has a trigger that never fires: set every_count, every_ms, or both."),
        (Window(TriggeredWindow(5000, every_count=-1), "at"), "every_count -1: it must be at least 1, or 0 for none."),
        (Window(TriggeredWindow(5000, 0, 1, -2), "at"), "every_ms -2: it must be between 1 and"),
        (Window(TriggeredWindow(0, 0, 1), "at"), "has a window with a size of 0 ms"),
        (Window(TriggeredWindow(10, 10, 1), "at"), "an offset of 10 ms"),
        (Window(TriggeredWindow(10, 0, 1), ""), "has a window but no event time"),
        (Window(TriggeredWindow(10, 0, 1), processing_time=True), "only an EarlyFiringWindow may be."),
        (
            Window(EarlyFiringWindow(101, 1, 0, False, 1), "at"),
            "each record is in 101 of them, and the limit is 100",
        ),
        (
            Window(EarlyFiringWindow(303, 3, 0, True, 1), "at"),
            "each record is in 101 of them, and the limit is 100",
        ),
        (Window(EarlyFiringWindow(5, 0, 0, False, 1), "at"), "has a window with a slide of 0 ms"),
        (Window(EarlyFiringWindow(5, 6, 0, False, 1), "at"), "make the slide at most the size"),
        (Window(EarlyFiringWindow(5, 2, 0, True, 1), "at"), "the size must be a multiple of the step"),
        (Window(EarlyFiringWindow(5, 5, 5, False, 1), "at"), "an offset of 5 ms"),
        (Window(EarlyFiringWindow(5, 5), "at"), "has a trigger that never fires"),
        (Window(EarlyFiringWindow(5, 5, 0, False, 1), "at", processing_time=True), "choose one of them"),
        (Window(TriggeredWindow(10, 0, 1, 0, True), "at", 5), "allowed_lateness_ms 5: a late record would need"),
    ],
)
def test_bad_triggers(window: Window, expected: str) -> None:
    assert any(expected in problem for problem in validate(windowed(window))), validate(windowed(window))


def test_a_result_named_like_the_column_of_early_results_is_refused() -> None:
    kind: Any
    early = EarlyFiringWindow(5, 5, every_count=1)
    for kind, count in ((TriggeredWindow(5000, every_count=1), 1), (early, 1), (SessionWindow(5), 0)):
        problems = validate(windowed(Window(kind, "at"), keys=("IS_EARLY",)))
        assert sum("has a key or result named 'IS_EARLY'" in problem for problem in problems) == count


def test_a_function_of_windows_has_no_trigger() -> None:
    for kind in (TriggeredWindow(5000, every_count=1), EarlyFiringWindow(5, 5, every_count=1)):
        (problem,) = validate(of_windows(Window(kind, "at")))
        assert "calls a function for windows with a trigger, which is not possible" in problem
