"""A process of pytest that ends in the middle of a test costs that test, and neither the run nor any other test."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.rotating]
ROOT = Path(__file__).resolve().parents[3]
CONFTEST = "from tests.crashed_workers import pytest_xdist_make_scheduler\n"
WATCHDOG = """
from tests import watchdog
from tests.watchdog import pytest_configure, pytest_exception_interact, pytest_runtest_protocol, pytest_unconfigure
watchdog.GRACE_S = 0.5
"""
HANGS = """
import threading, pytest

@pytest.fixture
def thread():
    never = threading.Thread(target=threading.Event().wait)
    never.start()
    yield
    while never.is_alive():  # as code outside Python that no timeout reaches
        try:
            never.join()
        except BaseException:
            pass

def test_a(thread): assert False
def test_b(): pass
"""
FILES = {
    "test_before.py": "def test_a(): pass",
    "test_ends.py": "import os\ndef test_a(): pass\ndef test_b(): os._exit(1)\ndef test_c(): pass",
    "test_ends_again.py": "import os\ndef test_a(): os._exit(1)",
    "test_many.py": "import pytest\n@pytest.mark.parametrize('n', range(3))\ndef test_a(n): pass",
    "test_one.py": "def test_a(): pass",
}


def run(folder: Path, files: dict[str, str], workers: int) -> subprocess.CompletedProcess[str]:
    for name, text in files.items():
        (folder / name).write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "xdist", "-p", "pytest_timeout"]
    command += ["-p", "no:cacheprovider", "-n", str(workers), "--dist", "loadfile"]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def failed(result: subprocess.CompletedProcess[str]) -> set[str]:
    lines = {line.partition(" - ")[0] for line in result.stdout.splitlines()}
    return {line.removeprefix("FAILED ") for line in lines if line.startswith("FAILED ")}


@pytest.mark.parametrize("workers", [1, 2])
def test_every_other_test_runs_once_when_a_process_ends_in_a_test(workers: int, tmp_path: Path) -> None:
    result = run(tmp_path, {"conftest.py": CONFTEST, "pytest.ini": "[pytest]\n"} | FILES, workers)
    assert result.returncode == 1, result
    assert "2 failed, 7 passed" in result.stdout, result
    assert failed(result) == {"test_ends.py::test_b", "test_ends_again.py::test_a"}


def test_a_failed_test_whose_thread_never_ends_costs_only_itself(tmp_path: Path) -> None:
    settings = {"conftest.py": CONFTEST + WATCHDOG, "pytest.ini": "[pytest]\ntimeout = 1\n"}
    files = {"test_hangs.py": HANGS, "test_other.py": FILES["test_one.py"]}
    result = run(tmp_path, settings | files, 2)
    assert result.returncode == 1, result
    assert failed(result) == {"test_hangs.py::test_a"}
    assert {"PASSED test_hangs.py::test_b", "PASSED test_other.py::test_a"} <= set(result.stdout.splitlines()), result
