"""A key and window that may be too large for memory is named, before its call and in the error."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from lockgate_taskmanager.spark.keyed import large_window
from lockgate_taskmanager.spark.keyed.large_window import large_window_named
from lockgate_taskmanager.state.contents.window_contents import Calls
from lockgate_taskmanager.task.program import Canceled, DataError, Defect, ProgramError, UserCodeFailed

WHERE = "operator 'paths' (id 'paths')"


@pytest.fixture(autouse=True)
def small_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_window, "LARGE_BYTES", 100)


def calls(*counts: int) -> Calls:
    """One call with so many records of 13 bytes for each of the keys a, b, ..."""
    numbers = np.repeat(np.arange(len(counts)), counts)
    rows = pa.table({"key": pa.array(["abcd"[number] for number in numbers]), "a": pa.array(numbers)})
    starts = 1_700_000_000_000 + numbers * 0
    return Calls(rows, numbers, starts, starts + 60_000)


def failing(error: Exception, *some: Calls) -> Exception:
    with pytest.raises((type(error), UserCodeFailed)) as raised, large_window_named(some, ("key",), WHERE):
        raise error
    return raised.value


@pytest.mark.parametrize("error", [MemoryError("no"), pa.ArrowInvalid("offset overflow"), Defect("worker exited")])
def test_an_error_of_a_large_call_says_which_key_and_window_it_was_and_what_to_do(error: Exception) -> None:
    found = failing(error, calls(1), calls(2, 9, 1))
    assert isinstance(found, UserCodeFailed)
    for part in (
        "key 'b' has 9 records (",
        "2023-11-14 22:13:20.000000 to 2023-11-14 22:14:20.000000 UTC",
        str(error),
        "finer key",
    ):
        assert part in str(found)
    assert str(found).startswith(WHERE)


@pytest.mark.parametrize("error", [Canceled("end"), DataError("KeyError: 'x'"), OSError("away")])
def test_an_error_with_another_reason_stays_what_it_is(error: Exception) -> None:
    assert failing(error, calls(9)) is error


def test_a_function_that_runs_out_of_memory_is_explained_too() -> None:
    assert isinstance(failing(DataError("the function raised MemoryError"), calls(9)), UserCodeFailed)


@pytest.mark.parametrize("some", [(calls(2, 3),), (calls(3, 3, 3, 3),), (), (calls(1), calls(2))])
def test_small_calls_are_not_named(some: tuple[Calls, ...], caplog: pytest.LogCaptureFixture) -> None:
    """However many of them there are."""
    error = Defect("worker exited")
    assert failing(error, *some) is error
    assert not caplog.records


def test_a_large_call_that_works_is_named_in_the_log_beforehand(caplog: pytest.LogCaptureFixture) -> None:
    with large_window_named((calls(9),), ("key",), WHERE):
        (record,) = caplog.records
    assert "key 'a' has 9 records" in record.getMessage()


def test_several_keys_are_shown_together() -> None:
    with pytest.raises(ProgramError) as raised, large_window_named((calls(0, 9),), ("key", "a"), WHERE):
        raise Defect("no")
    assert "key ('b', 1) has 9 records" in str(raised.value)
