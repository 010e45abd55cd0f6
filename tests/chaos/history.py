"""What stands in ZooKeeper while processes die, held against the invariants on tokens, ids and submissions."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Sequence

from lockgate_ha.errors import SessionLost, StoreError
from lockgate_ha.paths import Paths
from lockgate_ha.protection import Protection
from lockgate_ha.records import JobRecords
from lockgate_ha.session import Session
from lockgate_ha.session_store import SessionStore
from lockgate_ha.zookeeper import connect
from lockgate_proto.messages import CompletedCheckpoint, JobRecord

from tests.drained import PATIENCE_S

LOOK_EVERY_S = 0.05


class Story:
    """What was seen of a cluster's records, look after look, held against invariants 2, 3 and 4. Pure."""

    def __init__(self) -> None:
        self.epochs: list[int] = []
        self.submitted: dict[str, JobRecord] = {}
        self.completed: dict[tuple[str, int], CompletedCheckpoint] = {}
        self.problems: list[str] = []

    def look(self, epoch: int, jobs: Sequence[tuple[JobRecord, Sequence[CompletedCheckpoint]]]) -> None:
        """One whole look: the epoch first, then every job with its checkpoints.

        So what is new here was written after the look before, at which its epoch had been read.
        """
        before = self.epochs[-1] if self.epochs else 0
        if epoch != before:
            self.epochs.append(epoch)
        for job, checkpoints in jobs:
            self._see_job(job, before)
            for checkpoint in checkpoints:
                self._see_checkpoint(job.job_key, checkpoint, before)

    def check(self) -> None:
        """Tokens and ids only rise, no id named two contents, no key two runs. Raises AssertionError.

        Also where there was nothing to see: that proves nothing.
        """
        assert self.epochs, "no leader was seen"
        assert self.submitted, "no job was seen"
        assert self.completed, "no completed checkpoint was seen"
        assert self.epochs == sorted(set(self.epochs)), self.epochs
        assert not self.problems, self.problems

    def _see_job(self, job: JobRecord, before: int) -> None:
        known = self.submitted.setdefault(job.job_key, job)
        if known is job and job.token < before:
            self.problems.append(f"{job.job_key} was submitted under token {job.token} when {before} was known")
        if known.run_id != job.run_id:
            self.problems.append(f"{job.job_key} was created twice: {known.run_id} and {job.run_id}")

    def _see_checkpoint(self, key: str, checkpoint: CompletedCheckpoint, before: int) -> None:
        known = self.completed.setdefault((key, checkpoint.checkpoint_id), checkpoint)
        if known is checkpoint and checkpoint.token < before:
            self.problems.append(
                f"{key}: {checkpoint.checkpoint_id} was completed under token {checkpoint.token} after {before}"
            )
        if known != checkpoint:
            self.problems.append(f"{key}: checkpoint {checkpoint.checkpoint_id} has two contents")
        for (other_key, number), other in self.completed.items():
            if other_key == key and (number < checkpoint.checkpoint_id) and other.token > checkpoint.token:
                self.problems.append(
                    f"{key}: {number} has token {other.token}, {checkpoint.checkpoint_id} has {checkpoint.token}"
                )


class History(Story):
    """Reads ZooKeeper over and over and keeps what it saw.

    What holds at the beginning and at the end of the block is seen in any case.
    """

    def __init__(self, zookeeper: str, protection: Protection) -> None:
        super().__init__()
        self._protection, cluster = protection, protection.cluster
        self._zookeeper = zookeeper
        self._cluster = cluster
        self._paths = Paths(cluster)
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="history", daemon=True)
        self._open()

    def __enter__(self) -> History:
        self._look_once()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        try:
            self._look_once()
        finally:
            self._session.close()

    def _open(self) -> None:
        self._session: Session = connect(self._zookeeper, protection=self._protection)
        self._records = JobRecords(SessionStore(self._cluster, self._session), self._cluster)

    def _run(self) -> None:
        while not self._done.wait(0.02):
            self._try()

    def _look_once(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not self._try():
            assert time.monotonic() < deadline, "ZooKeeper does not answer"
            self._done.wait(LOOK_EVERY_S)

    def _try(self) -> bool:
        """Whether it was seen how things stand."""
        try:
            self._look()
        except SessionLost:  # this process has stood still for longer than a session lives
            self._session.close()
            with contextlib.suppress(StoreError):
                self._open()
            return False
        except StoreError:
            return False
        return True

    def _look(self) -> None:
        node = self._session.get(self._paths.epoch)
        if node is not None:
            self.look(int(node.data), [(job, self._records.checkpoints(job.job_key)) for job in self._records.jobs()])
