"""A run goes on when one of pytest's processes ends in a test; the hook is imported by `tests/conftest.py`.

`tests/watchdog.py` ends one whose test hangs. The scheduler of pytest-xdist 3.8 that keeps the tests of a file together
then waits for ever: the replacement gets work that is done already, or a single test, and it begins a test only once it
knows the next one. It also runs the test that has ended the process again, which ends the next one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler.protocol import Scheduling
    from xdist.workermanage import WorkerController

_AT_HAND = 2
"""Tests that a process has at least, unless there are no more: one to run, and the one after it. More than that would
keep another process without work at the end."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling | None:
    """In place of that of loadfile; None for the others that are used here, which have no such defect."""
    from xdist.scheduler import LoadFileScheduling

    if config.getvalue("dist") != "loadfile":
        return None
    return type("Surviving", (_Surviving, LoadFileScheduling), {})(config, log)


class _Surviving:
    """Mixed into a LoadScopeScheduling."""

    assigned_work: dict[
        WorkerController, dict[str, dict[str, bool]]
    ]  # for each process: unit, test, whether it is done
    registered_collections: dict[WorkerController, list[str]]
    workqueue: Any  # an OrderedDict of units

    def remove_node(self, node: WorkerController) -> str | None:
        """Takes a process out that has ended. Returns the test that it was in, which counts as done and has failed."""
        units = self.assigned_work.pop(node)
        left = {unit: {name: done for name, done in tests.items() if not done} for unit, tests in units.items()}
        crashed = next((name for tests in left.values() for name in tests), None)
        for unit, tests in reversed(left.items()):
            tests.pop(crashed, None)
            if tests:
                self.workqueue[unit] = tests
                self.workqueue.move_to_end(unit, last=False)
        for other in self.assigned_work:
            self._reschedule(other)
        return crashed

    def _reschedule(self, node: WorkerController) -> None:
        """Gives a process what it needs to go on, or tells it that there is no more."""
        if node not in self.registered_collections:
            return  # it is still collecting, and asks when it is done
        while not node.shutting_down and self._pending_of(self.assigned_work[node]) < _AT_HAND:
            super()._reschedule(node)
