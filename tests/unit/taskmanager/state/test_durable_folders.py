"""Folders that were made for a file survive a crash of the machine as the file does."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest
from lockgate_common import storage as filesystem


def test_the_parents_of_new_folders_are_synced_from_the_top(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr(filesystem, "sync_folder", synced.append)
    target = filesystem.locate(str(tmp_path / "run" / "chk-1" / "state"))
    filesystem.write_durably(target, b"x")
    assert synced == [str(tmp_path), str(tmp_path / "run"), str(tmp_path / "run" / "chk-1")]
    synced.clear()
    filesystem.write_durably(target, b"y")
    assert synced == [str(tmp_path / "run" / "chk-1")], "nothing above it is new"
    assert filesystem.read_all(target, 1).to_pybytes() == b"y"


def test_a_full_disk_is_reported_with_the_file_that_did_not_fit(tmp_path: Path) -> None:
    def pieces() -> Iterator[bytes]:
        yield b"x"
        raise OSError(errno.ENOSPC, "No space left on device")

    target = filesystem.locate(str(tmp_path / "chk-1" / "a.state"))
    with pytest.raises(OSError, match=r"No space left on device: '.*/chk-1/a\.state'") as caught:
        filesystem.write_pieces_durably(target, pieces())
    assert caught.value.errno == errno.ENOSPC
    assert list((tmp_path / "chk-1").iterdir()) == []
