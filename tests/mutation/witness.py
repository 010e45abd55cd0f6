"""A pytest plugin: notes of every test that fails what it failed by, for the runner to judge.

Whoever reads only "failed" takes a mutant that is broken itself for one that was noticed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import pytest

RAISED = "raised"  # names of the exceptions that ended the test
BROKEN = "broken"  # what the mutant's own code got wrong
_HERE = Path(__file__).resolve().parent
_OWN_FAULTS = (AttributeError, NameError, ImportError, TypeError)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Adds properties to the item; the JUnit report carries them."""
    if call.excinfo is not None and not isinstance(call.excinfo.value, pytest.skip.Exception):
        leaves = list(_leaves(call.excinfo.value))
        item.user_properties.append((RAISED, " ".join(dict.fromkeys(_name(one) for one in leaves))))
        for one in (error for leaf in leaves for error in _chain(leaf)):
            if isinstance(one, _OWN_FAULTS) and _is_in_mutant(one.__traceback__):
                item.user_properties.append((BROKEN, f"{type(one).__name__}: {one}"))
    return (yield)


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from _leaves(one)
    else:
        yield error


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: list[BaseException] = []
    at: BaseException | None = error
    while at is not None and at not in seen:
        seen.append(at)
        yield at
        at = at.__cause__ or at.__context__


def _name(error: BaseException) -> str:
    """An AssertionError of any kind, and `pytest.fail` and `pytest.raises` that got nothing, are assertions."""
    is_assertion = isinstance(error, AssertionError | pytest.fail.Exception)
    return AssertionError.__name__ if is_assertion else type(error).__name__


def _is_in_mutant(traceback: TracebackType | None) -> bool:
    """Whether the innermost frame is a mutant's."""
    last = None
    while traceback is not None:
        last, traceback = traceback, traceback.tb_next
    return last is not None and Path(last.tb_frame.f_code.co_filename).resolve().parent == _HERE
