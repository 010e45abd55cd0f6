"""The folder in which Spark and its Python workers meet."""

from __future__ import annotations

import socket
import stat
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from lockgate_taskmanager.spark.worker_sockets import WorkerSockets

ENABLED, FOLDER = "spark.python.unix.domain.socket.enabled", "spark.python.unix.domain.socket.dir"


@pytest.fixture
def short() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="s", dir="/tmp") as folder:
        yield Path(folder)


def long_folder(parent: Path) -> Path:
    folder = parent / ("long" * 20)
    folder.mkdir()
    return folder


def test_a_short_scratch_folder_is_used(short: Path) -> None:
    sockets = WorkerSockets(short)
    assert sockets.settings == {ENABLED: "true", FOLDER: str(short)}
    sockets.close()
    assert short.is_dir(), "it is not ours to remove"


def test_beside_a_long_one_there_is_a_private_folder(short: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(short))
    sockets = WorkerSockets(long_folder(short))
    folder = Path(sockets.settings[FOLDER])
    assert folder.parent == short
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(folder / f".{uuid.uuid4()}.sock"))  # as Spark names them
    sockets.close()
    assert not folder.exists()
    sockets.close()


@pytest.mark.parametrize("is_there", [True, False])
def test_without_a_folder_workers_use_tcp(
    short: Path, is_there: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    long = long_folder(short)
    monkeypatch.setattr(tempfile, "tempdir", str(long) if is_there else "/proc/no")
    sockets = WorkerSockets(long)
    assert sockets.settings == {}
    assert "take 40 ms longer: set taskmanager.work_dir, or TMPDIR, to a folder with a path of less than" in caplog.text
    sockets.close()
