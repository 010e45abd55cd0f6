"""The demo on any kind of cluster: the job, its progress, the kill of the leader, the verdict."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

from lockgate_common.amounts import counted
from lockgate_proto.messages import JobEvent, JobGraph, JobState, JobStatus, LeaderRecord

from lockgate.client import Client
from lockgate.errors import UserError
from lockgate_devtools.demo import screen, wordcount
from lockgate_devtools.demo.corpus import Corpus
from lockgate_devtools.drill.model import Target
from lockgate_devtools.drill.observer import JobObserver
from lockgate_devtools.drill.timeline import Before, assemble, checkpoint_counts, is_survived

CHECKPOINT_INTERVAL_MS = 500
_KEY = "demo-word-count"
_KILL_AT_SHARE = 0.4
_BATCHES = 60  # minimum number of micro-batches: otherwise a fast machine has no "middle" in which to kill
_JOB_LIMIT_S = 600.0
_LINE_EVERY_S = 1.0

Killer = Callable[[LeaderRecord], str]
"""Kills the leader with SIGKILL and returns a description of it. Raises UserError."""


def say(line: str) -> None:
    """Prints one line of the demo's output."""
    print(line, flush=True)


def micro_batches(corpus: Corpus) -> dict[str, int]:
    """Task manager settings: small micro-batches and frequent counters, so that the progress is visible."""
    size = min(max(corpus.total_bytes // _BATCHES, 64 * 1024), 8 * 1024 * 1024)
    return {"max_batch_bytes": size, "heartbeat_ms": 100}


class DemoRun:
    """Counts the words of `corpus` on a running cluster and kills its leader in the middle: `was_killed`."""

    def __init__(self, corpus: Corpus, kill: Killer) -> None:
        self._kill = kill
        self._started = time.monotonic()
        self._last_line = 0.0
        self._lines = sum(_count_lines(path) for path in corpus.folder.iterdir())
        self._observer: JobObserver | None = None
        self.was_killed = False

    def count(self, client: Client, graph: JobGraph) -> None:
        """Runs the job to its end, with the leader killed in the middle. Raises UserError when it does not finish."""
        say("submitting the word count; the leader is killed when two fifths of the lines are read")
        client.submit(_KEY, graph)
        observer = self._observer = JobObserver(client, _KEY, self._on_update)
        try:
            observer.wait_for(lambda: self._is_middle(observer), _JOB_LIMIT_S)
            if observer.has_ended:
                say("the job has ended before the leader could be killed: give it more text (--input, make: INPUT=)")
            else:
                self._kill_leader(client, observer)
            if not observer.wait_for(lambda: observer.has_ended, _JOB_LIMIT_S):
                raise UserError(f"the job has not ended after {_JOB_LIMIT_S:g} s")
            status = observer.status
            assert status is not None
            if status.state != JobState.FINISHED:
                raise UserError(f"the job is {status.state.name}: {status.error}")
            self._show(status)
            checkpoints = counted(checkpoint_counts(observer.events)[0], "checkpoint")
            say(f"finished with {counted(status.restarts, 'restart')}, {checkpoints}")
        finally:
            observer.close()

    def _is_middle(self, observer: JobObserver) -> bool:
        """Enough is read and there is at least one snapshot to restore; or the input ended too soon."""
        status = observer.status
        if status is None:
            return False
        read = screen.records_out(status, wordcount.SOURCE)
        some = checkpoint_counts(observer.events)[0] > 0 and read >= _KILL_AT_SHARE * self._lines
        return some or status.state == JobState.FINISHING

    def _kill_leader(self, client: Client, observer: JobObserver) -> None:
        status = observer.status
        assert status is not None
        if status.state == JobState.FINISHING:
            say("the input was read faster than snapshots are taken: the leader is killed before its last snapshot")
        leader = client.leader()
        before = Before(time.time_ns() // 1000, leader.token, status.attempt)
        victim = self._kill(leader)
        self.was_killed = True
        say(f"SIGKILL for the leader {leader.address}, {victim}")

        def survived() -> bool:
            return is_survived(assemble(Target.LEADER, leader.pid, before, observer.events))

        observer.wait_for(survived, 60)
        for line in screen.timeline(before, victim, observer.events):
            say(line)

    def _on_update(self, update: JobStatus | JobEvent) -> None:
        if isinstance(update, JobStatus) and time.monotonic() - self._last_line >= _LINE_EVERY_S:
            self._show(update)

    def _show(self, status: JobStatus) -> None:
        self._last_line = time.monotonic()
        checkpoints = checkpoint_counts(self._observer.events)[0] if self._observer else 0
        say(screen.progress(status, time.monotonic() - self._started, self._lines, checkpoints))


def compare_with_batch(database: Path, batch: dict[str, int], *, was_killed: bool) -> bool:
    """Compares the job's output with plain Spark's counts; True when all are equal. Raises UserError."""
    try:
        result = wordcount.compare(wordcount.read_counts(database), batch)
    except sqlite3.Error as error:
        raise UserError(f"the job's result cannot be read: {error}") from error
    for line in screen.verdict(result, was_killed=was_killed):
        say(line)
    return result.is_exact


def _count_lines(path: Path) -> int:
    data = path.read_bytes()
    return data.count(b"\n") + (not data.endswith(b"\n") and bool(data))
