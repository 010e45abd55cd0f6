"""Which metadata files a cluster believes: its own, those that a record vouches for, and those that a user trusts."""

from __future__ import annotations

import os
import pickle
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lockgate_common import storage
from lockgate_common.checksums import checksum, crc32
from lockgate_coordinator.job.effects import PersistCheckpoint
from lockgate_coordinator.job.events import CheckpointPersisted, Recovered, RecoveryFailed
from lockgate_coordinator.runtime import metadata_files, persistence
from lockgate_coordinator.runtime.errors import NeedsOperator, StorageError
from lockgate_coordinator.runtime.metadata_files import MetadataFiles, Run, metadata_uri, start_checksum
from lockgate_coordinator.runtime.persistence import Persistence
from lockgate_coordinator.runtime.term_fence import TermFence
from lockgate_ha.embedded import EmbeddedZooKeeper
from lockgate_ha.records import JobRecords
from lockgate_proto.codec import encode
from lockgate_proto.messages import (
    AttemptRecord,
    CheckpointKind,
    CheckpointMetadata,
    CompletedCheckpoint,
    JobGraph,
    JobRecord,
    OperatorState,
    StateHandle,
    StateKind,
    SubtaskState,
    Vertex,
)

from tests.peak_memory import peak_bytes

SECRET, OTHER = "the secret of the cluster", "the secret of another one"
RUN = Run("job", "run")


def snapshot(state: bytes = b"some state", number: int = 3) -> CheckpointMetadata:
    """One keyed state, inline."""
    handle = StateHandle(inline=state, size_bytes=len(state), checksum=crc32(state))
    operator = OperatorState("op", StateKind.KEYED_STATE, handle)
    states = (SubtaskState("v", 0, (operator,)),)
    return CheckpointMetadata(1, "job", "run", number, CheckpointKind.SAVEPOINT, 5, subtasks=states)


def state_of(metadata: CheckpointMetadata) -> bytes:
    handle = metadata.subtasks[0].operators[0].handle
    assert handle is not None
    return handle.inline


class Place:
    """A storage with the clusters that use it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def files(self, secret: str = SECRET, cluster: str = "default") -> MetadataFiles:
        return MetadataFiles(str(self.folder), cluster, secret)

    def written(self, files: MetadataFiles, metadata: CheckpointMetadata) -> Path:
        return Path(files.write(RUN, metadata, files.content(metadata)).pointer.removeprefix("file://"))

    def older(self, metadata: CheckpointMetadata) -> Path:
        """As versions before seals wrote it."""
        file = self.folder / "older" / "_metadata"
        file.parent.mkdir(parents=True)
        file.write_bytes(encode(metadata))
        return file


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "storage")


def started(files: MetadataFiles, file: Path, *, is_trusted: bool = False) -> CheckpointMetadata:
    return files.read_start(str(file), is_trusted=is_trusted)[0]


def test_a_snapshot_of_the_cluster_is_read_at_any_place(place: Place, tmp_path: Path) -> None:
    files = place.files()
    file = place.written(files, snapshot())
    moved = tmp_path / "moved" / "_metadata"
    moved.parent.mkdir()
    file.rename(moved)
    assert started(files, moved) == files.read(str(moved)) == snapshot()
    assert started(place.files(), moved) == snapshot(), "another coordinator"


@pytest.mark.parametrize(
    ("secret", "cluster"), [(OTHER, "default"), (SECRET, "other")], ids=["another secret", "another cluster"]
)
def test_a_snapshot_of_another_cluster_is_refused_unless_it_is_trusted(place: Place, secret: str, cluster: str) -> None:
    file = place.written(place.files(secret, cluster), snapshot())
    with pytest.raises(StorageError, match=r"has the seal of another .*submit with --trust-snapshot") as caught:
        started(place.files(), file)
    assert file.as_uri() in str(caught.value)
    assert not caught.value.retryable
    assert SECRET not in str(caught.value)
    assert started(place.files(), file, is_trusted=True) == snapshot()


def test_an_older_snapshot_is_refused_unless_it_is_trusted_or_a_record_names_its_checksum(place: Place) -> None:
    file, files = place.older(snapshot()), place.files()
    with pytest.raises(StorageError, match=r"is not sealed with the secret of cluster default; if .*--trust-snapshot"):
        started(files, file)
    assert started(files, file, is_trusted=True) == snapshot()
    assert files.read(str(file), crc32(file.read_bytes())) == snapshot()
    with pytest.raises(StorageError, match="is corrupt"):
        files.read(str(file), "crc32:00000000")


def test_a_cluster_without_a_secret_reads_intact_snapshots(place: Place) -> None:
    """Sealed by others, not sealed, and from before there were seals."""
    files = place.files("")
    assert started(files, place.older(snapshot())) == snapshot()
    assert started(files, place.written(place.files(), snapshot())) == snapshot()
    assert started(files, place.written(files, snapshot())) == snapshot()
    with pytest.raises(StorageError, match="is not sealed"):
        started(place.files(), place.written(files, snapshot()))


@pytest.mark.parametrize("number", range(3))
def test_a_seal_is_valid_for_its_own_file_only(place: Place, number: int) -> None:
    """Bytes of other snapshots behind it, in front of it, or one more field: to protobuf it is all one message."""
    files = place.files()
    file = place.written(files, snapshot())
    whole, forged = file.read_bytes(), encode(snapshot(b"forged"))
    file.write_bytes((forged + whole, whole + forged, forged + whole[len(encode(snapshot())) :])[number])
    with pytest.raises(StorageError, match=r"_metadata (is corrupt|is not sealed|has the seal of another)"):
        started(files, file)


def test_every_flipped_bit_of_a_sealed_file_is_noticed(place: Place) -> None:
    files = place.files()
    file = place.written(files, snapshot())
    whole, problem = file.read_bytes(), checksum(file.read_bytes())
    for at in range(len(whole)):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])
        for read in (lambda: started(files, file), lambda: files.read(str(file), problem)):
            with pytest.raises(StorageError, match=r"_metadata (is corrupt|is not sealed|has the seal of another)"):
                read()


@pytest.mark.parametrize("secret", [SECRET, ""])
def test_a_trusted_snapshot_must_be_intact(place: Place, secret: str) -> None:
    """The digest stands behind it whether there is a secret or not."""
    file = place.written(place.files(OTHER), snapshot())
    whole = file.read_bytes()
    for at in range(len(encode(snapshot()))):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])
        with pytest.raises(StorageError, match="_metadata is corrupt"):
            started(place.files(secret), file, is_trusted=True)


class Plant:
    """Unpickling it writes a file."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return Path.write_text, (self.marker, "the planted code ran")


