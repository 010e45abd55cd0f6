"""At most once: what is read ahead is processed when its positions are durable, and never after a restart."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from lockgate_common.backlog import Backlog
from lockgate_proto.messages import (
    CheckpointMode,
    CheckpointOptions,
    EventTime,
    GeneratorSource,
    JobGraph,
    SplitRange,
    SplitState,
)
from lockgate_taskmanager.spark.sources.generator import RangeSource
from lockgate_taskmanager.spark.sources.read_ahead import FIRST_BYTES, MOST_BYTES, ReadAhead, is_at_most_once
from lockgate_taskmanager.spark.sources.reading import Reading, rested
from lockgate_taskmanager.task.program import Exhausted, Idle

ROWS, BATCH = 40, 16 * 3  # bytes of three rows

HELD = Idle(1000, is_held=True)


@dataclass
class Snapshot:
    """What a snapshot holds: the positions, what the state counted, and what a restart from it loses."""

    splits: tuple[SplitState, ...]
    counted: tuple[tuple[str, int], ...] = ()
    lost: int = 0


@dataclass
class Job:
    """Attempts of one source; `seen` has every record that any of them has processed."""

    newest: Snapshot
    seen: list[tuple[str, int]] = field(default_factory=list)
    pending: dict[int, Snapshot] = field(default_factory=dict)
    zombies: list[ReadAhead] = field(default_factory=list)
    checkpoint_id: int = 0

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """The old attempt may live on for a while, cut off from the leader."""
        if self.checkpoint_id:
            self.zombies.append(self.source)
        self.source = ReadAhead(RangeSource(GeneratorSource(2, ROWS, 0.0)))
        self.source.assign(self.newest.splits, True)
        self.counted, self.lost = list(self.newest.counted), self.newest.lost
        self.pending.clear()

    def poll(self, source: ReadAhead) -> Reading | Idle | Exhausted:
        found = source.read(BATCH, 0)
        if isinstance(found, Reading):
            records = [(part.split, offset) for part in found.ranges for offset in range(part.start, part.end)]
            self.seen += records
            if source is self.source:
                self.counted += records
        return found

    def barrier(self, *, is_savepoint: bool = False) -> int:
        self.checkpoint_id += 1
        lost = self.source.freeze(self.checkpoint_id, is_savepoint)
        splits = self.source.stored(self.source.splits())
        self.pending[self.checkpoint_id] = Snapshot(splits, tuple(self.counted), self.lost + lost)
        return self.checkpoint_id

    def complete(self, checkpoint_id: int, *, is_told: bool = True) -> None:
        self.newest = self.pending.pop(checkpoint_id)
        self.pending = {number: found for number, found in self.pending.items() if number > checkpoint_id}
        if is_told:
            self.source.completed(checkpoint_id)


def job() -> Job:
    return Job(Snapshot((SplitState("0", 0, ROWS), SplitState("1", 0, ROWS))))


def run_out(found: Job) -> None:
    """Checkpoints until the input has ended."""
    for _ in range(200):
        if isinstance(found.poll(found.source), Exhausted):
            return
        found.complete(found.barrier())
    raise AssertionError("the input does not end")


AFTER_SAVEPOINT = ["poll", "poll", "barrier", "complete", "savepoint", "poll", "restart"]
AFTER_COMPLETION = ["poll", "poll", "barrier", "complete", "poll", "restart", "zombie"]
STEP = st.sampled_from(("poll", "poll", "barrier", "savepoint", "complete", "unheard", "abort", "restart", "zombie"))


@example(AFTER_SAVEPOINT, Random(1))
@example(AFTER_COMPLETION, Random(1))
@given(st.lists(STEP, max_size=60), st.randoms(use_true_random=False))
def test_no_record_is_processed_twice_and_lost_ones_are_counted(steps: list[str], choice: Random) -> None:
    found = job()
    for step in steps:
        match step:
            case "poll":
                found.poll(found.source)
            case "barrier":
                found.barrier()
            case "savepoint" if not found.pending:  # a savepoint shares the time with no other checkpoint
                found.complete(found.barrier(is_savepoint=True))
            case "complete" | "unheard" if found.pending:
                number = choice.choice(sorted(found.pending))
                found.complete(number, is_told=step == "complete")
            case "abort" if found.pending:
                found.pending.pop(min(found.pending))
            case "restart":
                found.restart()
            case "zombie" if found.zombies:
                found.poll(choice.choice(found.zombies))
    run_out(found)
    for zombie in found.zombies:
        while isinstance(found.poll(zombie), Reading):
            pass
    assert len(set(found.seen)) == len(found.seen), "a record was processed twice"
    assert len(set(found.counted)) == len(found.counted)
    assert len(found.counted) + found.lost == 2 * ROWS, "every record is in the state, or counted as lost"


@dataclass
class Uneven:
    """A source whose batches are of any size: (split, rows) each, several splits in one, any order."""

    batches: list[list[tuple[str, int]]]
    by_split: bool
    ends: dict[str, int] = field(default_factory=lambda: dict.fromkeys("abc", 0))
    complete: bool = True

    def spec(self) -> None:
        return None

    def assign(self, splits: Sequence[SplitState], complete: bool) -> None: ...

    def read(self, budget_bytes: int, now_ms: int) -> Reading | Idle:  # noqa: ARG002
        if not self.batches:
            return HELD
        ranges = []
        for split, rows in dict(self.batches.pop(0)).items():
            ranges.append(SplitRange(split, self.ends[split], self.ends[split] + rows))
            self.ends[split] += rows
        rows = sum(found.end - found.start for found in ranges)
        continues = ranges[0].split if self.by_split else ""
        return Reading([b"x" * rows], rows, rows, False, continues, ranges=tuple(ranges[: 1 if self.by_split else 3]))

    def splits(self) -> tuple[SplitState, ...]:
        return tuple(SplitState(split, end, -1) for split, end in self.ends.items())

    def backlog(self, now_ms: int) -> tuple[str, ...]:  # noqa: ARG002
        return ()

    def unread(self, now_ms: int) -> Backlog:  # noqa: ARG002
        return Backlog()

    def close(self) -> None: ...


def _in_order(ranges: Iterable[SplitRange], at: dict[str, int]) -> None:
    """Each split's ranges follow each other. at: its end so far, which is moved."""
    for found in ranges:
        assert at[found.split] == found.start < found.end, "records of one split are out of order"
        at[found.split] = found.end


