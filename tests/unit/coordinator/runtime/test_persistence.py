"""Writes whose outcome is not known: neither done nor undone until ZooKeeper says which."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from lockgate_coordinator.checkpoint.content import FORMAT_VERSION
from lockgate_coordinator.checkpoint.effects import PersistCheckpoint
from lockgate_coordinator.checkpoint.events import CheckpointPersisted, CheckpointPersistFailed
from lockgate_coordinator.checkpoint.failures import FailureReason
from lockgate_coordinator.job.events import AttemptPersisted, PersistFailed
from lockgate_coordinator.runtime import metadata_files, term_fence
from lockgate_coordinator.runtime.errors import Stopped
from lockgate_coordinator.runtime.metadata_files import MetadataFiles, Run
from lockgate_coordinator.runtime.persistence import Persistence
from lockgate_coordinator.runtime.term_fence import TermFence
from lockgate_ha.embedded import EmbeddedZooKeeper
from lockgate_ha.errors import OutcomeUnknown, StoreUnavailable
from lockgate_ha.records import JobRecords
from lockgate_proto.messages import (
    AttemptRecord,
    CheckpointMetadata,
    CompletedCheckpoint,
    JobRecord,
    OperatorState,
    StateHandle,
    StateKind,
    SubtaskState,
)

UNKNOWN, AWAY = OutcomeUnknown("the connection broke"), StoreUnavailable("ZooKeeper is away")


class TestingLeader:
    """A leader with one job. `answers`: what the next writes of an attempt say, after they were done."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        store, grant = EmbeddedZooKeeper().lead("default", "c")
        self.records, self.over = JobRecords(store, "default"), threading.Event()
        self.records.submit(grant, JobRecord("job", "run", graph=b"x"))
        self.answers: list[Exception] = []
        whole = JobRecords.write_attempt

        def write(records: JobRecords, *arguments: Any) -> None:
            if self.answers:
                answer = self.answers.pop(0)
                if isinstance(answer, OutcomeUnknown):
                    whole(records, *arguments)
                raise answer
            whole(records, *arguments)

        patch.setattr(JobRecords, "write_attempt", write)
        patch.setattr(term_fence, "_RETRY_S", 0.001)
        fence = TermFence(grant, self.over, lambda _: None)
        self.persistence = Persistence(fence, store, "default", MetadataFiles(str(folder), "default"))

    def write(self) -> AttemptPersisted | PersistFailed:
        return self.persistence.write_attempt("job", AttemptRecord(7))


@pytest.fixture
def leader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TestingLeader:
    return TestingLeader(tmp_path, monkeypatch)


def test_a_write_of_unknown_outcome_is_never_reported_as_failed(
    leader: TestingLeader,
) -> None:
    leader.answers = [UNKNOWN, AWAY, AWAY, UNKNOWN, AWAY]
    assert leader.write() == AttemptPersisted(7)
    assert not leader.answers
    assert leader.records.attempt("job").attempt == 7  # type: ignore[union-attr]


def test_a_write_that_was_certainly_not_done_is_called_failed(leader: TestingLeader) -> None:
    leader.answers = [AWAY]
    assert isinstance(leader.write(), PersistFailed)
    assert leader.records.attempt("job").attempt == 0  # type: ignore[union-attr]


def test_an_outcome_unknown_at_the_end_of_the_term_is_neither_done_nor_failed(leader: TestingLeader) -> None:
    leader.answers = [UNKNOWN]
    leader.over.set()
    with pytest.raises(Stopped):
        leader.write()


@pytest.mark.parametrize("most", [1_000, 1_100])
def test_a_snapshot_that_could_never_be_read_is_neither_written_nor_recorded(
    leader: TestingLeader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """Its state alone is too large, or only with what is around it. The checkpoint fails, and the one before stays."""
    persistence, run = leader.persistence, Run("job", "run")

    def write(number: int) -> CheckpointPersisted | CheckpointPersistFailed:
        state = OperatorState("op", StateKind.KEYED_STATE, StateHandle(inline=bytes(1_050)))
        subtasks = (SubtaskState("count", 0, (state,)),)
        metadata = CheckpointMetadata(FORMAT_VERSION, "job", "run", number, subtasks=subtasks)
        return persistence.write_checkpoint(run, PersistCheckpoint(metadata, CompletedCheckpoint(number)))

    assert isinstance(write(1), CheckpointPersisted)
    monkeypatch.setattr(metadata_files, "_MOST_BYTES", most)
    answer = write(2)
    assert isinstance(answer, CheckpointPersistFailed)
    assert answer.reason is FailureReason.STORAGE_FAILED
    assert "use the filesystem or rocksdb state backend" in answer.text
    assert [path.parent.name for path in tmp_path.rglob("_metadata")] == ["chk-1"]
    assert [checkpoint.checkpoint_id for checkpoint in leader.records.checkpoints("job")] == [1]