class Recovery:
    """A leader that recovers a job, and a task manager that unpickles whatever it is given."""

    def __init__(self, place: Place, record: JobRecord) -> None:
        store, grant = EmbeddedZooKeeper().lead("default", "me")
        self.records, self.grant = JobRecords(store, "default"), grant
        self.record = replace(record, token=grant.token)
        self.records.submit(grant, self.record)
        fence = TermFence(grant, threading.Event(), lambda _: None)
        self.persistence = Persistence(fence, store, "default", place.files())

    def run(self) -> Recovered | RecoveryFailed:
        found = self.persistence.recover(self.record)
        if isinstance(found, Recovered) and found.metadata is not None:
            pickle.loads(state_of(found.metadata))
        return found


RECORD = JobRecord("job", "run", graph=encode(JobGraph(vertices=(Vertex("v"),))))


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    return tmp_path / "marker"


def forged(marker: Path) -> CheckpointMetadata:
    return snapshot(pickle.dumps(Plant(marker)))


def test_a_planted_pickle_does_not_run_when_a_job_is_to_start_from_it(place: Place, marker: Path) -> None:
    file = place.older(forged(marker))
    with pytest.raises(StorageError, match="is not sealed"):
        pickle.loads(state_of(started(place.files(), file)))
    assert not marker.exists()
    pickle.loads(state_of(started(place.files(), file, is_trusted=True)))
    assert marker.exists(), "the plant works"


def test_a_planted_pickle_does_not_run_in_a_job_that_has_no_checkpoint_of_its_own(place: Place, marker: Path) -> None:
    """The record has the checksum of the file as it was at the submission."""
    file = place.written(place.files(), snapshot(pickle.dumps("harmless")))
    accepted = checksum(file.read_bytes())
    recovery = Recovery(place, replace(RECORD, restore_from=str(file), restore_checksum=accepted))
    assert isinstance(recovery.run(), Recovered)
    file.write_bytes(encode(forged(marker)))
    found = recovery.run()
    assert isinstance(found, RecoveryFailed)
    assert "is corrupt" in found.reason
    assert not marker.exists()


