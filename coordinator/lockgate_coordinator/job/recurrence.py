"""Recognises what fails again and again on the same records, which no restart gets over.

Two attempts fail alike when the vertex, the operator and the words of the error are the same, and the records too:
ranges of a source that overlap, or, where no source is in the vertex, the checkpoint that both attempts were restored
from, because what follows it is read again.

Failures of the environment (a disk that is full, a database that is away) look alike for as long as they last, and
are none of these: see FailureCause.
"""

from __future__ import annotations

import hashlib
import re
from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from lockgate_proto.messages import FailureCause, FailurePlace, JobFailure, RecurringFailure, SplitRange

from lockgate_coordinator.job.attempt import AttemptFailed

ENOUGH = 3
"""So many attempts that have failed in the same way end the job."""
REMEMBERED = 64
STORED = 8
"""So many of them stand in the record of the next attempt, where a new leader finds them."""
_OF_RECORDS = frozenset({FailureCause.DATA_ERROR, FailureCause.INTERNAL_ERROR})
_ADDRESS = re.compile(r"\b0x[0-9a-f]+\b")
_MAX_RANGES = 3
_RANGES_STORED, _LONGEST_SPLIT, _LONGEST_WORDS = 4, 1_000, 200


class Recurrence:
    """The failures of one job: those under this leader, and what the leaders before it have stored."""

    def __init__(self) -> None:
        self._seen: deque[RecurringFailure] = deque(maxlen=REMEMBERED)  # the newest last

    def recovered(self, stored: Sequence[RecurringFailure]) -> None:
        """What the record of the last attempt holds. The failure of that attempt itself is not among it."""
        self._seen.extend(stored)

    def stored(self) -> tuple[RecurringFailure, ...]:
        """For the record of the next attempt, which is written anyway: some, and little of each."""
        return tuple(_short(seen) for seen in list(self._seen)[-STORED:])

    def noted(self, failed: AttemptFailed, restored_id: int) -> int:
        """How many attempts have failed in this way by now; 1 for what is not of records.

        restored_id: the checkpoint that the attempt was restored from, 0 for none.
        """
        if failed.subtask is None or failed.cause not in _OF_RECORDS:
            return 1
        place = failed.place or FailurePlace()
        words = _digest(failed.error)
        found = RecurringFailure(failed.subtask[0], place.operator_id, words, restored_id, place.ranges, 1)
        before = next((seen for seen in self._seen if _is_like(seen, found)), None)
        if before is not None:
            self._seen.remove(before)
            found = replace(found, times=before.times + 1)
        self._seen.append(found)
        return found.times


def _is_like(mine: RecurringFailure, other: RecurringFailure) -> bool:
    if (mine.vertex_id, mine.operator_id, mine.words) != (other.vertex_id, other.operator_id, other.words):
        return False
    if mine.ranges and other.ranges:
        return any(_overlap(range_, two) for range_ in mine.ranges for two in other.ranges)
    return not mine.ranges and not other.ranges and mine.restored_id == other.restored_id


def _digest(error: str) -> str:
    """The first line of an error without addresses; of a long one the beginning, and a digest of it all."""
    words = _ADDRESS.sub("", error.partition("\n")[0])
    if len(words) <= _LONGEST_WORDS:
        return words
    return f"{words[:_LONGEST_WORDS]} {hashlib.sha256(words.encode(errors='replace')).hexdigest()}"


def _short(seen: RecurringFailure) -> RecurringFailure:
    small = [range_ for range_ in seen.ranges if len(range_.split) <= _LONGEST_SPLIT]
    return replace(seen, ranges=tuple(small[:_RANGES_STORED]))


def job_failure(failed: AttemptFailed, attempt: int, times: int) -> JobFailure:
    """The failure as it is shown and stored."""
    vertex_id, subtask = failed.subtask or ("", 0)
    return JobFailure(failed.cause, vertex_id, subtask, failed.place, times, attempt)


def verdict(failure: JobFailure) -> str:
    """Why a job ends by what has been recognised; a sentence."""
    where = place_text(failure.place)
    return (
        f"{failure.times} attempts have failed in this way on the same records{f' ({where})' if where else ''}, so no"
        f" restart can help; the newest checkpoint is kept."
    )


def place_text(place: FailurePlace | None) -> str:
    """Operator, column, and what of the source was being read, as far as is known."""
    if place is None:
        return ""
    found = [f"operator '{place.operator_id}'"] if place.operator_id else []
    found += [f"column '{place.column}'"] if place.column else []
    found += [f"{range_.split} from offset {range_.start} to {range_.end}" for range_ in place.ranges[:_MAX_RANGES]]
    if len(place.ranges) > _MAX_RANGES:
        found.append("and others")
    return ", ".join(found)


def _overlap(split_range: SplitRange, two: SplitRange) -> bool:
    return split_range.split == two.split and split_range.start < two.end and two.start < split_range.end
