"""The folder of a run in a storage of any kind, as the coordinator deletes in it and task managers write to it."""

from __future__ import annotations

from urllib.parse import unquote

import pyarrow.fs as pafs
from lockgate_common import storage
from lockgate_common.masking import bare
from lockgate_coordinator.checkpoint.handles import all_handles
from lockgate_coordinator.runtime.metadata_files import MetadataFiles, Run
from lockgate_proto.messages import CheckpointMetadata, StateBackend, StateHandle
from lockgate_taskmanager.state.backend import SnapshotWriter, make_backend, remove_checkpoint

RUN = Run("job", "run")


class JobFolder:
    """One run's. storage: a local path or a URI."""

    def __init__(self, storage: str) -> None:
        self._files = MetadataFiles(storage, "c", "secret")
        self._published: dict[int, str] = {}  # pointers by checkpoint, as ZooKeeper keeps them
        self.uri = self._files.run_directory(RUN)

    def writer(self, choice: StateBackend, number: int, part: int = 0, attempt: int = 1) -> SnapshotWriter:
        """That of subtask `part` for a checkpoint."""
        return make_backend(choice, self.uri, f"a{attempt}-v-{part}").writer(number)

    def publish(self, metadata: CheckpointMetadata) -> CheckpointMetadata:
        """Writes the metadata of a complete checkpoint. Returns what the file says."""
        stored = self._files.write(RUN, metadata, self._files.content(metadata))
        self._published[metadata.checkpoint_id] = stored.pointer
        return self._files.read(stored.pointer, stored.checksum)

    def discard(self, number: int, free: tuple[str, ...]) -> None:
        """Deletes a subsumed checkpoint. free: the shared files that no other refers to."""
        assert set(free) <= set(self._files.shared_files(RUN))
        self._files.delete_pointed(self._published.pop(number))
        self._files.delete_shared(RUN, free)

    def abort(self, number: int) -> None:
        """Deletes what a task manager has stored for a checkpoint that never became complete."""
        remove_checkpoint(self.uri, number)

    def end(self) -> None:
        """Deletes the run: its job has ended."""
        self._files.delete_run(RUN)

    def names(self) -> set[str]:
        """Every file of the run, relative to it."""
        root = storage.locate(self.uri)
        selector = pafs.FileSelector(root.path, recursive=True, allow_not_found=True)
        return {info.path.removeprefix(f"{root.path}/") for info in root.fs.get_file_info(selector) if info.is_file}

    def named(self, metadata: CheckpointMetadata) -> set[str]:
        """The files of a complete checkpoint, relative to the run."""
        run = bare(self.uri)
        paths = {bare(handle.path) for handle in all_handles(metadata.subtasks) if handle.path}
        assert all(path.startswith(f"{run}/") for path in paths)
        return {f"chk-{metadata.checkpoint_id}/_metadata", *(unquote(path.removeprefix(f"{run}/")) for path in paths)}


def content_of_file(handle: StateHandle) -> bytes:
    """The bytes of a state file, whatever they are."""
    location = storage.locate(handle.path)
    with location.fs.open_input_file(location.path) as file:
        found: bytes = file.read()
    return found


def put(handle: StateHandle, content: bytes | None) -> None:
    """Damages a state file. None: deletes it."""
    location = storage.locate(handle.path)
    if content is None:
        location.fs.delete_file(location.path)
        return
    with location.fs.open_output_stream(location.path) as file:
        file.write(content)
