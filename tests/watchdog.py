"""Ends the process of a test that hangs where no signal reaches it; the hooks are imported by `tests/conftest.py`.

pytest-timeout raises in the main thread, and code outside Python can hold that up for ever. Its alarm and pytest's own
`faulthandler_timeout` are both called off when a test fails, before its fixtures are torn down; this one is not.
"""

from __future__ import annotations

import faulthandler
import os
import sys
from collections.abc import Iterator

import pytest

GRACE_S = 120.0
"""So much longer than the timeout of a test this waits, and so long for a process to end after its last test."""
_STDERR = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    """Keeps the real standard error: while a test runs, its number stands for a file of pytest."""
    assert sys.__stderr__ is not None
    config.stash[_STDERR] = os.dup(sys.__stderr__.fileno())


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Counts from the beginning of a test, with its fixtures."""
    _start(item.config, _timeout_s(item) + GRACE_S)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(trylast=True)
def pytest_exception_interact(node: pytest.Item | pytest.Collector) -> None:
    """Counts from here once more: pytest has just called off every such timer."""
    if isinstance(node, pytest.Item):
        _start(node.config, GRACE_S)


@pytest.hookimpl(tryfirst=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """What is left has to end by itself: threads that are no daemons, and what was registered with atexit."""
    _start(config, GRACE_S)


def _start(config: pytest.Config, seconds: float) -> None:
    """Until it is called again. After so many seconds every thread is printed and the process ends, with status 1."""
    faulthandler.dump_traceback_later(seconds, exit=True, file=config.stash[_STDERR])


def _timeout_s(item: pytest.Item) -> float:
    marker = item.get_closest_marker("timeout")
    found = marker.args[0] if marker is not None and marker.args else item.config.getini("timeout")
    return float(found)
