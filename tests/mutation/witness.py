"""A pytest plugin: which of the tests that were asked for have failed, and by what, for the runner to judge.

Whoever reads only "failed" takes a mutant that is broken itself for one that was noticed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import pytest

_HERE = Path(__file__).resolve().parent
_OWN_FAULTS = (AttributeError, NameError, ImportError, TypeError)


@dataclass(frozen=True)
class Failure:
    """A test that failed. raised: names of the exceptions that ended it. broken: faults of the mutant's own code.

    phase: of pytest, "call" for the test itself.
    """

    test: str
    raised: tuple[str, ...]
    broken: tuple[str, ...]
    phase: str = "call"


def failure_of(test: str, error: BaseException, phase: str = "call") -> Failure:
    """What ended a test, read from its exception."""
    leaves = list(_leaves(error))
    chained = (item for leaf in leaves for item in _chain(leaf))
    broken = tuple(
        f"{type(item).__name__}: {item}"
        for item in chained
        if isinstance(item, _OWN_FAULTS) and _is_in_mutant(item.__traceback__)
    )
    return Failure(test, tuple(dict.fromkeys(_name(leaf) for leaf in leaves)), broken, phase)


class Witness:
    """asked: the tests that were asked for, as on the command line. Of each the first failure is kept."""

    def __init__(self, asked: Sequence[str], *, stops_early: bool) -> None:
        """stops_early: once a test that was asked for has failed, its other parameters are left out."""
        self.passed = dict.fromkeys(asked, 0)
        self.failures: dict[str, Failure] = {}
        self._stops_early = stops_early

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Skips what can say nothing new."""
        if self._stops_early and all(name in self.failures for name in self._asked_for(item.nodeid)):
            pytest.skip("another one has failed")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
        """Notes how a phase of a test has ended."""
        error = call.excinfo.value if call.excinfo is not None else None
        for name in self._asked_for(item.nodeid):
            if error is None:
                self.passed[name] += call.when == "call"
            elif not isinstance(error, pytest.skip.Exception):
                self.failures.setdefault(name, failure_of(item.nodeid, error, call.when))
        return (yield)

    def _asked_for(self, test: str) -> list[str]:
        return [name for name in self.passed if test == name or test.startswith((f"{name}[", f"{name}::"))]


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for exception in error.exceptions:
            yield from _leaves(exception)
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
