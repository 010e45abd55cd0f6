"""`python -m lockgate.demo [--input FOLDER]`: see `make demo`."""

from __future__ import annotations

import argparse
import os
import signal
import sqlite3
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from lockgate_proto.messages import JobEvent, JobState, JobStatus

from lockgate.client import Client
from lockgate.demo import screen, wordcount
from lockgate.demo.batch import count_with_spark
from lockgate.demo.corpus import Corpus, stage
from lockgate.drill.model import Target
from lockgate.drill.observer import JobObserver
from lockgate.drill.timeline import Before, assemble, checkpoint_counts, is_survived
from lockgate.errors import UserError
from lockgate.local import LocalCluster
from lockgate.local.foreground import Stopped, stopped_by_signals
from lockgate.local.work_folder import WorkFolder

_KEY = "demo-word-count"
_CHECKPOINT_INTERVAL_MS = 500
_KILL_AT_SHARE = 0.4
_BATCHES = 60  # so many micro-batches at least, else a fast machine has no "middle" to kill in
_JOB_LIMIT_S = 600.0
_LINE_EVERY_S = 1.0


def main(arguments: Sequence[str]) -> int:
    """Runs the demo. Returns 0 when every count is right, 1 when one is wrong, 2 when it could not be carried out."""
    parser = argparse.ArgumentParser(
        prog="python -m lockgate.demo",
        description="Counts words on a cluster of real processes, kills the leader in the middle, and compares every "
        "count with a plain Spark batch job over the same files.",
    )
    parser.add_argument("--input", metavar="FOLDER", help="text files to count (default: Python's standard library)")
    chosen = parser.parse_args(arguments)
    source = Path(chosen.input).expanduser() if chosen.input else None
    try:
        with stopped_by_signals(), WorkFolder("lockgate-demo-", _say) as work:
            is_exact = _Demo(work.path, source).run()
            if not is_exact:
                work.keep()
        return 0 if is_exact else 1
    except Stopped:
        return 130
    except (UserError, OSError) as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return 2


class _Demo:
    def __init__(self, folder: Path, source: Path | None) -> None:
        self._folder = folder
        self._source = source
        self._started = time.monotonic()
        self._last_line = 0.0
        self._lines = 0
        self._observer: JobObserver | None = None

    def run(self) -> bool:
        """True when every count is right."""
        corpus = stage(self._source, self._folder / "input")
        self._lines = sum(_count_lines(path) for path in corpus.folder.iterdir())
        _say(f"input: {corpus.title}: {corpus.files:,} files, {corpus.total_bytes / 1e6:.1f} MB")
        _say("starting ZooKeeper, 2 coordinators and 2 task managers, each a process of its own ...")
        with LocalCluster(self._folder / "cluster", taskmanager=_batches(corpus)) as cluster:
            _say(f"ready: coordinators {', '.join(cluster.coordinators)}, ZooKeeper {cluster.zookeeper}")
            with Client(cluster.coordinators, cluster.zookeeper, credentials=cluster.credentials()) as client:
                self._count(client, corpus)
        _say("now the same counts by a plain Spark batch job ...")
        log = self._folder / "cluster" / "logs" / "spark-batch.log"
        batch = count_with_spark(corpus.folder, self._folder / "batch.parquet", log)
        try:
            result = wordcount.compare(wordcount.read_counts(self._folder / "words.db"), batch)
        except sqlite3.Error as error:
            raise UserError(f"the job's result cannot be read: {error}") from error
        for line in screen.verdict(result):
            _say(line)
        return result.is_exact

    def _count(self, client: Client, corpus: Corpus) -> None:
        """Runs the job to its end, with the leader's death in the middle."""
        _say("submitting the word count; the leader is killed when two fifths of the lines are read")
        graph = wordcount.graph(corpus.folder, self._folder / "words.db", _CHECKPOINT_INTERVAL_MS)
        client.submit(_KEY, graph)
        observer = self._observer = JobObserver(client, _KEY, self._on_update)
        try:
            observer.wait_for(lambda: self._is_middle(observer), _JOB_LIMIT_S)
            if not observer.has_ended:
                self._kill_leader(client, observer)
            if not observer.wait_for(lambda: observer.has_ended, _JOB_LIMIT_S):
                raise UserError(f"the job has not ended after {_JOB_LIMIT_S:g} s")
            status = observer.status
            assert status is not None
            if status.state != JobState.FINISHED:
                raise UserError(f"the job is {status.state.name}: {status.error}")
            self._show(status)
            _say(f"finished with {status.restarts} restart(s), {checkpoint_counts(observer.events)[0]} checkpoints")
        finally:
            observer.close()

    def _is_middle(self, observer: JobObserver) -> bool:
        """Enough is read and at least one snapshot is there to go back to; or the end has come too fast."""
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
            _say("the input was read faster than snapshots are taken: the leader dies before its last snapshot")
        leader = client.leader()
        before = Before(time.time_ns() // 1000, leader.token, status.attempt)
        os.kill(leader.pid, signal.SIGKILL)
        _say(f"SIGKILL for the leader {leader.address}, pid {leader.pid}")

        def survived() -> bool:
            return is_survived(assemble(Target.LEADER, leader.pid, before, observer.events))

        observer.wait_for(survived, 60)
        for line in screen.timeline(before, leader.pid, observer.events):
            _say(line)

    def _on_update(self, update: JobStatus | JobEvent) -> None:
        if isinstance(update, JobStatus) and time.monotonic() - self._last_line >= _LINE_EVERY_S:
            self._show(update)

    def _show(self, status: JobStatus) -> None:
        self._last_line = time.monotonic()
        checkpoints = checkpoint_counts(self._observer.events)[0] if self._observer else 0
        _say(screen.progress(status, time.monotonic() - self._started, self._lines, checkpoints))


def _say(line: str) -> None:
    print(line, flush=True)


def _batches(corpus: Corpus) -> dict[str, int]:
    """Task manager settings: small micro-batches and frequent counters, so that there is something to watch."""
    size = min(max(corpus.total_bytes // _BATCHES, 64 * 1024), 8 * 1024 * 1024)
    return {"max_batch_bytes": size, "heartbeat_ms": 100}


def _count_lines(path: Path) -> int:
    data = path.read_bytes()
    return data.count(b"\n") + (not data.endswith(b"\n") and bool(data))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
