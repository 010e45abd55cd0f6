"""When cancelled subtasks are interrupted again."""

from __future__ import annotations

import threading
from itertools import pairwise

from lockgate_taskmanager.runtime.ending import CLOSE_S, LONG_PAUSE_S, SHORT_PAUSE_S, end_in_background, pause_s

WAIT_S = 60.0


def interruptions(until_s: float) -> list[float]:
    """Seconds from the first one, if everything else takes no time."""
    found = [0.0]
    while found[-1] < until_s:
        found.append(found[-1] + pause_s(found[-1]))
    return found


def _pauses(times: list[float]) -> list[float]:
    return [later - at for at, later in pairwise(times)]


def test_a_job_that_starts_within_the_first_second_is_interrupted_at_once() -> None:
    assert max(_pauses([at for at in interruptions(1) if at <= CLOSE_S])) < SHORT_PAUSE_S + 0.001


def test_code_of_the_author_has_time_to_clean_up_after_each_interruption() -> None:
    """After the first second an interruption raises an exception there."""
    late = [at for at in interruptions(10) if at >= 1]
    assert min(_pauses(late)) > LONG_PAUSE_S - 0.001
    assert late[0] < 2


class Planning:
    """A subtask that starts a Spark job when it was interrupted some times already; the next one ends it."""

    def __init__(self, misses: int) -> None:
        self.misses = misses
        self.over = threading.Event()

    def interrupt(self) -> None:
        self.misses -= 1
        if self.misses < 0:
            self.over.set()

    def join(self, timeout_s: float) -> bool:
        return self.over.wait(timeout_s)


def test_subtasks_are_interrupted_until_all_have_ended() -> None:
    tasks = [Planning(0), Planning(3), Planning(7)]
    end_in_background(tasks, "test")
    assert all(task.over.wait(WAIT_S) for task in tasks)