def test_a_job_of_an_earlier_version_waits_for_its_operator_and_does_not_fail(place: Place, marker: Path) -> None:
    """Its record only names the snapshot that it is to start from, and that has no seal."""
    file = place.older(forged(marker))
    recovery = Recovery(place, replace(RECORD, restore_from=str(file.parent)))
    recovery.records.write_attempt(recovery.grant, "job", AttemptRecord(attempt=4))
    recovery.records.write_checkpoint_id(recovery.grant, "job", 7)
    why = rf"{file.as_uri()}, lacks the seal of this cluster; so it is held back.*`lockgate zookeeper protect`"
    with pytest.raises(NeedsOperator, match=why):
        recovery.persistence.start(recovery.record, fresh=False)
    with pytest.raises(NeedsOperator, match=why):
        recovery.run()  # as after a storage that could not be reached at first
    assert not marker.exists()
    pinned = replace(recovery.record, restore_checksum=start_checksum(str(file.parent)))
    found = recovery.persistence.recover(pinned)
    assert isinstance(found, Recovered)
    assert (found.attempt, found.next_checkpoint_id) == (AttemptRecord(attempt=4), 8)


def test_a_sealed_snapshot_needs_no_operator_whoever_submitted_the_job(place: Place) -> None:
    file = place.written(place.files(), snapshot())
    recovery = Recovery(place, replace(RECORD, restore_from=str(file)))
    assert isinstance(recovery.persistence.recover(recovery.record), Recovered)


def test_a_snapshot_trusted_once_is_trusted_until_it_changes(place: Place, marker: Path) -> None:
    file = place.older(snapshot(pickle.dumps("harmless")))
    _, accepted = place.files().read_start(str(file), is_trusted=True)
    recovery = Recovery(place, replace(RECORD, restore_from=str(file), restore_checksum=accepted))
    assert isinstance(recovery.run(), Recovered)
    file.write_bytes(encode(forged(marker)))
    assert isinstance(recovery.run(), RecoveryFailed)
    assert not marker.exists()


