"""A process is stopped while it holds no lock on a database of the drill."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from lockgate_devtools.drill.freezing import freeze

pytestmark = pytest.mark.skipif(not Path("/proc/locks").exists(), reason="Linux says who holds a lock")

# holds SQLite's lock for most of the time, and says that it has begun
WRITER = """
import sqlite3, sys, time
database = sqlite3.connect(sys.argv[1], isolation_level=None)
database.execute("CREATE TABLE totals (n INTEGER)")
while True:
    database.execute("BEGIN IMMEDIATE")
    print("locked", flush=True)
    time.sleep(0.05)
    database.execute("COMMIT")
    time.sleep(0.01)
"""


@pytest.fixture
def database(tmp_path: Path) -> Path:
    folder = tmp_path / "drill-1"
    folder.mkdir()
    return folder / "totals.db"


@pytest.fixture
def writer(database: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", WRITER, str(database)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        yield process
        process.kill()


def test_another_process_can_write_while_it_is_frozen(
    writer: subprocess.Popen[str], database: Path, tmp_path: Path
) -> None:
    for _ in range(10):
        freeze(writer.pid, tmp_path)
        other = sqlite3.connect(database, timeout=0, isolation_level=None)
        other.execute("INSERT INTO totals VALUES (1)")  # raises OperationalError when it is locked
        other.close()
        os.kill(writer.pid, signal.SIGCONT)


def test_a_process_that_is_gone_is_an_error(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    with pytest.raises(ProcessLookupError):
        freeze(process.pid, tmp_path)