BATCHES = st.lists(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 40)), min_size=1, max_size=3), max_size=30)


@example([[("a", 40)], [("a", 20)], [("a", 25)], [("a", 8)]], ["poll"] * 5 + ["barrier", "poll", "savepoint"], False)
@given(BATCHES, st.lists(st.sampled_from(("poll", "poll", "poll", "barrier", "savepoint")), max_size=60), st.booleans())
def test_batches_that_wait_keep_the_order_of_each_split(
    batches: list[list[tuple[str, int]]], steps: list[str], by_split: bool
) -> None:
    if by_split:
        batches = [batch[:1] for batch in batches]
    inner = Uneven(list(batches), by_split)
    source, processed = ReadAhead(inner), dict.fromkeys("abc", 0)
    for number, step in enumerate(steps, 1):
        if step == "poll":
            found = source.read(50, 0)
            if isinstance(found, Reading):
                _in_order(found.ranges, processed)
        else:
            source.freeze(number, step == "savepoint")
            if step == "savepoint":
                stored = {split.split: split.offset for split in source.stored(source.splits())}
                assert stored == processed, "a start from it would process records twice, or lose them"
            source.completed(number)
        waiting = dict(processed)
        for item in source._waiting:
            _in_order(item.reading.ranges, waiting)
        assert waiting == inner.ends, "all that was read is processed or waits"


def test_nothing_is_processed_before_a_checkpoint_is_complete() -> None:
    found = job()
    assert isinstance(found.poll(found.source), Idle)
    number = found.barrier()
    assert isinstance(found.poll(found.source), Idle)
    found.complete(number)
    assert isinstance(found.poll(found.source), Reading)


def test_a_failure_without_a_checkpoint_loses_nothing() -> None:
    found = job()
    found.poll(found.source)
    found.restart()
    run_out(found)
    assert (len(found.counted), found.lost) == (2 * ROWS, 0)


def test_a_savepoint_loses_nothing_and_what_waits_goes_on_with_the_next_checkpoint() -> None:
    found = job()
    found.poll(found.source)
    found.poll(found.source)
    found.complete(found.barrier())
    assert isinstance(found.poll(found.source), Reading)
    found.complete(found.barrier(is_savepoint=True))
    assert found.newest.lost == 0
    assert isinstance(found.poll(found.source), Idle), "it would be processed again by a job that starts from there"
    found.complete(found.barrier())
    assert isinstance(found.poll(found.source), Reading)
    run_out(found)
    assert (len(found.counted), found.lost) == (2 * ROWS, 0)


