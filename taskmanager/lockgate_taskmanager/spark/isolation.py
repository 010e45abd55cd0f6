"""Finds the records on which a batch fails, by bisection with a bounded number of runs.

Pure: the expensive function that runs a part of the batch is passed in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from lockgate_taskmanager.task.program import DataError, ProgramError

MOST_RUNS = 2_000
Run = Callable[[int, int], None]  # runs records first .. end - 1; raises their errors


@dataclass(slots=True)
class Budget:
    """How many more parts of one batch may be run. No barrier is processed meanwhile, so this has to be bounded."""

    left: int = field(default_factory=lambda: MOST_RUNS)

    def take(self, reason: ProgramError) -> None:
        """Uses up one run. Raises DataError when none is left; reason: the error of the batch."""
        if self.left <= 0:
            operator_id = reason.operator_id if isinstance(reason, DataError) else ""
            raise DataError(
                "too many records of one batch fail to isolate them: on_error is meant for single records. Correct"
                " the expression or function, or filter them out before it."
                # a separate line: attempts that fail alike are recognized by the first line
                f"\nThe last one: {reason}",
                operator_id=operator_id,
            ) from reason
        self.left -= 1


def isolate(
    count: int, run: Run, budget: Budget, reason: ProgramError, may_be_a_record: Callable[[ProgramError], bool]
) -> dict[int, ProgramError]:
    """The failing records, by number in order, with their errors. None: no record is to blame, and the batch has
    passed.

    count: records of the batch, which has failed with `reason`. Raises errors that `may_be_a_record` rejects, DataError
    when the budget is used up, and the error of records that fail together but pass individually.
    """
    found: dict[int, ProgramError] = {}

    def failure(first: int, end: int, last: ProgramError) -> ProgramError | None:
        budget.take(last)
        try:
            run(first, end)
        except ProgramError as error:
            if not may_be_a_record(error):
                raise
            return error
        return None

    def search(first: int, end: int, error: ProgramError) -> None:
        """Isolates the failing records in a part that has failed."""
        if end - first == 1:
            found[first] = error
            return
        before = len(found)
        middle = (first + end) // 2
        for begin, stop in ((first, middle), (middle, end)):
            if (half := failure(begin, stop, error)) is not None:
                search(begin, stop, half)
        if len(found) == before and (together := failure(first, end, error)) is not None:
            raise together

    if (error := failure(0, count, reason)) is not None:
        search(0, count, error)
    return found
