"""A drill as a command: what is refused before anything is started, and what becomes of the report."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
from lockgate_devtools.drill import run
from lockgate_devtools.drill.model import Kill, RecordCheck, Report, Target
from lockgate_devtools.drill.page import page
from lockgate_devtools.drill.run import DrillOptions

REPORT = Report(5, (Kill(Target.LEADER, 4711, 2.5),), RecordCheck(300, 0, 0), 9, 1)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"json_file": "nowhere/report.json"},
            "cannot write nowhere/report.json: its folder must exist and be writable",
        ),
        ({"json_file": "."}, "cannot write ."),
        ({"directory": "file"}, "cannot use the folder .*file: .*; choose another with --dir"),
        ({"html_file": "nowhere/report.html"}, "cannot write nowhere/report.html: .*; see --html"),
        ({"minutes": 5.0, "cluster": "c:1"}, "--chaos damages more than processes"),
        ({"minutes": 5.0, "cluster_options": {"storage": "s3://bucket"}}, "--chaos takes the storage away"),
        ({"every_s": float("nan")}, "--every must be 0 to 86400 seconds"),
        ({"every_s": float("inf")}, "--every must be 0 to 86400 seconds"),
    ],
)
def test_an_impossible_drill_is_refused_before_anything_is_killed(
    changes: dict[str, Any],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    monkeypatch.setattr(run, "LocalCluster", lambda *_: pytest.fail("a cluster was started"))
    assert run.run_drill(**changes) == 2
    assert re.search(f"^error: {words}", capsys.readouterr().err)


def test_the_report_is_shown_even_when_its_file_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()

    def drill(*_: object) -> Report:
        folder.rmdir()
        return REPORT

    monkeypatch.setattr(run, "drill", drill)
    assert run.run_drill(json_file=str(folder / "report.json")) == 2
    printed = capsys.readouterr()
    assert "verdict:     pass" in printed.out
    assert printed.err.startswith("error: ")


def test_the_report_is_in_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "drill", lambda *_: REPORT)
    assert run.run_drill(json_file=str(tmp_path / "report.json"), html_file=str(tmp_path / "report.html")) == 0
    found = json.loads((tmp_path / "report.json").read_text())
    assert [row["target"] for row in found.pop("by_target")] == ["leader"]
    assert found == REPORT.to_json()
    assert (tmp_path / "report.html").read_text() == page(REPORT)


def test_a_schedule_lasts_for_kills_or_for_minutes() -> None:
    choice = random.Random(1)
    assert DrillOptions(times=2).schedule(choice).next_round(0, 0.0) == [Target.LEADER] * 2
    assert set(DrillOptions(minutes=1.0).schedule(choice).next_round(0, 59.0)) == set(Target)
    assert not DrillOptions(minutes=1.0).schedule(choice).next_round(0, 60.0)
