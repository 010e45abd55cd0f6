"""Folders that no other user may enter, and those that are left alone."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from lockgate_common import private_folder


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    """Everything that is made is for everybody, unless it says otherwise."""
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    """Permissions, and the bits in front of them."""
    return stat.S_IMODE(path.stat().st_mode)


def test_everything_that_is_made_is_closed(tmp_path: Path) -> None:
    private_folder.make(tmp_path / "a" / "b" / "c")
    assert [mode(tmp_path / name) for name in ("a", "a/b", "a/b/c")] == [0o700] * 3


def test_an_open_folder_is_closed_and_none_above_it(tmp_path: Path) -> None:
    above = tmp_path / "above"
    (above / "mine").mkdir(parents=True)
    above.chmod(0o755)
    (above / "mine").chmod(0o2775)
    private_folder.make(above / "mine")
    assert mode(above) == 0o755
    assert mode(above / "mine") == 0o2700


def test_a_folder_that_users_share_stays_shared(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    private_folder.make(tmp_path)
    assert mode(tmp_path) == 0o1777


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_the_folder_of_another_user_stays_as_it_is(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    os.chown(tmp_path, 65534, 65534)
    private_folder.make(tmp_path)
    assert mode(tmp_path) == 0o777


def test_a_file_in_its_place_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        private_folder.make(tmp_path / "file")