def test_a_planted_pickle_does_not_run_when_a_job_recovers(
    place: Place, marker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(persistence, "INLINE_METADATA_BYTES", 0)
    recovery = Recovery(place, RECORD)
    recovery.records.write_attempt(recovery.grant, "job", AttemptRecord(1, token=recovery.grant.token))
    recovery.persistence.write_checkpoint_id("job", 3)
    harmless = replace(snapshot(pickle.dumps("harmless")), token=recovery.grant.token)
    record = CompletedCheckpoint(3, token=recovery.grant.token)
    done = recovery.persistence.write_checkpoint(RUN, PersistCheckpoint(harmless, record))
    assert isinstance(done, CheckpointPersisted)
    assert done.checkpoint.checksum.startswith("sha256:")
    assert isinstance(recovery.run(), Recovered)
    file = Path(done.checkpoint.pointer.removeprefix("file://"))
    file.write_bytes(encode(forged(marker)))
    found = recovery.run()
    assert isinstance(found, RecoveryFailed)
    assert f"{file.as_uri()} is corrupt" in found.reason
    assert not marker.exists()


def test_an_inline_record_of_a_checkpoint_is_the_sealed_file(place: Place) -> None:
    """One content, one checksum: whoever has the record knows the file, and the other way round."""
    recovery = Recovery(place, RECORD)
    recovery.persistence.write_checkpoint_id("job", 3)
    metadata = replace(snapshot(), token=recovery.grant.token)
    done = recovery.persistence.write_checkpoint(
        RUN, PersistCheckpoint(metadata, CompletedCheckpoint(3, token=recovery.grant.token))
    )
    assert isinstance(done, CheckpointPersisted)
    file = Path(done.checkpoint.pointer.removeprefix("file://"))
    assert done.checkpoint.metadata == file.read_bytes()
    assert persistence.content_of(done.checkpoint, place.files()) == started(place.files(), file) == metadata
    broken = replace(done.checkpoint, metadata=done.checkpoint.metadata[:-1] + b"x")
    with pytest.raises(StorageError, match="the ZooKeeper record of checkpoint 3 is corrupt"):
        persistence.content_of(broken, place.files())


LARGE = 96 << 20
TOO_LARGE = 10 << 30


def planted(file: Path, size: int) -> Path:
    """A file of so many bytes, none of which takes room on the disk."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()
    os.truncate(file, size)
    return file


def refusing(folder: str, file: str, problem: str) -> Callable[[], None]:
    """Reads a file that is refused."""
    files = Place(Path(folder)).files()

    def read() -> None:
        with pytest.raises(StorageError, match="_metadata is corrupt" if problem else "_metadata is not sealed"):
            files.read(file, problem)

    return read


@pytest.mark.parametrize("is_recorded", [True, False], ids=["by its record", "by its seal"])
@pytest.mark.parametrize("is_appended", [True, False], ids=["behind a snapshot", "alone"])
def test_a_large_file_is_refused_before_it_takes_memory(place: Place, *, is_recorded: bool, is_appended: bool) -> None:
    files = place.files()
    file = place.written(files, snapshot()) if is_appended else place.folder / "planted" / "_metadata"
    problem = checksum(file.read_bytes() if is_appended else b"") if is_recorded else ""
    planted(file, LARGE)
    assert peak_bytes(refusing, str(place.folder), str(file), problem) < LARGE / 4


def refusing_many(folder: str, file: str) -> Callable[[], None]:
    """Reads a file that is refused as often at once as a leader has threads for it."""
    read = refusing(folder, file, "")

    def read_many() -> None:
        with ThreadPoolExecutor(8) as pool:
            for done in [pool.submit(read) for _ in range(8)]:
                done.result()

    return read_many


def test_many_unsealed_files_at_once_take_no_memory(place: Place) -> None:
    """Each is small enough to be read whole if a record vouched for it."""
    file = planted(place.folder / "planted" / "_metadata", 48 << 20)
    assert peak_bytes(refusing_many, str(place.folder), str(file)) < 48 << 20


def test_a_few_large_files_are_read_whole_at_once(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    files = place.files()
    file = place.written(files, snapshot(os.urandom(2 << 20)))
    read_all, at_once, most = storage.read_all, 0, 0

    def counting(location: storage.Location, most_bytes: int) -> Any:
        nonlocal at_once, most
        if most_bytes <= metadata_files._ASKED_BYTES:
            return read_all(location, most_bytes)
        at_once += 1
        most = max(most, at_once)
        time.sleep(0.05)
        at_once -= 1
        return read_all(location, most_bytes)

    monkeypatch.setattr(storage, "read_all", counting)
    with ThreadPoolExecutor(8) as pool:
        found = [pool.submit(started, files, file) for _ in range(8)]
    assert {done.result().checkpoint_id for done in found} == {3}
    assert most == 2


@pytest.mark.parametrize("pointer", ["file:///etc/hostname#", "file:///etc/hostname#/_metadata"])
def test_a_pointer_leads_to_metadata_and_to_no_other_file(place: Place, pointer: str) -> None:
    with pytest.raises(StorageError, match=rf"{pointer} has a # in it|{pointer}/_metadata has a # in it"):
        place.files().read_start(pointer, is_trusted=False)


@given(st.lists(st.sampled_from(["file:", "FILE:", "/", "a", "?", "#", "%23", "%3F", ";", "_metadata", ".", "://"])))
def test_the_file_behind_a_pointer_has_the_name_of_metadata(parts: list[str]) -> None:
    try:
        location = storage.locate(metadata_uri("".join(parts)))
    except ValueError:
        return
    assert location.path.endswith("/_metadata")


def test_a_file_that_is_larger_than_any_message_is_not_read_at_all(place: Place) -> None:
    file = planted(place.folder / "planted" / "_metadata", TOO_LARGE)
    for read in (
        lambda: started(place.files(), file),
        lambda: started(place.files(), file, is_trusted=True),
        lambda: place.files().read(str(file), checksum(b"")),
    ):
        with pytest.raises(StorageError, match=r"is invalid: it has 10,737,418,240 bytes, but should"):
            read()


def test_large_metadata_is_read_by_its_seal_and_by_its_record(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_files, "_AT_ONCE_BYTES", 10)
    whole = snapshot(os.urandom(3 << 20))  # the seal is in the last of several pieces
    file = place.written(place.files(), whole)
    problem = checksum(file.read_bytes())
    assert started(place.files(), file) == place.files().read(str(file), problem) == whole
    with file.open("r+b") as changed:
        changed.seek(1 << 20)
        changed.write(b"changed")
    for read in (lambda: started(place.files(), file), lambda: place.files().read(str(file), problem)):
        with pytest.raises(StorageError, match="_metadata is corrupt"):
            read()


def test_a_pipe_does_not_block(place: Place) -> None:
    file = place.folder / "planted" / "_metadata"
    file.parent.mkdir(parents=True)
    os.mkfifo(file)
    with pytest.raises(StorageError, match="_metadata is invalid: it is neither a file nor a folder"):
        started(place.files(), file)
