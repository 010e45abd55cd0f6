"""How watermarks are combined: over channels, over splits, with idle ones and ended ones."""

from __future__ import annotations

import pytest
from lockgate_proto.messages import SplitState, Watermark
from lockgate_taskmanager.task.split_watermarks import SplitWatermarks
from lockgate_taskmanager.task.watermarks import MAX_WATERMARK, MIN_WATERMARK, ChannelWatermarks, held_back


def split(name: str, mark: int | None = None, offset: int = 0, end: int = 100) -> SplitState:
    return SplitState(name, offset, end, mark)


def nothing() -> tuple[str, ...]:
    return ()


def test_the_slowest_channel_counts() -> None:
    combined = ChannelWatermarks(2)
    assert combined.arrived(0, Watermark(50)) is None, "nothing is known of the other"
    assert combined.arrived(1, Watermark(20)) == Watermark(20)
    assert combined.arrived(1, Watermark(70)) == Watermark(50)


def test_a_watermark_never_falls() -> None:
    combined = ChannelWatermarks(1)
    assert combined.arrived(0, Watermark(50)) == Watermark(50)
    assert combined.arrived(0, Watermark(40)) is None
    assert combined.arrived(0, Watermark(51)) == Watermark(51)


def test_an_idle_channel_delays_no_watermark_until_its_next_one() -> None:
    combined = ChannelWatermarks(2)
    combined.arrived(0, Watermark(50))
    assert combined.arrived(1, Watermark(MIN_WATERMARK, idle=True)) == Watermark(50)
    assert combined.arrived(1, Watermark(10)) is None, "it is behind, and holds again"
    assert combined.arrived(0, Watermark(90)) is None
    assert combined.arrived(1, Watermark(60)) == Watermark(60)


def test_when_all_are_idle_the_furthest_decides_in_any_order() -> None:
    for order in ((0, 1), (1, 0)):
        combined = ChannelWatermarks(2)
        combined.arrived(0, Watermark(50))
        combined.arrived(1, Watermark(20))
        news = [combined.arrived(step, Watermark((50, 20)[step], idle=True)) for step in order]
        assert news[-1] == Watermark(50, idle=True)


def test_an_ended_channel_delays_no_watermark_and_the_last_end_is_the_end_of_time() -> None:
    combined = ChannelWatermarks(2)
    combined.arrived(0, Watermark(50))
    assert combined.ended(1) == Watermark(50)
    assert combined.ended(0) == Watermark(MAX_WATERMARK)


def test_a_silent_channel_neither_holds_event_time_back_nor_advances_it() -> None:
    combined = ChannelWatermarks(2, silent=frozenset({1}))
    assert combined.arrived(0, Watermark(50)) == Watermark(50)
    assert combined.arrived(1, Watermark(20)) is None
    assert combined.arrived(1, Watermark(90)) is None
    assert combined.arrived(1, Watermark(95, idle=True)) is None
    assert combined.arrived(0, Watermark(60, idle=True)) == Watermark(60, idle=True)
    assert combined.ended(1, drained=True) is None
    assert combined.ended(0, drained=True) == Watermark(MAX_WATERMARK)


def test_when_all_others_have_ended_a_silent_channel_has_nothing_to_wait_for() -> None:
    combined = ChannelWatermarks(3, silent=frozenset({0}))
    assert combined.ended(1) is None
    assert combined.ended(2) == Watermark(MAX_WATERMARK)
    assert combined.arrived(0, Watermark(5)) is None


def test_the_least_advanced_split_counts_and_one_that_was_not_read_holds_back() -> None:
    known = SplitWatermarks(5, 0)
    known.assign([split("a"), split("b")])
    known.read("a", (), 100, 0)
    assert known.news(0, nothing) is None
    known.read("b", (), 60, 1)
    assert known.news(1, nothing) == Watermark(54)
    known.read("b", (), 40, 2)
    assert known.news(2, nothing) is None, "older records are within the bound"


def test_a_split_read_to_its_end_holds_nothing_back() -> None:
    known = SplitWatermarks(0, 0)
    known.assign([split("a"), split("b")])
    known.read("a", (), 10, 0)
    known.read("b", ("a",), 60, 0)
    assert known.news(0, nothing) == Watermark(59)
    known.read("", ("b",), 80, 0)
    assert known.news(0, nothing) == Watermark(79), "nothing open: as far as the furthest"


