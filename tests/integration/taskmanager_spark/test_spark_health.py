"""Spark that is dead in a living JVM is noticed, and its slots are not offered any more."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.taskmanager_spark import lost_process

pytestmark = [pytest.mark.integration, pytest.mark.rotating, pytest.mark.timeout(900)]


@pytest.mark.parametrize(
    ("how", "noticed", "message"),
    [
        ("blocks", "idle", "the health check job fails"),
        ("blocks", "failure", "the health check job fails"),
        ("context", "failure", "its SparkContext was stopped"),
    ],
)
def test_spark_that_no_longer_runs_jobs_ends_its_jvm(tmp_path: Path, how: str, noticed: str, message: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", lost_process.__name__, str(tmp_path), how, noticed],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines()[-1].startswith("Spark's JVM ended with status -9"), done.stdout
    assert f"Spark can no longer run jobs here: {message}" in done.stderr
