"""Tags and descriptions of Spark jobs, per thread."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from lockgate_proto.messages import AttemptId, SubtaskId
from lockgate_taskmanager.spark.errors import EngineError, explained
from lockgate_taskmanager.spark.jobs import Jobs, description


class Context:
    """Keeps what a SparkContext keeps for a thread, and counts the round trips."""

    def __init__(self) -> None:
        self.tags: set[str] = set()
        self.text: str | None = None
        self.calls = 0

    def addJobTag(self, tag: str) -> None:
        self.calls += 1
        self.tags.add(tag)

    def removeJobTag(self, tag: str) -> None:
        self.tags.discard(tag)

    def setInterruptOnCancel(self, on: bool) -> None:
        assert on

    def setJobDescription(self, text: str | None) -> None:
        self.calls += 1
        self.text = text


class Classic:
    def __init__(self) -> None:
        self.sparkContext = Context()


class Connect:
    """A Connect session, as far as it has tags and settings."""

    def __init__(self) -> None:
        self.tags: set[str] = set()
        self.settings: dict[str, str] = {}
        self.is_lost = False
        self.calls = 0

    @property
    def conf(self) -> Connect:
        return self

    def set(self, name: str, value: str) -> None:
        self.calls += 1
        if self.is_lost:
            raise ConnectionError("no server")
        self.settings[name] = value

    def addTag(self, tag: str) -> None:
        assert "," not in tag
        self.tags.add(tag)

    def removeTag(self, tag: str) -> None:
        self.tags.remove(tag)


Connect.__module__ = "pyspark.sql.connect.session"


def test_descriptions() -> None:
    subtask = SubtaskId(AttemptId("orders", "r", 3), "count", 1)
    assert description(subtask, 0) == "orders count[1] attempt 3, before the first checkpoint"
    assert description(subtask, 41) == "orders count[1] attempt 3, after checkpoint 41"
    assert description(subtask, 0, is_warmup=True) == "warm-up of orders count[1]"


def test_a_batch_costs_no_round_trip() -> None:
    session: Any = Classic()
    jobs = Jobs(session, "tag", "one")
    jobs.adopt_thread()
    before = session.sparkContext.calls
    jobs.adopt_thread()
    assert session.sparkContext.calls == before
    assert (session.sparkContext.tags, session.sparkContext.text) == ({"tag"}, "one")
    jobs.describe("two")
    jobs.adopt_thread()
    assert session.sparkContext.text == "two"
    jobs.leave_thread()
    assert (session.sparkContext.tags, session.sparkContext.text) == (set(), None)


def test_programs_that_share_a_thread_take_turns() -> None:
    session: Any = Classic()
    first, second = Jobs(session, "a", "first"), Jobs(session, "b", "second")
    for jobs, text in ((first, "first"), (second, "second"), (first, "first")):
        jobs.adopt_thread()
        assert session.sparkContext.text == text
    second.leave_thread()
    assert session.sparkContext.text == "first", "whoever leaves does not wipe out another's name"
    first.leave_thread()
    assert session.sparkContext.text is None


def test_another_thread_is_named_again() -> None:
    session: Any = Classic()
    jobs = Jobs(session, "tag", "one")
    jobs.adopt_thread()
    session.sparkContext.text = None  # each thread has its own
    thread = threading.Thread(target=jobs.adopt_thread)
    thread.start()
    thread.join()
    assert session.sparkContext.text == "one"


def test_a_connect_session_has_the_description_among_its_settings() -> None:
    session: Any = Connect()
    jobs = Jobs(session, "tag", "words source[0] attempt 1, after checkpoint 1")
    for _ in range(3):
        jobs.adopt_thread()
    assert session.tags == {"tag"}
    assert session.settings == {"spark.job.description": "words source[0] attempt 1, after checkpoint 1"}
    assert session.calls == 1, "a batch costs no round trip"
    jobs.describe("other")
    jobs.adopt_thread()
    assert session.settings == {"spark.job.description": "other"}
    jobs.leave_thread()
    assert (session.tags, session.calls) == (set(), 2)


def test_a_lost_server_is_recognised_by_the_query_and_not_by_its_name() -> None:
    session: Any = Connect()
    session.is_lost = True
    jobs = Jobs(session, "tag", "one")
    jobs.adopt_thread()
    assert session.tags == {"tag"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.9 than that in driver: 3.11, PySpark",
            "operator 'x': the executors' Python is 3.9, and the task manager's 3.11; install",
        ),
        (
            'executor 0): java.io.IOException: Cannot run program "/nowhere/python": error=2, No such file',
            "operator 'x': the executors' Python does not exist: /nowhere/python; install",
        ),
    ],
)
def test_executors_with_another_python_are_no_fault_of_the_job(text: str, words: str) -> None:
    from pyspark.errors import PythonException

    with pytest.raises(EngineError) as caught, explained("operator 'x'"):
        raise PythonException(text)
    assert str(caught.value).startswith(words)
