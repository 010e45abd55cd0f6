"""Combined watermarks against a naive model: the least over who is awake, whatever the order of arrival."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from lockgate_coordinator.graph.normalize import normalize
from lockgate_coordinator.job.splits import Assign, SplitAssigner
from lockgate_proto.messages import KafkaSource, SplitsDiscovered, SplitState, Watermark
from lockgate_taskmanager.task.split_watermarks import SplitWatermarks
from lockgate_taskmanager.task.watermarks import MAX_WATERMARK, MIN_WATERMARK, ChannelWatermarks

from tests.unit.coordinator.jobs import attempt, word_count

arrivals = st.lists(
    st.tuples(st.integers(0, 2), st.one_of(st.just("end"), st.tuples(st.integers(-9, 9), st.booleans()))), max_size=25
)


@settings(max_examples=300, deadline=None)
@given(arrivals)
def test_channels_agree_with_a_model(plan: list[tuple[int, str | tuple[int, bool]]]) -> None:
    combined = ChannelWatermarks(3)
    times, idle, ended = [MIN_WATERMARK] * 3, [False] * 3, [False] * 3
    last, high = Watermark(MIN_WATERMARK), MIN_WATERMARK
    for channel, what in plan:
        if ended[channel]:
            continue
        if isinstance(what, tuple):
            times[channel], idle[channel] = max(times[channel], what[0]), what[1]
            news = combined.arrived(channel, Watermark(*what))
        else:
            ended[channel] = True
            news = combined.ended(channel)
        awake = [times[number] for number in range(3) if not ended[number] and not idle[number]]
        resting = [times[number] for number in range(3) if not ended[number]]
        high = max(high, min(awake) if awake else max(resting, default=MAX_WATERMARK))
        now = Watermark(high, bool(resting) and not awake)
        assert news == (None if now == last else now)
        last = now


reads = st.lists(st.tuples(st.integers(0, 2), st.integers(-9, 9), st.booleans(), st.integers(0, 30)), max_size=25)


@settings(max_examples=300, deadline=None)
@given(reads, st.integers(0, 5))
def test_no_record_of_a_split_in_order_is_ever_behind_the_watermark(
    plan: list[tuple[int, int, bool, int]], bound: int
) -> None:
    """Each split's times rise but for the bound, no split is idle: nothing may be too late, in any order of reading."""
    known = SplitWatermarks(bound, 0)
    known.assign([SplitState(str(number), 0, 100) for number in range(3)])
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


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 4), st.integers(1, 4), st.lists(st.integers(0, 3), max_size=30), st.sampled_from([0, 10_000]))
def test_event_time_advances_with_few_splits_and_waits_until_all_are_assigned(
    partitions: int, parallelism: int, turns: list[int], idle_after_ms: int
) -> None:
    """What the leader says reaches the subtasks in any order, while those that have splits read already."""
    source = KafkaSource("h:9", ("t",), poll_interval_ms=200)
    assigner = SplitAssigner(normalize(word_count(source, parallelism=parallelism)).vertices[0], attempt(1), {})
    assigner.deployed(0)
    splits = tuple(SplitState(f"t/{number}", 0, -1) for number in range(partitions))
    assigner.found(SplitsDiscovered(attempt=attempt(1), vertex_id="read", splits=splits), 0)
    assigner.first.written(assigner.first.packed())
    assigner.stored(0)
    subtasks = [SplitWatermarks(0, idle_after_ms) for _ in range(parallelism)]
    behind, waiting = ChannelWatermarks(parallelism), set(range(parallelism))
    heard, read_up_to = MIN_WATERMARK, dict.fromkeys((split.split for split in splits), MIN_WATERMARK)
    for now, turn in enumerate([*turns, *range(parallelism), *range(parallelism)]):
        number = turn % parallelism
        known = subtasks[number]
        if number in waiting:
            waiting.remove(number)
            (effect,) = assigner.running(number)
            assert isinstance(effect, Assign)
            known.assign(effect.body.splits)
            known.assigned()
        else:
            for text in known.marked(splits):
                if text.split in known._last_read_ms:
                    known.read(text.split, (), 1000 + now, now)
                    read_up_to[text.split] = 999 + now
        for index, subtask in enumerate(subtasks):
            news = subtask.news(now, tuple)
            combined = None if news is None else behind.arrived(index, news)
            heard = heard if combined is None else combined.event_time_ms
        assert heard == (MIN_WATERMARK if waiting else min(read_up_to.values()))
    assert heard >= 1000 + len(turns)


class Scanned:
    """The same by looking at every open split each time. None idle: `idle_after_ms` is 0."""

    def __init__(self, bound: int, idle_after_ms: int) -> None:
        self.bound, self.idle_after_ms = bound + 1, idle_after_ms
        self.marks: dict[str, int] = {}
        self.read_ms: dict[str, int] = {}
        self.combined = Watermark(MIN_WATERMARK)

    def news(self, now_ms: int, backlog: tuple[str, ...]) -> Watermark | None:
        quiet = {
            key for key, last in self.read_ms.items() if self.idle_after_ms and now_ms - last >= self.idle_after_ms
        }
        for item in quiet & set(backlog):
            self.read_ms[item] = now_ms
        active = self.read_ms.keys() - (quiet - set(backlog))
        times = {key: mark - self.bound for key, mark in self.marks.items()}
        found = [times.get(key, MIN_WATERMARK) for key in active] or [max(times.values(), default=MIN_WATERMARK)]
        combined = Watermark(max(min(found), self.combined.event_time_ms), idle=not active and bool(self.read_ms))
        news = None if combined == self.combined else combined
        self.combined = combined
        return news


turns = st.lists(
    st.tuples(
        st.sampled_from(["assign", "read", "end", "wait"]),
        st.integers(0, 4),
        st.one_of(st.none(), st.integers(-20, 20)),
        st.sets(st.integers(0, 4), max_size=2),
    ),
    max_size=30,
)


@settings(max_examples=300, deadline=None)
@given(turns, st.integers(0, 3), st.sampled_from([0, 3]))
def test_idle_splits_are_ignored_and_nothing_else_is_reported(
    plan: list[tuple[str, int, int | None, set[int]]], bound: int, idle_after_ms: int
) -> None:
    known, model, now = SplitWatermarks(bound, idle_after_ms), Scanned(bound, idle_after_ms), 0
    seen: set[str] = set()
    for what, number, time, waiting in plan:
        name = str(number)
        now += what == "wait"
        if what == "assign" and name not in seen:
            seen.add(name)
            known.assign([SplitState(name, 0, 100)])
            model.read_ms[name] = now
        elif what in ("read", "end") and name in model.read_ms:
            known.read(name if what == "read" else "", (name,) if what == "end" else (), time, now)
            if time is not None:
                model.marks[name] = max(time, model.marks.get(name, time))
            model.read_ms[name] = now
            if what == "end":
                del model.read_ms[name]
        backlog = tuple(str(number) for number in waiting if str(number) in model.read_ms)
        if model.read_ms:
            assert known.news(now, lambda found=backlog: found) == model.news(now, backlog)  # type: ignore[misc]
