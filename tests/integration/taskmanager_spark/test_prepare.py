"""`lockgate prepare`: the archive is made once, and the next JVM really maps it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PATIENCE_S = 900.0  # the archive is made by one thread of the JVM, which a busy machine gives little time
pytestmark = [pytest.mark.integration, pytest.mark.rotating, pytest.mark.first, pytest.mark.timeout(4 * PATIENCE_S)]

_MAPS = """
import sys
from pathlib import Path
from lockgate_taskmanager.spark.engine import SparkEngine
from lockgate_taskmanager.spark.session import driver_process

engine = SparkEngine(work_dir=sys.argv[1])
maps = Path(f"/proc/{driver_process(engine._session).pid}/maps").read_text()
print("\\n".join({line.split()[-1] for line in maps.splitlines() if line.endswith(".jsa")}))
engine.close()
"""


def _run(*command: str, cache: Path) -> str:
    done = subprocess.run(
        [sys.executable, *command],
        env={**os.environ, "XDG_CACHE_HOME": str(cache)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_the_archive_is_made_once_and_used(tmp_path: Path) -> None:
    assert "preparing" in _run("-m", "lockgate", "prepare", cache=tmp_path)
    (archive,) = (tmp_path / "lockgate").iterdir()
    made = archive.stat().st_mtime_ns
    assert archive.stat().st_size > 50 << 20
    assert _run("-m", "lockgate", "prepare", cache=tmp_path) == f"ready: {archive}\n"
    assert archive.stat().st_mtime_ns == made
    assert str(archive) in _run("-c", _MAPS, str(tmp_path / "work"), cache=tmp_path)


def test_an_archive_that_does_not_fit_is_ignored(tmp_path: Path) -> None:
    where = "from lockgate_taskmanager.spark.class_archive import path; print(path())"
    archive = Path(_run("-c", where, cache=tmp_path).strip())
    archive.parent.mkdir()
    archive.write_bytes(b"not an archive")
    assert str(archive) not in _run("-c", _MAPS, str(tmp_path / "work"), cache=tmp_path)
