"""Combined watermarks against a naive model: the least over who is awake, whatever the order of arrival."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from lockgate_proto.messages import SplitState, Watermark

from taskmanager.task.split_watermarks import SplitWatermarks
from taskmanager.task.watermarks import MAX_WATERMARK, MIN_WATERMARK, ChannelWatermarks

arrivals = st.lists(
    st.tuples(st.integers(0, 2), st.one_of(st.just("end"), st.tuples(st.integers(-9, 9), st.booleans()))), max_size=25
)


@settings(max_examples=300, deadline=None)
@given(arrivals)
def test_channels_agree_with_a_model(plan: list[tuple[int, str | tuple[int, bool]]]) -> None:
    combined = ChannelWatermarks(3)
    times, idle, ended = [MIN_WATERMARK] * 3, [False] * 3, [False] * 3
    told, high = Watermark(MIN_WATERMARK), MIN_WATERMARK
    for channel, what in plan:
        if ended[channel]:
            continue
        if isinstance(what, tuple):
            times[channel], idle[channel] = max(times[channel], what[0]), what[1]
            news = combined.arrived(channel, Watermark(*what))
        else:
            ended[channel] = True
            news = combined.ended(channel)
        awake = [times[one] for one in range(3) if not ended[one] and not idle[one]]
        resting = [times[one] for one in range(3) if not ended[one]]
        high = max(high, min(awake) if awake else max(resting, default=MAX_WATERMARK))
        now = Watermark(high, bool(resting) and not awake)
        assert news == (None if now == told else now)
        told = now


reads = st.lists(st.tuples(st.integers(0, 2), st.integers(-9, 9), st.booleans(), st.integers(0, 30)), max_size=25)


@settings(max_examples=300, deadline=None)
@given(reads, st.integers(0, 5))
def test_no_record_of_a_split_in_order_is_ever_behind_the_watermark(
    plan: list[tuple[int, int, bool, int]], bound: int
) -> None:
    """Each split's times rise but for the bound, nobody is idle: nothing may come too late, whatever is read when."""
    known = SplitWatermarks(bound, 0)
    known.assign([SplitState(str(one), 0, 100) for one in range(3)])
    base, done, watermark = [0, -50, 50], [False] * 3, MIN_WATERMARK
    for number, jitter, is_last, step in plan:
        if done[number]:
            continue
        base[number] += step
        time = base[number] - abs(jitter) % (bound + 1)
        assert time > watermark
        done[number] = is_last
        known.read("" if is_last else str(number), (str(number),) if is_last else (), time, 0)
        news = known.news(0, tuple)
        watermark = watermark if news is None else news.event_time_ms
        if not any(done) and news is not None:
            assert watermark <= min(base) - 1
