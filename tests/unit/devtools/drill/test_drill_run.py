"""A drill as a command: what is refused before anything is started, and what becomes of the report."""

from __future__ import annotations

import json
import random
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock, Mock

import pytest
from lockgate_devtools.cluster.errors import ClusterError
from lockgate_devtools.cluster.foreground import Stopped
from lockgate_devtools.drill import run
from lockgate_devtools.drill.arena import DrillError
from lockgate_devtools.drill.model import Kill, RecordCheck, Report, Target
from lockgate_devtools.drill.page import page
from lockgate_devtools.drill.processes import ProcessArena
from lockgate_devtools.drill.round import Round, RoundResult
from lockgate_devtools.drill.run import DrillOptions
from lockgate_devtools.drill.tally import Tally
from lockgate_devtools.drill.tampering import prepare

from lockgate.client import ClientError

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
        ({"minutes": float("nan")}, "--minutes must be more than 0 and at most 10080"),
        ({"minutes": float("inf")}, "--minutes must be more than 0 and at most 10080"),
        ({"cluster": "c:1", "cluster_options": {"storage": "/data"}}, "--slots, --storage, .* omit them, or --cluster"),
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


def completed(monkeypatch: pytest.MonkeyPatch, then: Callable[[], object] = lambda: None) -> None:
    """A drill of one round, whose report is REPORT."""

    def drill(_options: DrillOptions, tally: Tally, _say: object) -> None:
        tally.rounds.append(RoundResult(list(REPORT.kills), REPORT.records, 9, 1))
        tally.is_over = True
        then()

    monkeypatch.setattr(run, "drill", drill)


def test_the_report_is_shown_even_when_its_file_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    completed(monkeypatch, folder.rmdir)
    assert run.run_drill(seed=5, json_file=str(folder / "report.json")) == 2
    printed = capsys.readouterr()
    assert "verdict:     pass" in printed.out
    assert printed.err.startswith("error: ")


def test_the_report_is_in_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    completed(monkeypatch)
    files = {"json_file": str(tmp_path / "report.json"), "html_file": str(tmp_path / "report.html")}
    assert run.run_drill(seed=5, **files) == 0
    found = json.loads((tmp_path / "report.json").read_text())
    assert [row["target"] for row in found.pop("by_target")] == ["leader"]
    assert found == REPORT.to_json()
    assert (tmp_path / "report.html").read_text() == page(REPORT)


EXACT, LOSS = RecordCheck(300, 0, 0), RecordCheck(300, 5, 3)
KILL = Kill(Target.LEADER, 4711, 2.5)


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[int]]:
    """Makes a drill of some rounds without a cluster: the check of each, or what it raises after its kill.

    Returns the numbers of the kills with which rounds have begun, as far as they have.
    """
    anything = MagicMock()
    anything.__enter__.return_value = anything
    for name in ("LocalCluster", "Client", "ProcessArena"):
        monkeypatch.setattr(run, name, lambda *_, **__: anything)

    def made(*ends: RecordCheck | BaseException) -> list[int]:
        begun: list[int] = []

        def ran(round_: Round, first: int) -> RoundResult:
            end = ends[len(begun)]
            begun.append(first)
            round_.result.kills.append(KILL)
            if isinstance(end, BaseException):
                raise end
            round_.result.records = end
            return round_.result

        monkeypatch.setattr(Round, "run", ran)
        return begun

    return made