def test_marks_are_restored_with_the_splits() -> None:
    before = SplitWatermarks(0, 0)
    before.assign([split("a"), split("b")])
    before.read("a", (), 100, 0)
    before.read("b", (), 70, 0)
    stored = before.marked([split("a", offset=5), split("b", offset=5)])
    after = SplitWatermarks(0, 0)
    after.assign(stored)
    after.assign([split("a")])  # said twice by the leader
    assert after.news(0, nothing) == Watermark(69)
    assert after.marked([split("b")])[0].max_event_time_ms == 70


def test_a_split_is_idle_only_when_there_is_nothing_to_read_in_it() -> None:
    known = SplitWatermarks(0, 1000)
    known.assign([split("a", end=-1), split("b", end=-1)])
    known.read("a", (), 100, 0)
    assert known.news(0, nothing) is None
    known.read("a", (), 200, 1500)
    assert known.news(1500, lambda: ("b",)) is None, "b waits for its turn"
    known.read("a", (), 300, 2600)
    assert known.news(2600, nothing) == Watermark(299), "b has had nothing for 1.1 s"
    known.read("b", (), 150, 2700)
    assert known.news(2700, nothing) is None, "it is back and behind; event time does not fall"


def test_a_subtask_whose_splits_are_all_idle_says_so() -> None:
    known = SplitWatermarks(0, 1000)
    known.assign([split("a", end=-1)])
    known.read("a", (), 100, 0)
    assert known.news(0, nothing) == Watermark(99)
    assert known.news(1200, nothing) == Watermark(99, idle=True)
    known.read("a", (), 120, 1300)
    assert known.news(1300, nothing) == Watermark(119)


@pytest.mark.parametrize("idle_after_ms", [0, 1000])
def test_a_subtask_without_splits_is_idle_from_the_moment_they_were_dealt(idle_after_ms: int) -> None:
    known = SplitWatermarks(0, idle_after_ms)
    assert known.news(0, nothing) is None
    assert known.news(999, nothing) is None, "its splits may be on their way, and the others wait for it"
    known.assigned()
    assert known.news(10**9, nothing) == Watermark(MIN_WATERMARK, idle=True)
    assert known.news(2 * 10**9, nothing) is None
    known.assign([split("found later", end=-1)])
    assert known.news(2 * 10**9, nothing) == Watermark(MIN_WATERMARK), "it holds event time back until it is read"
    known.read("found later", (), 50, 2 * 10**9)
    assert known.news(2 * 10**9, nothing) == Watermark(49)


def test_while_no_subtask_has_splits_each_waits_for_idle_after() -> None:
    for idle_after_ms in (0, 1000):
        known = SplitWatermarks(0, idle_after_ms)
        assert known.news(0, nothing) is None
        expected = Watermark(MIN_WATERMARK, idle=True) if idle_after_ms else None
        assert known.news(1000, nothing) == expected, "the folder may stay empty, and others have records"


def test_a_subtask_with_splits_is_not_idle_because_they_were_dealt() -> None:
    known = SplitWatermarks(0, 0)
    known.assign([split("a", end=-1), split("b", mark=20, offset=100)])
    known.assigned()
    assert known.news(10**9, nothing) is None
    known.read("a", (), 10, 10**9)
    assert known.news(10**9, nothing) == Watermark(9)


def test_a_subtask_that_has_read_its_splits_waits_for_more_for_the_idle_time() -> None:
    for idle_after_ms in (0, 1000):
        known = SplitWatermarks(0, idle_after_ms)
        known.assign([split("a", mark=20, offset=100)])
        known.assigned()
        assert known.news(0, nothing) == Watermark(19)
        assert known.news(1000, nothing) == (Watermark(19, idle=True) if idle_after_ms else None)


def test_a_drained_channel_holds_event_time_back_until_all_have_ended() -> None:
    combined = ChannelWatermarks(3)
    assert combined.arrived(0, Watermark(90)) is None
    assert combined.arrived(2, Watermark(20)) is None
    assert combined.arrived(1, Watermark(50)) == Watermark(20)
    assert combined.ended(2) == Watermark(50), "it was read to its end"
    assert combined.ended(1, drained=True) is None
    assert combined.arrived(0, Watermark(95)) is None
    assert combined.ended(0, drained=True) == Watermark(MAX_WATERMARK)


def test_a_watermark_is_held_back_but_not_the_end_of_the_input() -> None:
    assert held_back(Watermark(100), 30) == Watermark(70)
    assert held_back(Watermark(100, idle=True), 30) == Watermark(70, idle=True)
    assert held_back(Watermark(MAX_WATERMARK), 30) == Watermark(MAX_WATERMARK)
    assert held_back(Watermark(MIN_WATERMARK), 30) == Watermark(MIN_WATERMARK)
