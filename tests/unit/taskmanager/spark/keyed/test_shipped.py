"""Functions that a worker unpickles once."""

from __future__ import annotations

import gc
import pickle
import sys

import pytest
from lockgate_taskmanager.spark.keyed.shipped import HELD, LARGEST, MOST, shipped

UNPICKLED: list[int] = []  # the factors


class Times:
    """Multiplies, and notes that it was unpickled."""

    def __init__(self, factor: int, data: bytes = b"") -> None:
        self.factor, self.data = factor, data

    def __call__(self, argument: int) -> int:
        return self.factor * argument

    def __setstate__(self, state: dict[str, int]) -> None:
        self.__dict__.update(state)
        UNPICKLED.append(self.factor)


@pytest.fixture(autouse=True)
def steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A worker before its first task. What it does to set its objects apart."""
    found: list[str] = []
    monkeypatch.setattr(gc, "freeze", lambda: found.append("freeze"))
    monkeypatch.setattr("lockgate_taskmanager.spark.keyed.shipped.import_module", found.append)
    monkeypatch.setitem(sys.modules, HELD, None)  # so that it is removed again
    monkeypatch.delitem(sys.modules, HELD)
    UNPICKLED.clear()
    return found


def call(factor: int) -> int:
    """What a worker does in each task: unpickles what Spark has sent, anew, and calls it."""
    return shipped(pickle.dumps(Times(factor)))(7)  # type: ignore[no-any-return]


def test_the_same_function_is_unpickled_in_the_first_task_only() -> None:
    assert [call(2), call(3), call(2), call(3)] == [14, 21, 14, 21]
    assert UNPICKLED == [2, 3]


def test_functions_of_jobs_that_are_over_are_let_go() -> None:
    for factor in range(MOST):
        call(factor)
    call(0)
    call(MOST)  # takes the place of 1, the one that was not called for the longest time
    assert len(sys.modules[HELD].functions) == MOST
    UNPICKLED.clear()
    call(0)
    assert UNPICKLED == []
    assert call(1) == 7
    assert UNPICKLED == [1]


def test_a_function_with_much_data_does_not_stay_in_the_worker() -> None:
    function = shipped(pickle.dumps(Times(2, bytes(LARGEST))))
    assert [function(7), function(8)] == [14, 16]
    assert UNPICKLED == [2, 2]
    assert not sys.modules[HELD].functions


def test_imports_are_set_apart_from_garbage_once(steps: list[str]) -> None:
    for factor in (2, 2, 3):
        call(factor)
    assert steps == ["pandas", "freeze"], "again and again would keep garbage for ever"


def test_a_function_that_cannot_be_unpickled_is_tried_again() -> None:
    broken = shipped(pickle.dumps(Times(2))[:-5])
    for _ in range(2):
        with pytest.raises(pickle.UnpicklingError):
            broken(7)
    assert call(2) == 14
