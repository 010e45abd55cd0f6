"""BackgroundThreads: calls in order, some at a time, and none that keeps the process."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest
from lockgate_proto.messages import AttemptId, JobGraph, SubtaskId
from lockgate_taskmanager.runtime.background import BackgroundThreads
from lockgate_taskmanager.runtime.deployments import DeployedAttempt
from lockgate_taskmanager.spark import user_code
from lockgate_taskmanager.task.program import Canceled

_HUNG = """
import threading
from lockgate_taskmanager.runtime.background import BackgroundThreads

threads, begun = BackgroundThreads(1, "upload"), threading.Event()

def hang():
    begun.set()
    threading.Event().wait()

threads.submit(hang)
begun.wait()
threads.shutdown(wait=False, cancel_futures=True)
"""


def test_calls_run_in_order_and_answer() -> None:
    threads = BackgroundThreads(1, "t")
    done: list[int] = []
    futures = [threads.submit(done.append, number) for number in range(50)]
    failed = threads.submit(int, "x")
    assert [future.result(60) for future in futures] == [None] * 50
    assert done == list(range(50))
    with pytest.raises(ValueError, match="invalid literal"):
        failed.result(60)
    assert threads.submit(int, "7").result(60) == 7, "its threads had nothing left to do and ended"


def test_an_idle_thread_takes_the_next_call() -> None:
    threads = BackgroundThreads(1, "t", idle_s=60)
    first = threads.submit(threading.current_thread).result(60)
    assert threads.submit(threading.current_thread).result(60) is first
    assert first.is_alive()
    threads.shutdown(wait=True)
    assert not first.is_alive(), "it does not wait for the end of its idle time"


def test_calls_at_once_have_threads_beside_an_idle_one() -> None:
    threads, both = BackgroundThreads(2, "t", idle_s=60), threading.Barrier(2)
    threads.submit(int).result(60)
    for future in [threads.submit(both.wait, 60) for _ in range(2)]:
        future.result(60)
    threads.shutdown(wait=True)


def test_exactly_as_many_run_at_a_time_as_configured() -> None:
    threads, both, go = BackgroundThreads(2, "t"), threading.Barrier(3), threading.Event()

    def call() -> None:
        both.wait(60)
        go.wait(60)

    futures = [threads.submit(call) for _ in range(2)]
    third = threads.submit(int)
    both.wait(60)
    assert not third.running()
    assert third.cancel()
    go.set()
    for future in futures:
        future.result(60)


def test_after_the_end_waiting_work_never_begins_and_no_more_is_accepted() -> None:
    threads, begun, go = BackgroundThreads(1, "t"), threading.Event(), threading.Event()

    def call() -> None:
        begun.set()
        go.wait(60)

    running, waiting = threads.submit(call), threads.submit(int)
    assert begun.wait(60)
    threads.shutdown(wait=False, cancel_futures=True)
    assert waiting.cancelled()
    with pytest.raises(RuntimeError, match="are shut down"):
        threads.submit(int)
    go.set()
    threads.shutdown(wait=True)
    assert running.done()


def test_a_call_that_hangs_does_not_keep_the_process() -> None:
    assert subprocess.run([sys.executable, "-c", _HUNG], check=False, timeout=120).returncode == 0


def test_the_authors_code_in_them_is_ended_with_the_attempt() -> None:
    """A sink that never comes back from stage(), and a source that never comes back from splits()."""
    attempt = AttemptId("job", "run", 1)
    deployed = DeployedAttempt(attempt, JobGraph("job"), (SubtaskId(attempt, "count", 0),), user_code.end)
    inside = threading.Barrier(3)

    def endless() -> None:
        with user_code.may_be_ended():
            inside.wait(60)
            while True:
                pass

    calls = [threads.submit(endless) for threads in (deployed.uploads, deployed.discoveries)]
    inside.wait(60)
    deployed.release()
    for call in calls:
        with pytest.raises(Canceled):
            call.result(60)
