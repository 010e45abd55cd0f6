"""What the benchmarks measure with: input, rows, summaries, exit codes."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

import pytest
from lockgate_devtools.drill import Kill, RecordCheck, Report, Target

from benchmarks import common, corpus
from benchmarks.common import Measurement, Row, WrongResult, at_least, at_most
from benchmarks.failover import summary
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
    assert found["first_record_ms"] == {"median": 300.0, "p99": 900.0, "worst": 900.0, "all": [100.0, 300.0, 900.0]}
    assert found["granted_ms"] == {}


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


def test_make_runs_every_benchmark_or_the_page_says_that_it_is_left_out() -> None:
    root = Path(__file__).resolve().parents[3]
    page = (root / "docs/benchmarks.md").read_text(encoding="utf-8")
    (loop,) = re.findall(r"for name in ([\w ]+); do \$\(PY\) -m benchmarks", (root / "Makefile").read_text("utf-8"))
    (left_out,) = re.findall(r"`make benchmarks` leaves out (.*?)\n\n", page, re.DOTALL)
    measures = {path.stem for path in (root / "benchmarks").glob("*.py") if "return run(" in path.read_text("utf-8")}
    made = {*loop.split(), *re.findall(r"`(\w+)` \(", left_out)}
    assert made == measures - {"abs_projection"}, "which is `benchmarks.abs --simulate`"
    assert made == set(re.findall(r"^\| `(\w+)` \|", page.partition("\n- **")[0], re.MULTILINE))
