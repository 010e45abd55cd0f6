"""SIGTERM and SIGINT of a process that has more threads than one."""

from __future__ import annotations

import os
import queue
import signal
import threading

import pytest
from lockgate_common.stop_signals import stop_signals

WAIT_S = 120.0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_handled_although_another_thread_was_interrupted_and_the_main_one_is_blocked(
    number: signal.Signals,
) -> None:
    received: queue.SimpleQueue[int] = queue.SimpleQueue()
    is_over = threading.Event()
    other = threading.Thread(target=is_over.wait)
    other.start()
    try:
        with stop_signals(received.put):
            later = threading.Timer(0.2, signal.pthread_kill, (other.ident, number))  # when the main one is in get()
            later.start()
            assert received.get(timeout=WAIT_S) == number
            later.join()
    finally:
        is_over.set()
        other.join()


def test_afterwards_the_former_handlers_are_back_and_no_call_is_made() -> None:
    received: queue.SimpleQueue[int] = queue.SimpleQueue()
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    with stop_signals(received.put):
        os.kill(os.getpid(), signal.SIGINT)
        assert received.get(timeout=WAIT_S) == signal.SIGINT
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before
    assert signal.set_wakeup_fd(-1) == -1
    assert received.empty()


def test_a_hang_up_that_the_process_was_started_to_ignore_stays_ignored() -> None:
    received: queue.SimpleQueue[int] = queue.SimpleQueue()
    former = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as under nohup
    try:
        with stop_signals(received.put, (signal.SIGTERM, signal.SIGHUP)):
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            os.kill(os.getpid(), signal.SIGHUP)
            os.kill(os.getpid(), signal.SIGTERM)
            assert received.get(timeout=WAIT_S) == signal.SIGTERM
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, former)
