"""What `make test-quick` runs imports nothing that `make setup-pure` leaves out."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.rotating]  # it has to know what all those are called
ROOT = Path(__file__).resolve().parents[3]
WITHOUT = """
import sys
absent = set(sys.argv[1].split(","))

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in absent:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
import pytest
sys.exit(pytest.main(sys.argv[2:]))
"""


def _left_out() -> set[str]:
    """Names under which the distributions are imported that `make setup-pure` does not install."""
    found = runpy.run_path(str(ROOT / "scripts/pure_requirements.py"))
    absent = {found["name_of"](line) for line in found["requirements"]()[1]} | {"py4j"}
    return {name for name, homes in packages_distributions().items() if {home.lower() for home in homes} <= absent}


def _pytest(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Where none of those can be imported."""
    plugins = ["-p", "xdist", "-p", "pytest_timeout", "-p", "_hypothesis_pytestplugin", "-p", "no:cacheprovider"]
    selection = ["-q", "-m", "not spark and not slow", *arguments]
    command = [sys.executable, "-c", WITHOUT, ",".join(_left_out()), *plugins, *selection]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def test_the_quick_tests_are_found_without_spark_and_what_else_is_large() -> None:
    assert {"pyspark", "py4j", "pandas", "confluent_kafka", "moto", "deltalake", "matplotlib"} <= _left_out()
    result = _pytest("--collect-only")
    assert result.returncode == 0, result.stdout[-3000:]
    assert "::test_ack_twice_counts_once" in result.stdout
    assert "tests/integration" not in result.stdout


def test_pipelines_are_built_without_spark() -> None:
    """Of the modules that import PySpark only when they use it, those that the quick tests reach."""
    result = _pytest("tests/unit/lockgate/pipeline", "tests/unit/benchmarks")
    assert result.returncode == 0, result.stdout[-3000:]
