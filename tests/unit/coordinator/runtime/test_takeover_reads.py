"""How often a new leader waits for ZooKeeper before a job is deployed: each time is time without a record."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from lockgate_common.checksums import checksum
from lockgate_coordinator.checkpoint.content import FORMAT_VERSION
from lockgate_coordinator.job.events import Recovered, RecoveryFailed
from lockgate_coordinator.runtime.errors import NeedsOperator, StorageError
from lockgate_coordinator.runtime.metadata_files import MetadataFiles
from lockgate_coordinator.runtime.persistence import Persistence
from lockgate_coordinator.runtime.term_fence import TermFence
from lockgate_ha.embedded import EmbeddedSession, EmbeddedZooKeeper
from lockgate_ha.errors import CorruptRecord
from lockgate_ha.paths import Paths
from lockgate_ha.records import FoundJob, JobRecords
from lockgate_ha.session import Node, Watcher
from lockgate_ha.session_store import SessionStore
from lockgate_ha.store import Operation, Put
from lockgate_proto.codec import encode
from lockgate_proto.messages import (
    AttemptRecord,
    CheckpointKind,
    CheckpointMetadata,
    CompletedCheckpoint,
    FirstPositions,
    JobGraph,
    JobOrders,
    JobRecord,
    RecoveryRecord,
)

RECORD = JobRecord("job", "run", graph=encode(JobGraph("numbers")))


class Counting(EmbeddedSession):
    """waits: what ZooKeeper was asked, one line for each time that an answer was waited for."""

    waits: list[str]

    def get(self, path: str, watch: Watcher | None = None) -> Node | None:
        self.waits.append(f"get {path.rsplit('/', 1)[1]}")
        return super().get(path, watch)

    def get_all(self, paths: Sequence[str]) -> tuple[Node | None, ...]:
        self.waits.append(f"get {len(paths)}")
        before = len(self.waits)
        found = super().get_all(paths)
        del self.waits[before:]
        return found

    def children(self, path: str, watch: Watcher | None = None) -> tuple[str, ...]:
        self.waits.append(f"children of {path.rsplit('/', 1)[1]}")
        return super().children(path, watch)

    def transact(self, operations: Sequence[Operation]) -> tuple[str, ...]:
        self.waits.append("write")
        return super().transact(operations)


class Successor:
    """A leader that has just been granted, after one that ran a job with checkpoints 3 to 5."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        server = EmbeddedZooKeeper()
        store, grant = server.lead("default", "former")
        former = JobRecords(store, "default")
        former.submit(grant, RECORD)
        former.write_attempt(grant, "job", AttemptRecord(2, token=grant.token))
        former.write_checkpoint_id(grant, "job", 6)
        for number in (3, 4, 5):
            former.add_checkpoint(grant, "job", CompletedCheckpoint(number, metadata=b"", checksum=checksum(b"")))
        monkeypatch.setattr("lockgate_ha.embedded.server.EmbeddedSession", Counting)
        self.waits: list[str] = []
        monkeypatch.setattr(Counting, "waits", self.waits, raising=False)
        store, self.grant = server.lead("default", "successor")
        fence = TermFence(self.grant, threading.Event(), lambda _: None)
        self.persistence = Persistence(fence, store, "default", MetadataFiles(str(folder), "default"))
        self.waits.clear()


@pytest.fixture
def successor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Successor:
    monkeypatch.setattr("lockgate_coordinator.runtime.persistence.content_of", lambda *_: None)
    return Successor(tmp_path, monkeypatch)


def test_a_job_is_read_marked_and_deployed_in_a_handful_of_waits(successor: Successor) -> None:
    persistence = successor.persistence
    assert persistence.job_keys() == ("job",)
    assert persistence.load("job") == FoundJob(RECORD, None, 0)
    persistence.note_recovery("job", 1)
    _, found = persistence.start(RECORD, fresh=False)
    assert isinstance(found, Recovered)
    assert (found.attempt, found.next_checkpoint_id, found.orders) == (AttemptRecord(2, token=1), 7, JobOrders())
    assert [checkpoint.checkpoint_id for checkpoint in found.completed] == [5, 4, 3]
    persistence.write_attempt("job", AttemptRecord(3))
    assert successor.waits == ["children of jobs", "get 3", "write", "children of checkpoints", "get 6", "write"]


def test_a_mark_replaces_any_earlier_one(successor: Successor) -> None:
    for begun in (2, 1, 1, 3):  # expected: none, one, the same, one
        successor.persistence.note_recovery("job", begun)
        assert successor.persistence.load("job") == FoundJob(RECORD, None, begun)


