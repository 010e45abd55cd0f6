"""The handle of a submitted job, for the author of a pipeline."""

from __future__ import annotations

from collections.abc import Mapping

from lockgate_proto.messages import CompletedCheckpoint, JobState, JobStatus

from lockgate.client.client import Client
from lockgate.client.deadline import Deadline
from lockgate.client.errors import ClientError, JobFailed
from lockgate.client.watch import TERMINAL, JobWatch, LostListener


class JobHandle:
    """One job on one cluster. Every method raises ClientError with a readable sentence."""

    def __init__(self, client: Client, key: str) -> None:
        self.client = client
        self.key = key

    def status(self) -> JobStatus:
        """The job's status now."""
        return self.client.job(self.key)

    def watch(self, on_lost: LostListener | None = None) -> JobWatch:
        """Status changes and events until the job has ended, across failovers."""
        return self.client.watch(self.key, on_lost)

    def wait(self, timeout_s: float | None = None) -> JobStatus:
        """Waits for the end and returns the last status (FINISHED or CANCELED).

        Raises JobFailed with the job's own error, and ClientError when `timeout_s` passes first.
        """
        status = self.status()
        watch, deadline = self.watch(), Deadline(None if timeout_s is None else timeout_s * 1000)
        try:
            while status.state not in TERMINAL:
                update = watch.poll(deadline.remaining_s(3600) * 1000)
                if isinstance(update, JobStatus):
                    status = update
                elif update is None and deadline.expired:
                    raise ClientError(f"job {self.key!r} has not ended after {timeout_s} s; it is {status.state.name}")
        finally:
            watch.close()
        if status.state is JobState.FAILED:
            raise JobFailed(status.error or f"job {self.key!r} failed")
        return status

    def cancel(self) -> JobState:
        """Asks for the job's end."""
        return self.client.cancel(self.key)

    def savepoint(self, timeout_ms: int = 0, *, request_id: str = "") -> CompletedCheckpoint:
        """Takes a savepoint and waits until it is complete; see `Client.savepoint`."""
        return self.client.savepoint(self.key, timeout_ms, request_id=request_id)

    def savepoints(self) -> tuple[CompletedCheckpoint, ...]:
        """The savepoints that were taken and not disposed of, newest first."""
        return self.client.savepoints(self.key)

    def stop(self, *, drain: bool = False, timeout_ms: int = 0) -> CompletedCheckpoint:
        """Ends the job with a savepoint and returns that; see `Client.stop`."""
        return self.client.stop(self.key, drain=drain, timeout_ms=timeout_ms)

    def rescale(self, parallelism: Mapping[str, int] | None = None, **vertices: int) -> JobStatus:
        """Changes the parallelism of operators, `rescale(counts=3)`, and waits until the job runs with it."""
        from lockgate.client.rescale import rescale

        return rescale(self.client, self.key, {**(parallelism or {}), **vertices})

    def __repr__(self) -> str:
        return f"JobHandle({self.key!r})"
