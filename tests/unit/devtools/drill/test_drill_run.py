"""A drill as a command: what is refused before anything is started, and what becomes of the report."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from lockgate_devtools.drill import run
from lockgate_devtools.drill.model import Kill, RecordCheck, Report, Target

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
    told = capsys.readouterr()
    assert "verdict:     pass" in told.out
    assert told.err.startswith("error: ")


def test_the_report_is_in_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "drill", lambda *_: REPORT)
    assert run.run_drill(json_file=str(tmp_path / "report.json")) == 0
    assert json.loads((tmp_path / "report.json").read_text()) == REPORT.to_json()
