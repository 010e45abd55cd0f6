"""The load of a vertex out of those of its subtasks."""

from __future__ import annotations

from lockgate_proto.messages import SubtaskLoad, SubtaskStatusView

from lockgate.loads import vertex_loads


def _views(vertex: str, *loads: SubtaskLoad | None) -> list[SubtaskStatusView]:
    return [SubtaskStatusView(vertex, number, "tm", "RUNNING", load) for number, load in enumerate(loads)]


def test_shares_are_averages_and_the_busiest_shows() -> None:
    found = vertex_loads(_views("a", SubtaskLoad(1_000, 0), SubtaskLoad(100, 400), None, SubtaskLoad(100, 200)))["a"]
    assert (round(found.busy, 6), round(found.backpressured, 6), round(found.idle, 6)) == (0.4, 0.2, 0.4)
    assert found.busiest == 1.0


def test_event_time_is_that_of_the_slowest_which_has_input() -> None:
    found = vertex_loads(
        _views(
            "a",
            SubtaskLoad(0, 0, 500, 20, True, True),
            SubtaskLoad(0, 0, 400, 120, True, True),
            SubtaskLoad(0, 0, 7, 0, True),
        )
    )["a"]
    assert (found.watermark_unix_ms, found.lag_ms) == (400, 120)
    idle = vertex_loads(_views("a", SubtaskLoad(0, 0, 9, 0, True), SubtaskLoad(0, 0, 7, 0, True), SubtaskLoad()))["a"]
    assert (idle.watermark_unix_ms, idle.lag_ms) == (7, None)


def test_a_clock_behind_the_events_shows_as_it_is() -> None:
    found = vertex_loads(_views("a", SubtaskLoad(0, 0, 500, -20, True, True)))["a"]
    assert found.lag_ms == -20


def test_without_a_report_nothing_is_known() -> None:
    assert vertex_loads(_views("a", None) + _views("b", SubtaskLoad())).keys() == {"b"}
