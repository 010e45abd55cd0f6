"""One run of a bounded job from its submission to its end, timed."""

from __future__ import annotations

import time
from dataclasses import dataclass

from lockgate_devtools.drill.observer import JobObserver
from lockgate_devtools.drill.timeline import checkpoint_counts
from lockgate_proto.messages import JobGraph, JobState

from benchmarks.common import say
from lockgate.client import Client
from lockgate.errors import UserError

NEVER_MS = 3_600_000  # as a checkpoint interval: only the last checkpoint is taken, with which the job ends
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