@pytest.mark.parametrize("mark", [b"\xff", encode(RecoveryRecord(2, 1, format_version=3))])
def test_a_mark_that_cannot_be_read_counts_nothing_and_is_replaced(successor: Successor, mark: bytes) -> None:
    """One of a newer version, too: whether that has written other records, these say."""
    successor.persistence.note_recovery("job", 2)
    path = Paths("default").recovery("job")
    leader: SessionStore = successor.persistence._store  # type: ignore[assignment]
    leader.commit(successor.grant, [Put(path, mark)])
    assert successor.persistence.load("job") == FoundJob(RECORD, None, 0)
    successor.persistence.note_recovery("job", 1)
    assert successor.persistence.load("job") == FoundJob(RECORD, None, 1)


def test_records_of_a_newer_version_hold_the_job_back_and_stay(successor: Successor) -> None:
    leader: SessionStore = successor.persistence._store  # type: ignore[assignment]
    path = Paths("default").attempt("job")
    newer = encode(AttemptRecord(2, format_version=3))
    leader.commit(successor.grant, [Put(path, newer)])
    with pytest.raises(NeedsOperator, match=r"held back until .*/attempt has format 3, .* `lockgate release job`"):
        successor.persistence.start(RECORD, fresh=False)
    assert leader.read(path) == newer
    future = replace(RECORD, graph=encode(JobGraph("numbers")) + b"\xc0\x3e\x01")
    with pytest.raises(NeedsOperator, match="its job graph is of another version: JobGraph has a field 1000"):
        successor.persistence.start(future, fresh=True)


def test_metadata_of_a_newer_version_holds_the_job_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    newer = encode(CheckpointMetadata(FORMAT_VERSION + 1, "job", "run", 6))
    successor = Successor(tmp_path, monkeypatch)
    former = successor.persistence._records
    former.add_checkpoint(successor.grant, "job", CompletedCheckpoint(6, "file:///x", checksum(newer), metadata=newer))
    with pytest.raises(NeedsOperator, match=r"the ZooKeeper record of checkpoint 6 has format 2, .* up to 1"):
        successor.persistence.start(RECORD, fresh=False)


@pytest.mark.parametrize("is_there", [True, False])
def test_the_checkpoint_behind_a_savepoint_is_read_as_well(
    successor: Successor, monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    """The next increments build on it. Without it they fail once, and the next checkpoint is a full one."""
    base = CheckpointMetadata(FORMAT_VERSION, "job", "run", 5)

    def content(checkpoint: CompletedCheckpoint, _files: object) -> CheckpointMetadata:
        if checkpoint.checkpoint_id == 5 and not is_there:
            raise StorageError("the storage is away", retryable=True)
        return replace(base, checkpoint_id=checkpoint.checkpoint_id)

    monkeypatch.setattr("lockgate_coordinator.runtime.persistence.content_of", content)
    savepoint = CompletedCheckpoint(6, "file:///x", checksum="x", kind=CheckpointKind.SAVEPOINT)
    successor.persistence._records.add_checkpoint(successor.grant, "job", savepoint)
    found = successor.persistence.recover(RECORD)
    assert isinstance(found, Recovered)
    assert [checkpoint.metadata for checkpoint in found.completed] == [b"", encode(base) if is_there else b"", b"", b""]


@pytest.mark.parametrize("stored", [b"no zlib", zlib.compress(b"\xff")])
def test_first_positions_that_cannot_be_decoded_are_a_corrupt_record(successor: Successor, stored: bytes) -> None:
    record = AttemptRecord(2, ("tm-a",), first_positions=(FirstPositions("read", stored),))
    successor.persistence.write_attempt("job", record)
    found = successor.persistence.recover(RECORD)
    assert isinstance(found, RecoveryFailed)
    assert (found.retryable, found.attempt) == (False, replace(record, first_positions=()))
    assert found.reason.startswith("A record in ZooKeeper is corrupt: ")
    assert "/attempt" in found.reason


def test_each_record_that_cannot_be_decoded_is_named(successor: Successor) -> None:
    leader: SessionStore = successor.persistence._store  # type: ignore[assignment]
    paths, records = Paths("default"), JobRecords(leader, "default")
    for path in (paths.attempt("job"), paths.checkpoint_id("job"), paths.checkpoint("job", 4)):
        whole = leader.read(path)
        assert whole is not None
        leader.commit(successor.grant, [Put(path, b"\xff")])
        with pytest.raises(CorruptRecord) as caught:
            records.restart_point("job")
        assert caught.value.path == path
        leader.commit(successor.grant, [Put(path, whole)])
    assert records.restart_point("job").checkpoint_id == 6
