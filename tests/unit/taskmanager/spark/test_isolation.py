"""Which records of a batch fail: found by halves, whatever fails, within a bound."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lockgate_taskmanager.spark.isolation import Budget, isolate
from lockgate_taskmanager.task.program import DataError, ProgramError, Unavailable

REASON = DataError("the batch", where="operator 'o'")


class Batch:
    """Records of which some fail. together: some that only fail in one batch."""

    def __init__(self, count: int, bad: set[int], together: set[int] | None = None) -> None:
        self.count, self.bad, self.together, self.runs = count, bad, together, 0

    def run(self, first: int, end: int) -> None:
        self.runs += 1
        found = next((number for number in range(first, end) if number in self.bad), None)
        if found is not None:
            raise DataError(f"record {found}")
        if self.together and self.together <= set(range(first, end)):
            raise DataError("too many")

    def isolated(self, budget: Budget | None = None) -> dict[int, str]:
        found = isolate(self.count, self.run, budget or Budget(), REASON, lambda error: isinstance(error, DataError))
        return {number: str(error) for number, error in found.items()}


@given(st.integers(1, 300).flatmap(lambda count: st.tuples(st.just(count), st.sets(st.integers(0, count - 1)))))
def test_exactly_the_records_that_fail_are_found_in_order(given: tuple[int, set[int]]) -> None:
    count, bad = given
    batch = Batch(count, bad)
    found = batch.isolated()
    assert list(found) == sorted(bad)
    assert found == {number: f"record {number}" for number in bad}
    assert batch.runs <= 1 + 2 * len(bad) * (math.ceil(math.log2(count)) if count > 1 else 1)


def test_a_batch_that_passes_the_second_time_has_no_bad_record() -> None:
    batch = Batch(1000, set())
    assert batch.isolated() == {}
    assert batch.runs == 1


@pytest.mark.parametrize("together", [{3, 4}, {0, 9}, {8, 9}])
def test_records_that_fail_only_together_are_not_left_out(together: set[int]) -> None:
    with pytest.raises(DataError, match="too many"):
        Batch(10, set(), together).isolated()


def test_a_failure_that_is_not_a_records_fault_ends_the_search() -> None:
    runs: list[tuple[int, int]] = []

    def run(first: int, end: int) -> None:
        runs.append((first, end))
        raise Unavailable("away") if len(runs) == 3 else DataError("bad")

    with pytest.raises(Unavailable, match="away"):
        isolate(8, run, Budget(), REASON, lambda error: isinstance(error, DataError))
    assert len(runs) == 3


def test_the_search_ends_when_too_much_fails_and_names_the_remedy() -> None:
    batch = Batch(1000, set(range(1000)))
    with pytest.raises(ProgramError, match="too many records of one batch fail") as caught:
        batch.isolated(Budget(50))
    assert "The last one: record " in str(caught.value)
    assert batch.runs == 50
