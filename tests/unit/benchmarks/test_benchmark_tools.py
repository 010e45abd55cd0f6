"""What the benchmarks measure with: input, rows, summaries, exit codes."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest
from lockgate_devtools.drill import Kill, RecordCheck, Report, Target

from benchmarks import abs as abs_
from benchmarks import common, corpus
from benchmarks.common import Measurement, Row, WrongResult, at_least, at_most
from benchmarks.failover import summary
from benchmarks.job_run import JobRun
from lockgate.errors import UserError


def test_the_input_has_the_requested_words_and_is_reproducible(tmp_path: Path) -> None:
    first = corpus.ensure(tmp_path / "a", 1003, 4)
    second = corpus.ensure(tmp_path / "b", 1003, 4)
    texts = [path.read_text() for path in sorted(first.iterdir())]
    assert len(texts) == 4
    assert sum(len(text.split()) for text in texts) == 1003
    assert texts == [path.read_text() for path in sorted(second.iterdir())]


def test_an_existing_input_is_used_again(tmp_path: Path) -> None:
    folder = corpus.ensure(tmp_path, 100, 2)
    (folder / "part-000.txt").write_text("kept")
    assert (corpus.ensure(tmp_path, 100, 2) / "part-000.txt").read_text() == "kept"


def test_goals_are_judged() -> None:
    assert at_most("a", 500, 500, "ms").reached
    assert not at_most("a", 501, 500, "ms").reached
    assert at_least("a", 0.95, 0.95, "").reached
    assert not at_least("a", 4.9e6, 5e6, "words/s").reached


def test_the_table_shows_goal_and_measured() -> None:
    text = common.table([at_most("first record", 700, 500, "ms"), Row("plain", "3 s")])
    assert "700 ms" in text
    assert "<= 500 ms" in text
    assert "MISSED" in text


def test_medians_and_worst_leave_out_missing_events() -> None:
    kills = tuple(Kill(Target.TASKMANAGER, n, first_record_ms=ms) for n, ms in enumerate((100.0, 300.0, 900.0)))
    found = summary(Report(1, kills, RecordCheck(10, 0, 0), 1, 0))
    assert found["first_record_ms"] == {"median": 300.0, "worst": 900.0, "all": [100.0, 300.0, 900.0]}
    assert found["granted_ms"] == {}


def test_the_cost_of_checkpoints_is_relative_to_the_run_without_them_in_the_same_round() -> None:
    seconds = {abs_.NONE: (10.0, 20.0, 10.0), abs_.SETTINGS[1]: (12.5, 20.0, 11.0)}
    runs = {setting: [JobRun(item, 3) for item in own] for setting, own in seconds.items()}
    assert abs_.costs(runs) == {abs_.SETTINGS[1]: pytest.approx(1 / 11)}


@pytest.mark.spark
def test_the_cost_of_checkpoints_is_drawn(tmp_path: Path) -> None:
    found = {setting: 0.01 * number for number, setting in enumerate(abs_.SETTINGS[1:])}
    abs_.plot(found, tmp_path / "abs.png")
    assert (tmp_path / "abs.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("error", "code"), [(WrongResult("3 lost"), 1), (UserError("no Java"), 2), (OSError("full"), 2)]
)
def test_exit_codes(error: Exception, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    def measure(_: argparse.Namespace) -> Measurement:
        raise error

    assert common.run(argparse.Namespace(json=""), measure) == code
    assert str(error) in capsys.readouterr().err


def test_a_missed_goal_exits_with_0_and_json_is_written(tmp_path: Path) -> None:
    def measure(_: argparse.Namespace) -> Measurement:
        return Measurement((at_most("x", 2, 1, "s"),), {"x": 2})

    assert common.run(argparse.Namespace(json=str(tmp_path / "r.json")), measure) == 0
    assert json.loads((tmp_path / "r.json").read_text())["x"] == 2
