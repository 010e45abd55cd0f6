"""The streaming program of the Flink paper, on real processes that are killed in the middle.

Lines from a socket, split, keyed, counted in windows of 5 s every 1 s of processing time. A socket cannot be read
again, so exactness over replays is shown with another source.
"""

from __future__ import annotations

import itertools
import random
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from lockgate_proto.messages import JobEventKind, JobGraph, JobState

from examples.frame.example import json_rows
from examples.frame.feed import Feed
from examples.runnable.window_word_count import make_lines, problems_of, word_count
from lockgate import Job, count, session, sum_, tumbling
from tests.chaos.testing_cluster import TestingCluster
from tests.chaos.watched_job import WatchedJob
from tests.committed import rows_of
from tests.drained import generated

pytestmark = [pytest.mark.chaos, pytest.mark.rotating]

PARTITIONS, RATE, KEYS = 4, 1_500.0, 37


@pytest.fixture
def feed() -> Iterator[Feed]:
    with Feed() as made:
        yield made


def emitted(folder: Path) -> Counter[str]:
    """Sum over all visible windows of each word."""
    found: Counter[str] = Counter()
    for row in json_rows(folder.glob("part-*")):
        found[row["word"]] += row["n"]
    return found


def test_the_papers_program_loses_nothing_when_the_leader_is_killed(testing: TestingCluster, feed: Feed) -> None:
    key = "window-word-count-leader"
    folder = testing.make_folder(key)
    with WatchedJob(testing, key, word_count(key, feed.port, folder).graph()) as job:
        feed.send(make_lines(random.Random(1)))
        testing.wait_until(lambda: bool(emitted(folder)), "the first windows are shown")
        testing.kill_leader()
        job.wait_event(JobEventKind.ATTEMPT_ADOPTED)
        before = len(feed.sent)
        testing.wait_until(lambda: f"#{before}" in emitted(folder), "lines sent after the kill are shown")
        feed.end()
        job.wait_finished()
    assert problems_of(feed.sent, folder, feed.connections) == []
    assert feed.connections == 1, "the socket was read on"


def test_the_papers_program_emits_no_window_twice_when_a_task_manager_is_killed(
    testing: TestingCluster, feed: Feed
) -> None:
    """The lines that it had read since the last checkpoint are in no window, all others in all of their windows."""
    key = "window-word-count-taskmanager"
    folder = testing.make_folder(key)
    with WatchedJob(testing, key, word_count(key, feed.port, folder).graph()) as job:
        feed.send(make_lines(random.Random(2)))
        testing.wait_until(lambda: bool(emitted(folder)), "the first windows are shown")
        reader = next(place for place in job.status.subtasks if place.vertex_id == "read_socket-1")
        testing.cluster.kill("taskmanager", int(reader.task_manager_id.removeprefix("taskmanager-")))
        testing.wait_until(lambda: feed.connections >= 2, "the job has connected again")
        before = len(feed.sent)
        testing.wait_until(lambda: f"#{before}" in emitted(folder), "lines of the second connection are shown")
        feed.end()
        job.wait_finished()
    assert problems_of(feed.sent, folder, feed.connections) == []


def test_windows_over_a_silent_socket_end_by_themselves(testing: TestingCluster, feed: Feed) -> None:
    key = "window-word-count-silent"
    folder = testing.make_folder(key)
    silence = threading.Event()
    lines = list(itertools.islice(make_lines(random.Random(3)), 40))

    def then_silence() -> Iterator[str]:
        yield from lines
        silence.wait()

    try:
        with WatchedJob(testing, key, word_count(key, feed.port, folder).graph()) as job:
            feed.send(then_silence())
            testing.wait_until(lambda: problems_of(lines, folder, 1) == [], "every window is shown")
            assert job.status.state is JobState.RUNNING
            silence.set()
            job.wait_finished()
    finally:
        silence.set()
    assert problems_of(lines, folder, feed.connections) == []


def replayable(folder: Path, state: str, mode: str) -> JobGraph:
    """Records that are read again after a failure, and windows that contain each once."""
    options = {"state": state, "checkpoint_mode": mode, "leader_failover": "restart"}
    job = Job("processing time", parallelism=2, checkpoint_interval_ms=300, **options)  # type: ignore[arg-type]
    rows = job.generate(rate=RATE, partitions=PARTITIONS).select(f"sequence % {KEYS} AS k", "sequence").key_by("k")
    sums = {"n": count(), "total": sum_("sequence")}
    rows.window(tumbling("700 ms"), time="processing").aggregate(**sums).write_parquet(folder / "tumbling")
    rows.window(session("40 ms"), time="processing").aggregate(**sums).write_parquet(folder / "sessions")
    return job.graph()


@pytest.mark.parametrize(
    ("victim", "state", "mode"),
    [
        ("leader", "filesystem", "exactly_once"),
        ("taskmanager", "rocksdb", "unaligned"),
        pytest.param("taskmanager", "filesystem", "exactly_once", marks=pytest.mark.soak),
        pytest.param("leader", "rocksdb", "unaligned", marks=pytest.mark.soak),
    ],
)
def test_replayed_records_are_in_one_window_each(testing: TestingCluster, victim: str, state: str, mode: str) -> None:
    key = f"processing-time-{victim}-{state}"
    folder = testing.make_folder(key)
    with WatchedJob(testing, key, replayable(folder, state, mode)) as job:
        job.wait_checkpoints(2)
        if victim == "leader":
            testing.kill_leader()
        else:
            testing.cluster.kill("taskmanager", 0)
        job.wait_checkpoints(2, attempt=2)
        (read,) = job.drain().values()
    expected: dict[int, tuple[int, int]] = {}
    for sequence in itertools.chain.from_iterable(map(range, generated(read, PARTITIONS))):
        n, total = expected.get(sequence % KEYS, (0, 0))
        expected[sequence % KEYS] = (n + 1, total + sequence)
    for kind in ("tumbling", "sessions"):
        found: dict[int, tuple[int, int]] = {}
        windows = Counter[tuple[int, object]]()
        for row in rows_of(folder / kind):
            windows[row["k"], row["window_start"]] += 1
            n, total = found.get(row["k"], (0, 0))
            found[row["k"]] = (n + row["n"], total + row["total"])
        assert found == expected, kind
        assert set(windows.values()) == {1}, f"a window of {kind} was emitted twice"
        assert len(windows) > KEYS, "there is one window only"
