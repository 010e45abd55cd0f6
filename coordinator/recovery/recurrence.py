"""Recognises what fails again and again on the same records, which no restart gets over.

An attempt that fails like an earlier one is told by the vertex, the operator and the words of the error, and by the
records: ranges of a source that overlap, or, where no source is in the vertex, the checkpoint that both attempts were
restored from, because what follows it is read again.

Failures of the surroundings (a disk that is full, a database that is away) look alike for as long as they last, and
are none of these: see FailureCause.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass

from lockgate_proto.messages import FailureCause, FailurePlace, JobFailure, SplitRange

from coordinator.recovery.attempt import AttemptFailed

ENOUGH = 3
"""So many attempts that have failed in the same way end the job."""
REMEMBERED = 64
_OF_RECORDS = frozenset({FailureCause.DATA_ERROR, FailureCause.INTERNAL_ERROR})
_ADDRESS = re.compile(r"\b0x[0-9a-f]+\b")
_RANGES_SHOWN = 3


@dataclass(slots=True)
class _Seen:
    vertex_id: str
    operator_id: str
    words: str
    restored_id: int
    ranges: tuple[SplitRange, ...]
    times: int = 1

    def is_like(self, other: _Seen) -> bool:
        mine, theirs = (self.vertex_id, self.operator_id, self.words), (other.vertex_id, other.operator_id, other.words)
        if mine != theirs:
            return False
        if self.ranges and other.ranges:
            return any(_overlap(one, two) for one in self.ranges for two in other.ranges)
        return not self.ranges and not other.ranges and self.restored_id == other.restored_id


class Recurrence:
    """The failures of one job under one leader."""

    def __init__(self) -> None:
        self._seen: deque[_Seen] = deque(maxlen=REMEMBERED)

    def noted(self, failed: AttemptFailed, restored_id: int) -> int:
        """How many attempts have failed in this way by now; 1 for what is not of records.

        restored_id: the checkpoint that the attempt was restored from, 0 for none.
        """
        if failed.subtask is None or failed.cause not in _OF_RECORDS:
            return 1
        place = failed.place or FailurePlace()
        words = _ADDRESS.sub("", failed.error.partition("\n")[0])
        found = _Seen(failed.subtask[0], place.operator_id, words, restored_id, place.ranges)
        for one in self._seen:
            if one.is_like(found):
                one.times += 1
                one.ranges, one.restored_id = found.ranges, restored_id
                return one.times
        self._seen.append(found)
        return 1


def job_failure(failed: AttemptFailed, attempt: int, times: int) -> JobFailure:
    """The failure as it is shown and stored."""
    vertex_id, subtask = failed.subtask or ("", 0)
    return JobFailure(failed.cause, vertex_id, subtask, failed.place, times, attempt)


def verdict(failure: JobFailure) -> str:
    """Why a job ends by what has been recognised; a sentence."""
    where = whereabouts(failure.place)
    return (
        f"{failure.times} attempts have failed in this way on the same records{f' ({where})' if where else ''}, so no"
        f" restart can help; the newest checkpoint is kept."
    )


def whereabouts(place: FailurePlace | None) -> str:
    """Operator, column, and what of the source was being read, as far as is known."""
    if place is None:
        return ""
    found = [f"operator '{place.operator_id}'"] if place.operator_id else []
    found += [f"column '{place.column}'"] if place.column else []
    found += [f"{one.split} from offset {one.start} to {one.end}" for one in place.ranges[:_RANGES_SHOWN]]
    if len(place.ranges) > _RANGES_SHOWN:
        found.append("and others")
    return ", ".join(found)


def _overlap(one: SplitRange, two: SplitRange) -> bool:
    return one.split == two.split and one.start < two.end and two.start < one.end
