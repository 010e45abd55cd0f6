"""What a kill costs in work: from the samples of the job's status before and after it. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

from lockgate_devtools.drill.model import Kill, Mode
from lockgate_devtools.drill.sample import Sample
from lockgate_devtools.drill.timeline import Before

SECOND_US = 1_000_000
_LONGEST_BEFORE = 5
"""Seconds before the kill whose mean counts."""


def measured(kill: Kill, before: Before, samples: Sequence[Sample]) -> Kill:
    """The kill with what it has cost, whether a part ran on, and the first record of an attempt that was adopted."""
    first_ms = first_written_ms(before, samples) if kill.mode is Mode.REATTACH else kill.first_record_ms
    return replace(
        kill,
        mode=_in_part(samples) if kill.mode is Mode.RESTART and runs_on(before, samples) else kill.mode,
        first_record_ms=first_ms,
        restarted_subtasks=restarted_subtasks(before, samples),
        records_read_again=records_read_again(before, samples),
        throughput_ratio=throughput_ratio(before, samples),
    )


def is_measured(kill: Kill) -> bool:
    """Whether its cost is known: a second is over, and an adopted attempt has been seen to write."""
    is_seen = kill.mode is not Mode.REATTACH or kill.first_record_ms is not None
    return is_seen and kill.throughput_ratio is not None


def restarted_subtasks(before: Before, samples: Sequence[Sample]) -> int | None:
    """Of all attempts since the kill; None when no status has come since.

    Where the subtasks of an attempt are in no status, it counts as all of them.
    """
    after = [sample for sample in samples if sample.unix_us >= before.unix_us]
    if not after:
        return None
    newest, size = max(sample.attempt for sample in after), max(sample.subtasks for sample in after)
    begun: dict[int, int] = {}
    for attempt, count in (pair for sample in after for pair in sample.begun):
        begun[attempt] = max(count, begun.get(attempt, 0))
    return sum(begun.get(attempt, size) for attempt in range(before.attempt + 1, newest + 1))


def runs_on(before: Before, samples: Sequence[Sample]) -> bool:
    """Whether subtasks that ran before the kill are in the newest attempt."""
    later = [sample for sample in samples if sample.attempt > before.attempt and sample.begun]
    return bool(later) and later[-1].begun[0][0] <= before.attempt


def _in_part(samples: Sequence[Sample]) -> Mode:
    return Mode.PARTIAL if any(sample.exchanges for sample in samples) else Mode.REGION


def records_read_again(before: Before, samples: Sequence[Sample]) -> int | None:
    """By the attempts since the kill, as their leaders count, and by an adopted one: see `went_back`.

    None when no status has come since.
    """
    after = [sample for sample in samples if sample.unix_us >= before.unix_us]
    if not after:
        return None
    counts = {sample.token: sample.read_again for sample in after}  # each leader counts from 0
    earlier = [sample for sample in samples if sample.unix_us < before.unix_us]
    known = earlier[-1].read_again if earlier and earlier[-1].token in counts else 0
    return sum(counts.values()) - known + went_back(before, samples)


def went_back(before: Before, samples: Sequence[Sample]) -> int:
    """By how many records the count of the sources fell in the attempt of the kill, under another leader.

    It never falls where they run on: they report to a new leader at least what they have reported to the dead one. It
    falls where they read again from a snapshot. What others have read since their last report hides some of that.
    """
    mine = [sample for sample in samples if sample.subtasks and sample.attempt == before.attempt]
    furthest = max((sample.read for sample in mine if sample.token <= before.token), default=0)
    adopted = (sample.read for sample in mine if sample.token > before.token)
    return max(0, furthest - min(adopted, default=furthest))


def throughput_ratio(before: Before, samples: Sequence[Sample]) -> float | None:
    """Records read for the first time in the second of the kill, against the mean of up to 5 seconds before.

    Between two samples the progress is taken to be even. None without a sample a second after the kill, or a second of
    progress before it.
    """
    samples = [sample for sample in samples if sample.subtasks]  # until then a new leader has the snapshot's counts
    times = [sample.unix_us for sample in samples]
    furthest = list(accumulate((sample.read for sample in samples), max))

    def read_by(unix_us: int) -> float:
        index = bisect_left(times, unix_us)
        if times[index] == unix_us or not index:
            return furthest[index]
        share = (unix_us - times[index - 1]) / (times[index] - times[index - 1])
        return furthest[index - 1] + share * (furthest[index] - furthest[index - 1])

    start_us, end_us = before.unix_us, before.unix_us + SECOND_US
    if not times or times[-1] < end_us:
        return None
    seconds = min(_LONGEST_BEFORE, (start_us - times[0]) // SECOND_US)
    if seconds < 1:
        return None
    mean = (read_by(start_us) - read_by(start_us - seconds * SECOND_US)) / seconds
    return round((read_by(end_us) - read_by(start_us)) / mean, 3) if mean > 0 else None


def progress(before: Before, samples: Sequence[Sample], seconds: float) -> tuple[tuple[float, int], ...]:
    """Records that the sources had read by each sample around the kill, counted once: seconds since then, records."""
    running = [sample for sample in samples if sample.subtasks]
    furthest = accumulate((sample.read for sample in running), max)
    pairs = (
        ((sample.unix_us - before.unix_us) / SECOND_US, read) for sample, read in zip(running, furthest, strict=True)
    )
    return tuple((round(at_s, 2), read) for at_s, read in pairs if -seconds <= at_s <= seconds)


def first_written_ms(before: Before, samples: Sequence[Sample]) -> float | None:
    """When a new leader first knew of more output than the dead one had; None while it does not.

    That is late by up to a heartbeat: no task manager reports the first record of an attempt that runs on.
    """
    written = max((sample.written for sample in samples if sample.token <= before.token), default=0)
    for sample in samples:
        if sample.token > before.token and sample.written > written:
            return round((sample.unix_us - before.unix_us) / 1000, 1)
    return None
