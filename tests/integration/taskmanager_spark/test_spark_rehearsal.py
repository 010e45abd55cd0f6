"""An idle task manager's rehearsal: it really runs on Spark, leaves nothing behind, and makes way for a real job."""

from __future__ import annotations

from pathlib import Path

import pytest

from taskmanager.runtime import rehearsal
from taskmanager.runtime.rehearsal import Rehearsal
from taskmanager.spark.engine import SparkEngine

pytestmark = pytest.mark.integration


def test_a_performance_goes_from_plans_to_committed_output(engine: SparkEngine, tmp_path: Path) -> None:
    Rehearsal(engine, str(tmp_path), lambda: True)._perform(tmp_path, "run-1")
    assert list((tmp_path / "files").glob("part-run-1-1-*.parquet"))
    assert (tmp_path / "totals.db").exists()


def test_it_leaves_nothing_behind(
    engine: SparkEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(rehearsal, "FIRST_AFTER_S", 0.0)
    monkeypatch.setattr(rehearsal, "PERFORMANCES", 1)
    caplog.set_level("INFO", logger=rehearsal.__name__)
    one = Rehearsal(engine, str(tmp_path), lambda: True)
    one.start()
    one._thread.join()
    assert [record.message for record in caplog.records] == ["rehearsed: plans and operators are warm"]
    assert not list(tmp_path.iterdir())


def test_a_busy_task_manager_does_not_rehearse(
    engine: SparkEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rehearsal, "FIRST_AFTER_S", 0.0)
    monkeypatch.setattr(engine, "build", lambda _context: pytest.fail("it built a program"))
    one = Rehearsal(engine, str(tmp_path), lambda: False)
    one.start()
    one._thread.join()
    assert not list(tmp_path.iterdir())


def test_stopping_before_it_began_is_fine(engine: SparkEngine, tmp_path: Path) -> None:
    Rehearsal(engine, str(tmp_path), lambda: True).stop()
    started = Rehearsal(engine, str(tmp_path), lambda: True)
    started.start()
    started.stop()
    assert not list(tmp_path.iterdir())
