"""The file through which micro-batches get into Spark, without Spark."""

from __future__ import annotations

import errno
import resource
from pathlib import Path

import pytest
from lockgate_taskmanager.spark.leaf import Form, LeafSpec, SlotLeaf


def test_content_without_room_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    leaf = SlotLeaf(None, LeafSpec(Form.TEXT), str(tmp_path / "a.slot"))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(OSError, match=rf"does not fit in {tmp_path}; give the file system more room") as caught:
            leaf.load([b"x" * 5000 + b"\n"])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caught.value.errno == errno.EFBIG
    leaf.load([b"a\n", b"b\n"])
    assert (tmp_path / "a.slot").read_bytes() == b"a\nb\n", "what did not fit is gone"
    leaf.close()
    assert not list(tmp_path.iterdir())
