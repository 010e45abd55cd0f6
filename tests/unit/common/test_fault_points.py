"""Fault points: inert unless named, deadly at the passage that is named."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from lockgate_common.clock import monotonic_ms, unix_ms, unix_us
from lockgate_common.fault_points import (
    VARIABLE,
    FaultPoints,
    clock_fault,
    folder_variable,
    full_fault,
    plant,
    slow_fault,
)
from lockgate_common.storage import locate, write_durably


@pytest.fixture
def killed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    kills: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: kills.append((pid, number)))
    monkeypatch.delenv(VARIABLE, raising=False)
    return kills


def test_points_do_nothing_unless_named_and_kill_at_the_number(
    killed: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    point = FaultPoints(("before-ack", "after-commit")).point
    point("before-ack")
    monkeypatch.setenv(VARIABLE, "before-ack:2")
    point("after-commit")
    point("before-ack")
    assert killed == []
    point("before-ack")
    assert killed == [(os.getpid(), signal.SIGKILL)]


def test_a_point_stops_its_own_thread_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal to the whole process may reach another thread first, and this one goes past the point meanwhile."""
    stopped: list[tuple[int, int]] = []
    monkeypatch.setattr("signal.pthread_kill", lambda thread, number: stopped.append((thread, number)))
    point = FaultPoints(("before-ack",)).point
    monkeypatch.setenv(VARIABLE, "stop:before-ack:2")
    for _ in range(4):
        point("before-ack")
    assert stopped == [(threading.get_ident(), signal.SIGSTOP)], "whoever goes on after SIGCONT is not stopped again"


def test_a_point_that_no_test_could_try_is_a_mistake(killed: list[tuple[int, int]]) -> None:
    with pytest.raises(ValueError, match="'before-akc' is not one of the fault points before-ack"):
        FaultPoints(("before-ack",)).point("before-akc")
    assert killed == []


def test_a_fault_is_planted_in_a_process_that_runs_and_taken_out_again(
    killed: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Passages count from when it was planted; another process's file means nothing here."""
    folder = tmp_path / "faults"
    folder.mkdir()
    monkeypatch.setenv(VARIABLE, folder_variable(folder))
    point = FaultPoints(("before-ack", "after-commit")).point
    point("before-ack")
    plant(folder, os.getpid() + 1, "before-ack")
    plant(folder, os.getpid(), "before-ack:2")
    point("before-ack")
    point("after-commit")
    assert killed == []
    plant(folder, os.getpid(), None)
    point("before-ack")
    plant(folder, os.getpid(), "before-ack:2")
    point("before-ack")
    assert killed == []
    point("before-ack")
    assert killed == [(os.getpid(), signal.SIGKILL)]
    assert sorted(path.name for path in folder.iterdir()) == sorted({str(os.getpid()), str(os.getpid() + 1)})


def test_a_folder_that_has_not_changed_is_not_read(
    killed: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "faults"
    folder.mkdir()
    monkeypatch.setenv(VARIABLE, folder_variable(folder))
    point = FaultPoints(("before-ack",)).point
    plant(folder, os.getpid(), "before-ack:3")
    point("before-ack")
    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_text", lambda *_, **__: pytest.fail("the file was read again"))
        point("before-ack")
    assert killed == []
    point("before-ack")
    assert killed == [(os.getpid(), signal.SIGKILL)]


@pytest.mark.parametrize("role", ["coordinator", "taskmanager"])
def test_the_points_of_a_role_end_its_process_like_a_power_cut(role: str) -> None:
    imported = f"from lockgate_{role}.runtime import faults\n"
    program = f"{imported}for n in range(3):\n print(n, flush=True)\n faults.point(faults.POINTS[0])"
    names = {"coordinator": "before-metadata-write", "taskmanager": "on-deploy"}
    for fault, printed, code in ((f"{names[role]}:2", "0\n1\n", -signal.SIGKILL), ("q", "0\n1\n2\n", 0)):
        done = subprocess.run(
            [sys.executable, "-c", program], env={VARIABLE: fault}, capture_output=True, text=True, check=False
        )
        assert (done.stdout, done.returncode) == (printed, code)


def test_the_wall_clock_is_off_for_as_long_as_that_is_planted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "faults"
    folder.mkdir()
    monkeypatch.setenv(VARIABLE, folder_variable(folder))
    plant(folder, os.getpid(), clock_fault(-3_600))
    assert unix_ms() == pytest.approx(time.time() * 1_000 - 3_600_000, abs=60_000)
    assert unix_us() == pytest.approx(time.time() * 1_000_000 - 3_600_000_000, abs=60_000_000)
    assert monotonic_ms() == pytest.approx(time.monotonic() * 1_000, abs=60_000), "this one is never off"
    plant(folder, os.getpid(), None)
    assert unix_ms() == pytest.approx(time.time() * 1_000, abs=60_000)


def test_a_full_storage_leaves_no_file_and_others_are_not_full(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder, storage = tmp_path / "faults", tmp_path / "storage"
    folder.mkdir()
    monkeypatch.setenv(VARIABLE, folder_variable(folder))
    plant(folder, os.getpid(), full_fault(storage))
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)) as full:
        write_durably(locate(str(storage / "chk-1" / "state")), b"state")
    assert full.value.errno == errno.ENOSPC
    assert not list(storage.rglob("*state*"))
    write_durably(locate(str(tmp_path / "storage-2")), b"elsewhere")
    plant(folder, os.getpid(), None)
    write_durably(locate(str(storage / "chk-1" / "state")), b"state")
    assert (storage / "chk-1" / "state").read_bytes() == b"state"


def test_a_slow_storage_delays_its_own_files_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    storage, slept = tmp_path / "storage", list[float]()
    monkeypatch.setattr("lockgate_common.storage.time.sleep", slept.append)
    monkeypatch.setenv(VARIABLE, slow_fault(storage, 2.5))
    write_durably(locate(str(storage / "chk-1" / "state")), b"state")
    write_durably(locate(str(tmp_path / "storage-2")), b"elsewhere")
    monkeypatch.setenv(VARIABLE, full_fault(tmp_path / "full"))
    write_durably(locate(str(storage / "chk-2" / "state")), b"state")
    assert slept == [2.5, 0.0, 0.0]
    assert (storage / "chk-1" / "state").read_bytes() == b"state"
