"""A graph that was put in the place of a job's in storage: its code must not come as far as a task manager."""

from __future__ import annotations

from pathlib import Path

import pytest
from lockgate_common.checksums import checksum
from lockgate_coordinator.runtime.errors import StorageError
from lockgate_coordinator.runtime.metadata_files import MetadataFiles, Run


def test_a_graph_with_another_content_than_the_sealed_record_says_is_refused(tmp_path: Path) -> None:
    files = MetadataFiles(str(tmp_path), "default")
    own, planted = b"the graph of the job", b"a graph with somebody else's code"
    stored = files.write_graph(Run("job", "run"), own)
    assert stored.checksum == checksum(own)
    assert stored.checksum.startswith("sha256:")  # which no other content can have, unlike a CRC
    (file,) = [path for path in tmp_path.rglob("graph") if path.is_file()]
    file.write_bytes(planted)
    with pytest.raises(StorageError, match="is corrupt: its checksum is"):
        files.read_graph(stored.pointer, stored.checksum)
