"""Lines of a socket count at most once when the task manager that reads them dies."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from lockgate_proto.messages import JobState

from examples.frame.feed import Feed
from lockgate import Job
from tests.chaos.testing_cluster import TestingCluster
from tests.drained import patient

pytestmark = [pytest.mark.chaos, pytest.mark.rotating]

KEY = "socket"


@pytest.fixture
def feed() -> Iterator[Feed]:
    """Sends numbered lines, and never a number twice."""
    with Feed() as made:
        made.send(map(str, itertools.count(1)))
        yield made


def line_counts(folder: Path) -> Counter[int]:
    files = folder.glob("part-*.json")
    return Counter(int(json.loads(line)["value"]) for path in files for line in path.read_text().splitlines())


def test_a_task_manager_that_dies_loses_lines_and_doubles_none(
    testing: TestingCluster, feed: Feed, tmp_path: Path
) -> None:
    job = Job(KEY, key=KEY, parallelism=2, checkpoint_interval_ms=300)
    job.read_socket("127.0.0.1", feed.port).rebalance().write_json(tmp_path)
    response = testing.client.submit(KEY, patient(job.graph()))
    assert [text for text in response.warnings if "at most once" in text]
    testing.wait_until(lambda: bool(line_counts(tmp_path)), "lines are shown")
    before = max(line_counts(tmp_path))
    testing.cluster.kill("taskmanager", _reader(testing))
    testing.wait_until(lambda: feed.connections >= 2, "the job has connected again")
    first_of_second = len(feed.sent)
    testing.wait_until(lambda: max(line_counts(tmp_path)) > first_of_second, "lines of the second connection are shown")
    feed.end()
    testing.wait_until(lambda: testing.client.job(KEY).state is JobState.FINISHED, "the end")
    found = line_counts(tmp_path)
    assert set(found.values()) == {1}, "nothing twice"
    assert set(found) <= set(map(int, feed.sent))
    assert found[before], "what was shown stays"
    assert found[int(feed.sent[-1])], "the last line came through"
    assert testing.client.job(KEY).attempt >= 2


def _reader(testing: TestingCluster) -> int:
    """The number of the task manager that runs the source's one subtask."""
    (place,) = [subtask for subtask in testing.client.job(KEY).subtasks if subtask.vertex_id == "read_socket-1"]
    return int(place.task_manager_id.removeprefix("taskmanager-"))
