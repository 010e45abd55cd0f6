"""The report's JSON shape, its text and its verdict."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from lockgate_devtools.drill.by_target import by_target
from lockgate_devtools.drill.model import Kill, Mode, RecordCheck, Report, Target
from lockgate_devtools.drill.page import page
from lockgate_devtools.drill.text import describe_kill, render

KILL = Kill(Target.LEADER, 4711, 2.5, 8.0, 150.0, 290.0, 1290.0, Mode.RESTART, 6, 1200, 0.75)
PASS = Report(5, (KILL,), RecordCheck(300, 0, 0), 9, 1)


def test_json_has_exactly_the_promised_shape() -> None:
    assert json.loads(json.dumps(PASS.to_json())) == {
        "seed": 5,
        "kills": [
            {
                "target": "leader",
                "pid": 4711,
                "detected_ms": 2.5,
                "granted_ms": 8.0,
                "deployed_ms": 150.0,
                "first_record_ms": 290.0,
                "first_checkpoint_ms": 1290.0,
                "mode": "restart",
                "restarted_subtasks": 6,
                "records_read_again": 1200,
                "throughput_ratio": 0.75,
            }
        ],
        "records": {"expected": 300, "lost": 0, "duplicated": 0},
        "checkpoints": {"completed": 9, "aborted": 1},
        "problems": [],
        "stopped": None,
        "verdict": "pass",
    }


def test_missing_events_are_null() -> None:
    assert Kill(Target.STANDBY, 1, first_checkpoint_ms=70.0).to_json()["granted_ms"] is None


@pytest.mark.parametrize(
    "report",
    [
        Report(5, (KILL,), RecordCheck(300, 1, 0), 9, 1),
        Report(5, (KILL,), RecordCheck(300, 0, 1), 9, 1),
        Report(5, (KILL,), RecordCheck(0, 0, 0), 9, 1),
        Report(5, (KILL,), RecordCheck(300, 0, 0), 9, 1, ("the job has not finished: FAILED",)),
    ],
)
def test_anything_wrong_fails(report: Report) -> None:
    assert not report.passed
    assert report.to_json()["verdict"] == "fail"
    assert "verdict:     FAIL" in render(report)


def test_the_json_says_why_a_drill_has_failed() -> None:
    found = Report(5, (KILL,), RecordCheck(300, 0, 0), 9, 1, ("kill 2 was not survived",)).to_json()
    assert (found["verdict"], found["problems"]) == ("fail", ["kill 2 was not survived"])


def test_a_drill_that_did_not_come_to_its_end_neither_passes_nor_fails() -> None:
    report = Report(5, (KILL,), RecordCheck(0, 0, 0), 9, 1, stopped="no leader <answered>")
    assert (report.passed, report.failed, report.verdict) == (False, False, "incomplete")
    assert "stopped:     no leader <answered>" in render(report)
    assert "verdict:     incomplete" in render(report)
    assert '<span class="incomplete">incomplete</span>' in page(report)
    assert "stopped: no leader &lt;answered&gt;" in page(report)
    lost = replace(report, records=RecordCheck(300, 1, 0))
    assert (lost.failed, lost.verdict) == (True, "fail")


def test_text_says_after_how_many_kills_nothing_was_restarted() -> None:
    adopted = Kill(Target.LEADER, 4713, 2.5, 8.0, 33.0, first_checkpoint_ms=700.0, mode=Mode.REATTACH)
    text = render(Report(5, (KILL, adopted), RecordCheck(300, 0, 0), 9, 1))
    assert "after 1 of 2 kills the new leader adopted what ran: nothing restarted" in text
    assert "adopted" not in render(PASS)
    assert describe_kill(adopted).endswith("first checkpoint 700 ms, nothing was restarted")


@pytest.mark.parametrize(("mode", "text"), [(Mode.REGION, "region"), (Mode.PARTIAL, "partial")])
def test_report_says_after_how_many_kills_only_a_part_restarted(mode: Mode, text: str) -> None:
    region = Kill(Target.TASKMANAGER, 4714, 2.5, mode=mode, restarted_subtasks=2)
    report = Report(5, (KILL, region), RecordCheck(300, 0, 0), 9, 1)
    assert "after 1 of 2 kills only a part of the job restarted" in render(report)
    assert "only a part" not in render(PASS)
    assert describe_kill(region) == "detected 2 ms, 2 subtasks restarted and the others ran on"
    assert region.to_json()["mode"] == text
    assert [row.to_json()["in_part"] for row in by_target(report.kills)] == [0, 1]
    assert "<td>1</td><td>0</td><td>1</td>" in page(report), "one kill, not adopted, in part"


def test_text_says_what_a_kill_has_cost() -> None:
    text = "first checkpoint 1290 ms, 6 subtasks restarted, 1200 records read again, throughput in that second 75%"
    assert describe_kill(KILL).endswith(text)


def test_text_names_times_records_and_problems() -> None:
    report = Report(5, (KILL, Kill(Target.LEADER, 4712)), RecordCheck(300, 2, 3), 9, 1, ("kill 2 was not survived",))
    text = render(report)
    for part in ("4711", "290.0", "median", "300 expected, 2 lost, 3 duplicated", "kill 2 was not survived"):
        assert part in text