def test_what_waits_grows_while_it_is_too_little_and_shrinks_again() -> None:
    source = ReadAhead(RangeSource(GeneratorSource(1, 0, 0.0)))
    source.assign((SplitState("0", 0, -1),), True)

    def read_ahead() -> int:
        size = source.inner.splits()[0].offset
        while source.read(FIRST_BYTES // 4, 0) != HELD:
            pass
        return 16 * (source.inner.splits()[0].offset - size)  # bytes

    def checkpoint(number: int) -> None:
        source.freeze(number, False)
        source.completed(number)

    sizes = []
    for number in range(1, 10):
        sizes.append(read_ahead())
        checkpoint(number)
    assert sizes[:3] == [FIRST_BYTES, 2 * FIRST_BYTES, 4 * FIRST_BYTES]
    assert max(sizes) == MOST_BYTES
    for number in range(10, 30):  # slow processing: a batch between two checkpoints
        source.read(1, 0)
        checkpoint(number)
    assert read_ahead() < MOST_BYTES


def test_tiny_batches_of_a_slow_source_become_one_while_they_wait() -> None:
    source = ReadAhead(RangeSource(GeneratorSource(2, 0, 1000.0)))
    source.assign((SplitState("0", 0, -1), SplitState("1", 7, -1)), True)
    for now_ms in range(0, 1000, 10):
        assert isinstance(source.read(1 << 20, now_ms), Idle)
    source.freeze(1, False)
    source.completed(1)
    found = source.read(1 << 20, 1000)
    assert isinstance(found, Reading)
    assert [(part.split, part.start, part.end) for part in found.ranges] == [("0", 0, 990), ("1", 7, 997)]
    assert (found.rows, found.bytes) == (2 * 990, 2 * 990 * 16)
    assert sum(int(end) - int(start) + 1 for _, start, end in _lines(found)) == found.rows
    assert isinstance(source.read(1 << 20, 1000), Idle), "what came after the barrier waits for the next one"


def _lines(found: Reading) -> list[list[str]]:
    text = b"".join(found.content).decode()
    return [line.split(",") for line in text.splitlines()]


def test_by_event_time_only_batches_of_one_split_are_merged() -> None:
    source = ReadAhead(RangeSource(GeneratorSource(2, 0, 1000.0), by_split=True))
    source.assign((SplitState("0", 0, -1), SplitState("1", 0, -1)), True)
    for now_ms in range(0, 1000, 10):
        source.read(1 << 20, now_ms)
    source.freeze(1, False)
    source.completed(1)
    batches = [source.read(1 << 20, 1000), source.read(1 << 20, 1000)]
    for name, found in zip("01", batches, strict=True):
        assert isinstance(found, Reading)
        assert found.split == name
        assert [part.split for part in found.ranges] == [name]
        assert found.rows > 400


def test_a_split_with_waiting_records_is_not_idle_and_they_count_as_unread() -> None:
    found = job()
    assert found.source.unread(0) == Backlog(records=2 * ROWS)
    while found.poll(found.source) != HELD:
        pass
    assert found.source.unread(0) == Backlog(records=2 * ROWS)
    assert found.source.backlog(0) == {"0", "1"}


@pytest.mark.parametrize("mode", list(CheckpointMode))
def test_only_this_mode_reads_ahead(mode: CheckpointMode) -> None:
    assert is_at_most_once(JobGraph(checkpoints=CheckpointOptions(mode=mode))) is (mode is CheckpointMode.AT_MOST_ONCE)


def test_each_batch_is_measured_on_its_own() -> None:
    """What a call reads ahead belongs to a later batch, and what it returns was read in an earlier call."""
    now = [0.0]

    class Slow(RangeSource):
        def read(self, budget_bytes: int, now_ms: int) -> Reading | Idle | Exhausted:
            now[0] += 3.0 if budget_bytes == BATCH else 5.0
            return super().read(budget_bytes, now_ms)

    source = ReadAhead(Slow(GeneratorSource(1, 0, 0.0)), lambda: now[0])
    source.assign((SplitState("0", 0, -1),), True)
    assert source.read(BATCH, 0) == Idle(0)
    source.freeze(1, False)
    source.completed(1)
    before = now[0]
    found = source.read(2 * BATCH, 0)
    assert isinstance(found, Reading)
    assert now[0] - before - found.other_s == 3.0, "reading it has taken three seconds, and five went to the next one"


def test_only_what_a_checkpoint_holds_back_is_held() -> None:
    """A source that is slow itself has nothing to read, though its newest records wait."""
    slow = ReadAhead(RangeSource(GeneratorSource(1, 0, 1000.0)))
    slow.assign((SplitState("0", 0, -1),), True)
    slow.read(1 << 20, 0)
    rests = [slow.read(1 << 20, 10) for _ in range(3)]
    assert slow.unread(10).records != 0
    assert not any(isinstance(rest, Idle) and rest.is_held for rest in rests)
    ended = ReadAhead(RangeSource(GeneratorSource(1, ROWS, 0.0)))
    ended.assign((SplitState("0", 0, -1),), True)
    while (rest := ended.read(1 << 20, 0)) == Idle(0):
        pass
    assert rest == HELD, "the last records wait for the last checkpoint"


def test_a_limited_pause_still_says_that_a_checkpoint_holds_the_records_back() -> None:
    assert rested(HELD, EventTime("at", idle_after_ms=200)) == Idle(200, is_held=True)
