"""Recognises failures that recur on the same records, which no restart can fix.

Two failures are alike when vertex, operator and error text are the same, and the records too: overlapping ranges of a
source or, if the vertex has no source, the checkpoint from which both attempts were restored, because the same records
follow it.

Failures of the environment (a full disk, an unreachable database) also look alike while they last, but do not count:
see FailureCause.
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
"""The number of attempts that must fail alike to end the job."""
REMEMBERED = 64
STORED = 8
"""The number of failures in the record of the next attempt, where a new leader finds them."""
_OF_RECORDS = frozenset({FailureCause.DATA_ERROR, FailureCause.INTERNAL_ERROR})
_ADDRESS = re.compile(r"\b0x[0-9a-f]+\b")
_MAX_RANGES = 3
_RANGES_STORED, _LONGEST_SPLIT, _LONGEST_WORDS = 4, 1_000, 200


class Recurrence:
    """The failures of one job: those under this leader, and those stored by earlier leaders."""

    def __init__(self) -> None:
        self._seen: deque[RecurringFailure] = deque(maxlen=REMEMBERED)  # the newest last

    def recovered(self, stored: Sequence[RecurringFailure]) -> None:
        """Takes over the failures in the record of the last attempt, which do not include that attempt's own."""
        self._seen.extend(stored)

    def stored(self) -> tuple[RecurringFailure, ...]:
        """The newest failures, shortened, for the record of the next attempt, which is written anyway."""
        return tuple(_short(seen) for seen in list(self._seen)[-STORED:])

    def noted(self, failed: AttemptFailed, restored_id: int) -> int:
        """The number of attempts that have failed like this one; 1 for failures that are not due to records.

        restored_id: the checkpoint from which the attempt was restored, 0 for none.
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
    """The first line of an error without addresses; if it is long, its beginning and a hash of the whole."""
    words = _ADDRESS.sub("", error.partition("\n")[0])
    if len(words) <= _LONGEST_WORDS:
        return words
    return f"{words[:_LONGEST_WORDS]} {hashlib.sha256(words.encode(errors='replace')).hexdigest()}"


def _short(seen: RecurringFailure) -> RecurringFailure:
    small = [range_ for range_ in seen.ranges if len(range_.split) <= _LONGEST_SPLIT]
    return replace(seen, ranges=tuple(small[:_RANGES_STORED]))


def job_failure(failed: AttemptFailed, attempt: int, times: int) -> JobFailure:
    """The failure in the form for clients and the result."""
    vertex_id, subtask = failed.subtask or ("", 0)
    return JobFailure(failed.cause, vertex_id, subtask, failed.place, times, attempt)


def verdict(failure: JobFailure) -> str:
    """Why a recurring failure ends the job; a sentence."""
    where = place_text(failure.place)
    return (
        f"{failure.times} attempts have failed in this way on the same records{f' ({where})' if where else ''}, so no"
        f" restart can help; its checkpoints are kept."
    )


def place_text(place: FailurePlace | None) -> str:
    """Operator, column and source ranges of a failure, as far as they are known."""
    if place is None:
        return ""
    found = [f"operator '{place.operator_id}'"] if place.operator_id else []
    found += [f"column '{place.column}'"] if place.column else []
    found += [
        f"split {range_.split} from offset {range_.start} to {range_.end}" for range_ in place.ranges[:_MAX_RANGES]
    ]
    if len(place.ranges) > _MAX_RANGES:
        found.append("and others")
    return ", ".join(found)


def _overlap(split_range: SplitRange, two: SplitRange) -> bool:
    return split_range.split == two.split and split_range.start < two.end and two.start < split_range.end
