"""The drill's pipeline as a job whose result can be checked, watched from its start."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from lockgate_common.storage import locate, read_all
from lockgate_devtools.drill.model import RecordCheck
from lockgate_devtools.drill.observer import JobObserver
from lockgate_devtools.drill.oracle import LedgerOracle, check_totals
from lockgate_devtools.drill.pipeline import DrillPipeline
from lockgate_proto.messages import (
    CompletedCheckpoint,
    JobEventKind,
    JobGraph,
    JobState,
    JobStatus,
    LeaderFailover,
    NoRestart,
    RestartStrategy,
    SubmitResponse,
    TaskManagerFailover,
)

from lockgate.client import Client, ClientError
from tests.drained import PATIENCE_S, drain, generated, path_of, patient, rows_in, rows_read

PARTITIONS = 4
ROWS_PER_SECOND = 1_500.0
_MOST_BYTES = 1 << 20  # of a savepoint's metadata
NEVER = RestartStrategy(strategy=NoRestart())


Submit = Callable[[str, JobGraph, str], SubmitResponse]
"""Submits a job under a key, going on from the snapshot at a pointer."""


class Field(Protocol):
    """A cluster on which such a job runs."""

    @property
    def client(self) -> Client:
        """Follows the leader."""
        ...

    def make_folder(self, key: str) -> Path:
        """A fresh folder for the job's output, as the cluster's processes see it."""
        ...

    def fetch(self, folder: Path) -> Path:
        """The same folder as it is now, as this process sees it."""
        ...


class LedgerJob:
    """One job, under its key, whose input flows until `drain`. Leaving the block cancels it unless it has ended."""

    def __init__(
        self,
        field: Field,
        key: str,
        interval_ms: int,
        follows: tuple[LedgerJob, str] | None = None,
        restart: RestartStrategy | None = None,
        seconds: float | None = None,
        failover: LeaderFailover = LeaderFailover.LEADER_FAILOVER_RESTART,
        submit: Submit | None = None,
        parts: TaskManagerFailover = TaskManagerFailover.TASK_MANAGER_FAILOVER_WHOLE,
    ) -> None:
        """Submits it, with `submit` or the field's client. follows: the job whose work it goes on with, and from where.

        restart, failover, parts: see JobGraph; seconds: the input ends by itself after so long. Only for a test that
        does not mind when: none that kills something has the job end before.
        """
        self.key = key
        self._field = field
        self._ends = seconds is not None
        self._savepoint: CompletedCheckpoint | None = None
        before, pointer = follows or (None, "")
        self._pipeline = (
            before._pipeline
            if before
            else DrillPipeline(
                field.make_folder(key),
                partitions=PARTITIONS,
                rows=int((seconds or 0) * ROWS_PER_SECOND),
                rate=ROWS_PER_SECOND,
                parallelism=2,
                checkpoint_interval_ms=interval_ms,
            )
        )
        options = {"restart": restart, "leader_failover": failover, "task_manager_failover": parts}
        graph = dataclasses.replace(self._pipeline.graph(), **options)  # type: ignore[arg-type]
        self.graph = patient(graph)
        self.submission = (submit or field.client.submit)(key, self.graph, pointer)
        self.observer = JobObserver(field.client, key)

    def __enter__(self) -> LedgerJob:
        return self

    def __exit__(self, *_: object) -> None:
        ended = self.observer.has_ended
        self.observer.close()
        if not ended:
            with contextlib.suppress(ClientError):
                self._field.client.cancel(self.key)

    @property
    def status(self) -> JobStatus:
        """As last reported."""
        assert self.observer.status is not None
        return self.observer.status

    def checkpoints(self, attempt: int = 0) -> list[int]:
        """Ids of every completed checkpoint reported so far; attempt: of that one and later ones."""
        events = self.observer.events
        return sorted(
            {event.checkpoint_id for event in events if event.kind is _COMPLETED and event.attempt >= attempt}
        )

    def wait_checkpoints(self, count: int) -> None:
        """Waits until so many more checkpoints are complete."""
        wanted = len(self.checkpoints()) + count
        if not self.observer.wait_for(lambda: len(self.checkpoints()) >= wanted, PATIENCE_S):
            raise AssertionError(f"{self.key}: {count} more checkpoints were not completed: {self._story()}")

    def wait_attempt(self, attempt: int) -> None:
        """Waits until a checkpoint of this attempt is complete, or of a later one."""
        if not self.observer.wait_for(lambda: bool(self.checkpoints(attempt)), PATIENCE_S):
            raise AssertionError(f"{self.key}: attempt {attempt} has completed no checkpoint: {self._story()}")

    def pause(self, seconds: float) -> None:
        """Lets the job run for a while; returns early when it has ended."""
        self.observer.wait_for(lambda: False, seconds)

    def last_checkpoint(self) -> CompletedCheckpoint:
        """The newest completed one, asked for now."""
        return self._field.client.checkpoints(self.key)[0]

    def drain(self) -> CompletedCheckpoint:
        """Ends the input. The savepoint of all of it; the same however often it is asked for."""
        self._savepoint = self._savepoint or drain(self._field.client, self.key)
        return self._savepoint

    def stop(self) -> CompletedCheckpoint:
        """Stops it where it is, as `lockgate stop` does. What its sources have not read by then is not expected."""
        self._savepoint = self._field.client.stop(self.key)
        return self._savepoint

    def wait_end(self, state: JobState = JobState.FINISHED) -> JobStatus:
        """Waits for the end of the job, which must be this one."""
        if not self.observer.wait_for(lambda: self.observer.has_ended, PATIENCE_S + 30):
            raise AssertionError(f"{self.key} has not ended: {self._story()}")
        assert self.status.state is state, self._story()
        return self.status

    def check_exact(self) -> JobStatus:
        """Ends the input, waits for the end and compares every record and every total with the input."""
        rows = [self._pipeline.rows] * PARTITIONS if self._ends else self._drained()
        status = self.wait_end()
        pipeline = dataclasses.replace(self._pipeline, folder=self._field.fetch(self._pipeline.folder))
        records = _read_ledger(pipeline, rows)
        assert records.is_exact, f"{self.key}: {records}"
        assert not check_totals(rows, pipeline.read_totals())
        counted = {operator.operator_id: operator for operator in status.operators}
        assert counted["rows"].records_out == counted["ledger"].records_in == sum(rows), f"{counted} of {rows}"
        return status

    def _drained(self) -> list[int]:
        """How many rows of each partition have been made. None can be made after it."""
        savepoint = self.drain()
        if savepoint.pointer.startswith("s3://"):
            offsets = rows_in(read_all(locate(savepoint.pointer), _MOST_BYTES).to_pybytes())
        else:
            metadata = path_of(savepoint)
            offsets = rows_read(self._field.fetch(metadata.parent) / metadata.name)
        assert offsets.keys() == {"generate"}
        return generated(offsets["generate"], PARTITIONS)

    def _story(self) -> str:
        status = self.observer.status
        lines = [
            f"{event.kind.name} {event.attempt} {event.checkpoint_id} {event.text}"
            for event in self.observer.events[-15:]
        ]
        head = f"{status.state.name} attempt {status.attempt} {status.message} {status.error}" if status else "unseen"
        return "\n".join([head, *lines])


def _read_ledger(pipeline: DrillPipeline, rows: Sequence[int]) -> RecordCheck:
    for last_try in (False, True):
        oracle = LedgerOracle(rows)
        try:
            pipeline.read_ledger(oracle)
            break
        except FileNotFoundError:  # the sinks have just tidied their empty staging folder away
            if last_try:
                raise
    return oracle.check()


_COMPLETED = JobEventKind.CHECKPOINT_COMPLETED
