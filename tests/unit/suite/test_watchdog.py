"""A hang that no signal reaches ends the run, and it has failed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.rotating]
ROOT = Path(__file__).resolve().parents[3]
CONFTEST = """
from tests import watchdog
from tests.watchdog import pytest_configure, pytest_exception_interact, pytest_runtest_protocol, pytest_unconfigure
watchdog.GRACE_S = 0.5
"""
PARTS = """
import ctypes, signal, threading, pytest

def hang():
    signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals))
    ctypes.CDLL(None).pause()
"""
HANGS = {
    "test": "def test_a(): hang()",
    "set-up": "@pytest.fixture\ndef held(): hang()\ndef test_a(held): pass",
    "tear-down": "@pytest.fixture\ndef held():\n    yield\n    hang()\ndef test_a(held): pass",
    "tear-down of a failed test": "@pytest.fixture\ndef held():\n    yield\n    hang()\ndef test_a(held): assert False",
    "end of the process": "def test_a(): threading.Thread(target=hang).start()",
}


@pytest.mark.parametrize(
    ("place", "workers"),
    [*((place, 0) for place in HANGS), ("test", 1), ("tear-down of a failed test", 1)],
)
def test_a_hang_outside_python_ends_the_run_as_a_failure(place: str, workers: int, tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\ntimeout = 1\n")
    (tmp_path / "test_hangs.py").write_text(PARTS + HANGS[place])
    command = [sys.executable, "-m", "pytest", "-q", "-p", "xdist", "-p", "pytest_timeout", "-p", "no:cacheprovider"]
    command += ["-n", str(workers), "--rootdir", str(tmp_path), str(tmp_path)]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert "most recent call first" in result.stderr, result
    assert result.returncode == 1, result
