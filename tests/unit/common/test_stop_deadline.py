"""The end of a process whose stop hangs."""

from __future__ import annotations

import subprocess
import sys
import threading

from lockgate_common.stop_deadline import ends_within

HANGS = """
import concurrent.futures, threading
from lockgate_common.stop_deadline import ends_within

def hung_storage():
    threading.Event().wait()

pool = concurrent.futures.ThreadPoolExecutor()
pool.submit(hung_storage)
with ends_within(0.2):
    pool.shutdown(wait=True)
"""


def test_a_stop_that_hangs_ends_the_process_and_says_where() -> None:
    ended = subprocess.run([sys.executable, "-c", HANGS], capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 1
    assert "has not stopped within 0.2 s" in ended.stderr
    assert "in hung_storage" in ended.stderr


def test_a_stop_in_time_leaves_the_process_alone_and_no_thread_behind() -> None:
    before = threading.active_count()
    with ends_within(3_600):
        assert threading.active_count() == before + 1
    assert threading.active_count() == before
