"""Which files are believed: by owner and mode, of the file that is read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from lockgate_common import trusted_files
from lockgate_common.trusted_files import UntrustedFile, read_trusted

OTHER = 65534


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_text("content")
    path.chmod(0o600)
    return path


def owned_by(monkeypatch: pytest.MonkeyPatch, owner: int, group: int = OTHER, me: int = 1000) -> None:
    """As if the file belonged to `owner` and this process ran as `me`: only root could make it so."""
    fstat = os.fstat

    def changed(descriptor: int) -> os.stat_result:
        found = list(fstat(descriptor))
        found[4], found[5] = owner, group
        return os.stat_result(found)

    monkeypatch.setattr(trusted_files.os, "fstat", changed)
    monkeypatch.setattr(trusted_files.os, "geteuid", lambda: me)


def test_an_own_file_is_read(path: Path) -> None:
    assert read_trusted(path) == read_trusted(path, is_secret=True) == "content"


@pytest.mark.parametrize(
    ("owner", "me", "is_secret", "is_read"),
    [
        (1000, 1000, False, True),
        (0, 1000, False, True),
        (0, 1000, True, True),
        (OTHER, 1000, False, False),
        (OTHER, 1000, True, False),
        (OTHER, 0, False, False),
        (OTHER, 0, True, True),
    ],
)
def test_the_owner(
    path: Path, monkeypatch: pytest.MonkeyPatch, owner: int, me: int, is_secret: bool, is_read: bool
) -> None:
    owned_by(monkeypatch, owner, me=me)
    if is_read:
        assert read_trusted(path, is_secret=is_secret) == "content"
    else:
        with pytest.raises(UntrustedFile, match="belongs to the user"):
            read_trusted(path, is_secret=is_secret)


@pytest.mark.parametrize("mode", [0o602, 0o620, 0o666])
def test_files_that_others_can_change_are_not_trusted(path: Path, mode: int, monkeypatch: pytest.MonkeyPatch) -> None:
    owned_by(monkeypatch, 1000)
    path.chmod(mode)
    with pytest.raises(UntrustedFile, match="chmod go-w"):
        read_trusted(path)


def test_the_group_of_one_user_is_not_another_user(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owned_by(monkeypatch, 1000, group=1000)
    path.chmod(0o664)
    assert read_trusted(path) == "content"
    path.chmod(0o666)
    with pytest.raises(UntrustedFile, match="chmod go-w"):
        read_trusted(path)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_secret_that_others_can_read_is_none(path: Path, mode: int) -> None:
    path.chmod(mode)
    with pytest.raises(UntrustedFile, match="chmod 600"):
        read_trusted(path, is_secret=True)


@pytest.mark.parametrize(
    ("owner", "mode", "needed"),
    [
        (0, 0o640, None),
        (0, 0o440, None),
        (0, 0o400, None),
        (0, 0o644, "chmod 640"),
        (0, 0o660, "chmod 640"),
        (1000, 0o600, None),
        (1000, 0o640, "chmod 600"),
        (1000, 0o604, "chmod 600"),
        (1000, 0o666, "chmod 600"),
    ],
)
def test_root_may_give_a_key_to_a_group(
    path: Path, monkeypatch: pytest.MonkeyPatch, owner: int, mode: int, needed: str | None
) -> None:
    """As packages of certificates do it, and kubelet with fsGroup."""
    owned_by(monkeypatch, owner)
    path.chmod(mode)
    if needed is None:
        assert read_trusted(path, is_key=True) == "content"
    else:
        with pytest.raises(UntrustedFile, match=f"can be read by other users; run: {needed} "):
            read_trusted(path, is_key=True)


def test_a_pipe_or_a_folder_is_not_waited_for(tmp_path: Path) -> None:
    with pytest.raises(UntrustedFile, match="plain file"):
        read_trusted(Path("/dev/null"))
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(UntrustedFile, match="plain file"):
        read_trusted(tmp_path / "pipe")
    with pytest.raises(OSError):  # noqa: PT011
        read_trusted(tmp_path)
