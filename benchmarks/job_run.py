"""Jobs of benchmarks: one run of a bounded job, timed; and an endless one that counts keys."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lockgate_devtools.drill.observer import JobObserver
from lockgate_devtools.drill.timeline import checkpoint_counts
from lockgate_proto.messages import JobGraph, JobState

from benchmarks.common import WrongResult, say
from lockgate import Job, count
from lockgate.client import Client
from lockgate.errors import UserError

NEVER_MS = 3_600_000  # as a checkpoint interval: only the last checkpoint is taken, with which the job ends
PARTITIONS = 2  # of `counting`
_LIMIT_S = 300.0


@dataclass(frozen=True, slots=True)
class JobRun:
    """seconds: from the submission to FINISHED, results committed; checkpoints: completed ones."""

    seconds: float
    checkpoints: int


def run_through(client: Client, key: str, graph: JobGraph) -> JobRun:
    """Runs a job once. Raises UserError when it fails, restarts, or takes longer than five minutes."""
    started = time.monotonic()
    client.submit(key, graph)
    observer = JobObserver(client, key)
    try:
        observer.wait_for(lambda: bool(observer.status and observer.status.restarts), _LIMIT_S)  # or its end
        seconds = time.monotonic() - started
        status = observer.status
        if status is None or status.state != JobState.FINISHED or status.restarts:
            raise UserError(f"the job {key} did not run through: {status and (status.state.name, status.error)}")
        checkpoints = checkpoint_counts(observer.events)[0]
        say(f"  {key}: {seconds:.2f} s, {checkpoints} checkpoints")
        return JobRun(seconds, checkpoints)
    finally:
        observer.close()


def counting(folder: Path, keys: int, rate: float, written: int, **options: Any) -> Job:
    """Rows at a steady rate in all, counted by one of `keys` keys; new counts of every `written`-th key are written."""
    job = Job("counting", parallelism=2, checkpoint_interval_ms=1_000, **options)
    rows = job.generate(rate=rate / PARTITIONS, partitions=PARTITIONS).uid("rows")
    keyed = rows.sql(f"SELECT sequence % {keys // PARTITIONS} * {PARTITIONS} + `partition` AS k FROM input")
    counts = keyed.key_by("k").aggregate(n=count()).uid("counts")
    counts.filter(f"k % {written} = 0").write_parquet(folder / "counts").uid("written")
    return job


def rows_counted(observer: JobObserver) -> int:
    """What the source of `counting` has put out, as last heard."""
    operators = observer.status.operators if observer.status is not None else ()
    return sum(operator.records_out for operator in operators if operator.operator_id == "rows")


def wait_until(observer: JobObserver, condition: Callable[[], bool], what: str) -> None:
    """Raises WrongResult when the condition does not hold within five minutes."""
    if not observer.wait_for(condition, _LIMIT_S):
        raise WrongResult(f"not within {_LIMIT_S:g} s: {what}")
