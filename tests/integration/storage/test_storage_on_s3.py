"""Metadata and large graphs on a real S3 server that is named by a URI with options."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from lockgate_common import storage
from lockgate_coordinator.runtime.errors import StorageError
from lockgate_coordinator.runtime.metadata_files import MetadataFiles, Run
from lockgate_coordinator.runtime.removals import Removals
from lockgate_coordinator.runtime.term_fence import TermFence
from lockgate_ha.embedded import EmbeddedZooKeeper
from lockgate_ha.records import JobRecords
from lockgate_proto import messages as m
from lockgate_proto.codec import encode

from tests.s3_server import CREDENTIALS, S3Server

pytestmark = [pytest.mark.integration, pytest.mark.rotating]

RUN = Run("job", "run 1")
METADATA = m.CheckpointMetadata(1, "job", "run 1", 3, m.CheckpointKind.CHECKPOINT, 5)


def test_metadata_is_written_read_listed_and_deleted(s3: S3Server) -> None:
    files = MetadataFiles(s3.uri("base"), "c")
    stored = files.write(RUN, METADATA, encode(METADATA))
    assert stored.pointer.endswith(f"/base/c/job/run%201/chk-3/_metadata?{s3.options}")
    assert files.read(stored.pointer, stored.checksum) == METADATA
    assert files.read(stored.pointer.replace("/_metadata", "")) == METADATA
    assert files.checkpoint_ids(RUN) == (3,)
    files.delete_pointed(stored.pointer)
    files.delete_pointed(stored.pointer)
    assert files.checkpoint_ids(RUN) == ()
    with pytest.raises(StorageError, match=r"chk-3/_metadata does not exist") as caught:
        files.read(stored.pointer)
    assert not caught.value.retryable
    assert s3.address not in str(caught.value), "options are no part of a message"


def test_a_graph_round_trips_and_a_run_is_deleted_as_a_whole(s3: S3Server) -> None:
    files = MetadataFiles(s3.uri("base"), "c")
    stored = files.write_graph(RUN, b"graph" * 1000)
    assert files.read_graph(stored.pointer, stored.checksum) == b"graph" * 1000
    files.write(RUN, METADATA, encode(METADATA))
    files.delete_run(RUN)
    folder = storage.locate(files.run_directory(RUN))
    assert not storage.exists(folder)
    assert not storage.exists(folder.parent())
    files.delete_run(RUN)


def test_a_jobs_own_storage_has_its_own_options(s3: S3Server, tmp_path: Path) -> None:
    files, own = MetadataFiles(str(tmp_path), "c"), s3.uri("own/")
    run = Run("job", "run", own)
    stored = files.write(run, METADATA, encode(METADATA))
    assert files.read(stored.pointer, stored.checksum) == METADATA
    files.delete_shared(run, ("never-there",))
    assert files.shared_files(run) == ()
    files.delete_run(run)
    assert files.checkpoint_ids(run) == ()


def test_the_search_for_orphans_spares_shared_files_in_use(s3: S3Server) -> None:
    """A file's URI has the options of its storage, its name in the folder has not."""
    store, grant = EmbeddedZooKeeper().lead("c", "a")
    records, files = JobRecords(store, "c"), MetadataFiles(s3.uri("base"), "c")
    records.submit(grant, m.JobRecord("job", RUN.run_id, graph=b"x"))
    folder = storage.locate(files.run_directory(RUN)).child("shared")
    used, orphan = "1-a1-count-0-op.state", "2-a1-count-0-op.state"
    for name in (used, orphan):
        storage.write_durably(folder.child(name), b"x")
    handle = m.StateHandle(path=folder.child(used).uri, checkpoint_id=1, shared=True)
    state = m.OperatorState("op", m.StateKind.KEYED_STATE, handle)
    metadata = replace(METADATA, subtasks=(m.SubtaskState("count", 0, (state,)),))
    stored = files.write(RUN, metadata, encode(metadata))
    records.add_checkpoint(grant, "job", m.CompletedCheckpoint(3, pointer=stored.pointer, checksum=stored.checksum))
    Removals(TermFence(grant, Event(), lambda _: None), store, "c", files).delete_orphans(RUN, 3)
    assert files.shared_files(RUN) == (used,)


def test_a_bucket_that_is_missing_is_refused_in_one_sentence(s3: S3Server) -> None:
    uri = f"s3://no-such-bucket-here/x?{s3.options}"
    with pytest.raises(StorageError, match=r"cannot make the storage folder s3://no-such-bucket-here/x/c: ") as caught:
        MetadataFiles(uri, "c")
    assert "\n" not in str(caught.value)
    assert not any(secret in str(caught.value) for secret in CREDENTIALS.values())


@pytest.mark.parametrize("opener", ["open_input_file", "open_input_stream"])
def test_an_object_that_is_deleted_while_it_is_read_is_missing(s3: S3Server, opener: str) -> None:
    location = storage.locate(s3.uri("base")).child("object")
    storage.write_durably(location, b"x" * 4_000_000)

    class Deletes:
        """The file system of the location, on which another process deletes what was just opened."""

        def __getattr__(self, name: str) -> Any:
            return getattr(location.fs, name)

        def open_input_file(self, path: str) -> Any:
            return self._opened(location.fs.open_input_file(path))

        def open_input_stream(self, path: str) -> Any:
            return self._opened(location.fs.open_input_stream(path))

        def _opened(self, file: Any) -> Any:
            location.fs.delete_file(location.path)
            return file

    deleted = replace(location, fs=Deletes())
    with pytest.raises(FileNotFoundError, match=r"s3://.*object was deleted while it was read"):
        storage.read_all(deleted, 1 << 30) if opener == "open_input_file" else list(storage.pieces(deleted))