def test_a_round_that_loses_records_is_the_last_one(
    rounds: Callable[..., list[int]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begun = rounds(LOSS, EXACT)
    assert run.run_drill(times=2, directory=str(tmp_path), json_file=str(tmp_path / "r.json")) == 1
    assert begun == [1]
    assert "300 expected, 5 lost, 3 duplicated" in capsys.readouterr().out
    assert json.loads((tmp_path / "r.json").read_text())["verdict"] == "fail"


@pytest.mark.parametrize(
    ("error", "code", "reason"),
    [
        (DrillError("the job completed no checkpoint"), 2, "the job completed no checkpoint"),
        (ClientError("no leader answered"), 2, "no leader answered"),
        (OSError("no space"), 2, "no space"),
        (Stopped(), 130, "it was interrupted"),
    ],
)
def test_an_early_end_keeps_what_was_found_before(
    error: BaseException,
    code: int,
    reason: str,
    rounds: Callable[..., list[int]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    rounds(EXACT, error)
    file, html = tmp_path / "r.json", tmp_path / "r.html"
    file.write_text('{"verdict": "pass"}')
    assert run.run_drill(times=3, directory=str(tmp_path), json_file=str(file), html_file=str(html)) == code
    printed, found = capsys.readouterr(), json.loads(file.read_text())
    assert "verdict:     incomplete" in printed.out
    assert f"stopped:     {reason}" in printed.out
    assert printed.err == ("" if code == 130 else f"error: {reason}\n")
    assert (found["verdict"], found["stopped"], found["problems"]) == ("incomplete", reason, [])
    assert (len(found["kills"]), found["records"]["expected"]) == (2, 300), "the kill of the last round, too"
    assert reason in html.read_text()


@pytest.mark.parametrize("error", [DrillError("no checkpoint"), Stopped(), ZeroDivisionError("oh")])
def test_a_fault_that_was_found_decides_whatever_ends_the_drill(
    error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def drill(_options: DrillOptions, tally: Tally, _say: object) -> None:
        tally.rounds.append(RoundResult([KILL], LOSS))
        raise error

    monkeypatch.setattr(run, "drill", drill)
    file = tmp_path / "r.json"
    if isinstance(error, ZeroDivisionError):
        with pytest.raises(ZeroDivisionError):  # the command line keeps its traceback, and exits with 1
            run.run_drill(json_file=str(file))
    else:
        assert run.run_drill(json_file=str(file)) == 1
    assert "5 lost, 3 duplicated" in capsys.readouterr().out
    assert json.loads(file.read_text())["verdict"] == "fail"


def test_an_older_report_does_not_pass_for_the_one_of_a_drill_that_could_not_run(
    rounds: Callable[..., list[int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds()
    monkeypatch.setattr(run, "LocalCluster", Mock(side_effect=ClusterError("no Java")))
    file, target, link = tmp_path / "r.json", tmp_path / "target.html", tmp_path / "r.html"
    for old in (file, target):
        old.write_text("pass")
    link.symlink_to(target)
    options = {"json_file": str(file), "html_file": str(link)}
    assert run.run_drill(directory=str(tmp_path), every_s=-1.0, **options) == 2
    assert file.read_text() == "pass", "it was refused, and never began"
    assert run.run_drill(directory=str(tmp_path), **options) == 2
    assert not file.exists()
    assert link.is_symlink()
    assert target.read_text() == ""


def test_only_folders_that_a_drill_makes_are_closed(rounds: Callable[..., list[int]], tmp_path: Path) -> None:
    rounds(EXACT, EXACT)
    shared, missing = tmp_path / "shared", tmp_path / "missing"
    shared.mkdir()
    shared.chmod(0o775)
    for folder in (shared, missing):
        assert run.run_drill(times=1, directory=str(folder)) in (0, 1)
    assert [stat.S_IMODE(folder.stat().st_mode) for folder in (shared, missing)] == [0o775, 0o700]


def test_what_a_drill_puts_into_a_shared_folder_is_closed(tmp_path: Path) -> None:
    tmp_path.chmod(0o775)
    output = ProcessArena(Mock(), None, tmp_path).make_folder("drill-1")
    prepare(tmp_path / "cluster")
    for folder in (output, tmp_path / "faults"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_schedule_lasts_for_kills_or_for_minutes() -> None:
    choice = random.Random(1)
    assert DrillOptions(times=2).schedule(choice).next_round(0, 0.0) == [Target.LEADER] * 2
    assert set(DrillOptions(minutes=1.0).schedule(choice).next_round(0, 59.0)) == set(Target)
    assert not DrillOptions(minutes=1.0).schedule(choice).next_round(0, 60.0)
