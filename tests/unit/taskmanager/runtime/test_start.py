"""Being stopped before this process is registered, and after."""

from __future__ import annotations

import signal
import threading
from queue import SimpleQueue

import pytest
from lockgate_taskmanager.runtime import start as module
from lockgate_taskmanager.runtime.start import Start

WAIT_S = 60.0


class Exit:
    """Stands for the end of the process: the thread that leaves never comes back."""

    def __init__(self) -> None:
        self.code: int | None = None
        self.left = threading.Event()

    def __call__(self, code: int) -> None:
        self.code = code
        self.left.set()
        threading.Event().wait()


def test_a_signal_during_the_start_ends_the_process_with_what_was_made_undone() -> None:
    asked: SimpleQueue[int] = SimpleQueue()
    leave, undone = Exit(), threading.Event()
    start = Start(asked, leave)
    start.set_cleanup(undone.set)
    asked.put(signal.SIGTERM)
    assert leave.left.wait(WAIT_S)
    assert leave.code == 0
    assert undone.is_set()
    blocked = threading.Thread(target=start.over, daemon=True)
    blocked.start()
    blocked.join(0.05)
    assert blocked.is_alive(), "nothing comes of a start that was given up"


def test_cleanup_that_times_out_is_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "UNDO_S", 0.01)
    asked: SimpleQueue[int] = SimpleQueue()
    leave = Exit()
    Start(asked, leave).set_cleanup(lambda: bool(threading.Event().wait()))
    asked.put(signal.SIGINT)
    assert leave.left.wait(WAIT_S)


def test_afterwards_the_serving_process_gets_the_signals() -> None:
    asked: SimpleQueue[int] = SimpleQueue()
    leave = Exit()
    stop = Start(asked, leave).over()
    for number in (signal.SIGTERM, signal.SIGINT):
        asked.put(number)
        assert stop.get(timeout=WAIT_S) == number
    assert leave.code is None
