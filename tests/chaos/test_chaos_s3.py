"""The drill on a cluster that keeps its snapshots on an S3 server, named by a URI with options."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow.fs as pafs
import pytest
from lockgate_common.storage import locate

from tests.s3_server import server_for_tests

pytestmark = [pytest.mark.chaos, pytest.mark.rotating, pytest.mark.first, pytest.mark.timeout(900)]


@pytest.mark.parametrize("victim", [pytest.param("leader", marks=pytest.mark.soak), "taskmanager"])
def test_nothing_is_lost_when_snapshots_are_on_s3(tmp_path: Path, victim: str) -> None:
    """In test_chaos_secrets.py the leader of a cluster with such a storage dies, too."""
    with server_for_tests(str(tmp_path / "s3.log")) as s3:
        storage, report = s3.uri("drill"), tmp_path / "report.json"
        words = ["--kill", victim, "--times", "1", "--every", "1", "--storage", storage, "--json", str(report)]
        done = subprocess.run(
            [sys.executable, "-m", "lockgate", "drill", *words], capture_output=True, text=True, timeout=600
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "not-in-any-log" not in done.stdout + done.stderr
        drill = json.loads(report.read_text())
        assert drill["records"]["lost"] == drill["records"]["duplicated"] == 0, drill["records"]
        assert [kill["target"] for kill in drill["kills"]] == [victim]
        requests = (tmp_path / "s3.log").read_text()
        assert "/chk-" in requests, "no snapshot ever came to the server"
        bucket = locate(storage)
        kept = bucket.fs.get_file_info(pafs.FileSelector(bucket.path, recursive=True))
        assert [info.path for info in kept if "/chk-" in info.path] == [], "an ended job leaves no snapshot"
