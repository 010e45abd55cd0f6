"""What people see of a job."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from lockgate_proto import messages as m
from rich.console import Console

from lockgate import json_shapes
from lockgate.commands import views
from lockgate.commands.progress import LiveProgress, PlainProgress, exit_code
from lockgate.commands.story_views import story_text
from lockgate.commands.top import View

LOAD = m.SubtaskLoad(820, 30, 1_000, 12_345, True, True, backlog_records=1_200, has_backlog_records=True)
STATUS = m.JobStatus(
    "k",
    state=m.JobState.RUNNING,
    attempt=2,
    restarts=1,
    operators=(
        m.OperatorStatus("read_text-1", "read_text", "read_text-1", 0, 1_234_567),
        m.OperatorStatus("write_sql-1", "write_sql", "aggregate-1", 99, 0),
    ),
    subtasks=(m.SubtaskStatusView("read_text-1", 0, "tm-0", "RUNNING", LOAD),),
    last_checkpoint=m.CompletedCheckpoint(7, "p", size_bytes=3 * 1024 * 1024, duration_ms=45, longest_sync_us=1500),
    checkpoints_completed=3,
    leader_address="h:1",
)
EVENT = m.JobEvent(m.JobEventKind.LEADER_GRANTED, 1_000_000, text="token 2")


def test_one_line_of_progress() -> None:
    assert views.progress_text(STATUS) == (
        "running, attempt 2, 1,234,567 records from read_text, 99 into write_sql, checkpoint 7 "
        "(45 ms, 3.0 MiB), 1 restart"
    )


def test_a_job_shows_how_busy_its_subtasks_are() -> None:
    header, row = views.job_text(STATUS).split("\n\n")[2].splitlines()
    assert header.split()[-5:] == ["BUSY", "BACK-PRESSURED", "IDLE", "LAG", "BACKLOG"]
    assert row.split()[-8:] == ["RUNNING", "82%", "3%", "15%", "12.3", "s", "1,200", "records"]
    without = replace(STATUS, subtasks=(replace(STATUS.subtasks[0], load=None),))
    assert views.job_text(without).split("\n\n")[2].split()[-5:] == ["-"] * 5


def test_a_job_shows_which_standby_copies_are_complete() -> None:
    keepers = (
        m.CopyStatus("tm-c", ("tm-a", "tm-b"), 12, 7, 3_000_000, 7, 12),
        m.CopyStatus("tm-d", ("tm-a",), 12, 4, 2_000_000, 1, 9, "the disk\x1b is full"),
        m.CopyStatus("tm-a", (), 12, 3, 1_000_000),
    )
    text = views.job_text(replace(STATUS, standby_copies=m.StandbyStatus(4, 2, keepers)))
    (part,) = (part for part in text.split("\n\n") if part.startswith("standby"))
    first, _, complete, lacking, busy, problem = part.splitlines()
    assert first == "standby copies: 2 of 4 have every file of the newest checkpoint"
    assert complete.split() == ["tm-c", "tm-a,", "tm-b", "12", "7", "of", "7", "2.9", "MiB", "12"]
    assert lacking.split()[2:6] == ["12", "1", "of", "4"]
    assert busy.split()[1:5] == ["-", "12", "?", "of"]
    assert problem.startswith("tm-d lacks copies: the disk")
    assert "\x1b" not in text
    assert "standby" not in views.job_text(STATUS)


def test_a_job_without_anything_yet_can_be_shown() -> None:
    empty = m.JobStatus("k", state=m.JobState.WAITING_FOR_SLOTS, message="needs 2 slots")
    assert "waiting for slots" in views.progress_text(empty)
    assert "checkpoints: none yet" in views.job_text(empty)
    assert json_shapes.job_json(empty)["last_checkpoint"] is None


def test_a_job_moves_no_cursor_and_writes_to_no_clipboard(capsys: pytest.CaptureFixture[str]) -> None:
    evil = "\x1b]52;c;ZXZpbA==\x07\x1b[2Jdone"
    operators = tuple(replace(operator, name=evil) for operator in STATUS.operators)
    bad = replace(STATUS, message=evil, error=evil, straggler=evil, operators=operators, state=m.JobState.FAILED)
    leader, line = m.LeaderRecord(1, "h:1"), m.StoryLine(event=evil, effects=(evil,), place=evil)
    console, live = Console(width=200, file=io.StringIO()), LiveProgress()
    for progress in (live, PlainProgress(every_event=True)):
        progress.status(bad)
        progress.event(replace(EVENT, text=evil))
        progress.lost(evil)
    console.print(live._live.get_renderable())
    exit_code(bad)
    shown = [
        views.jobs_text((bad,)),
        views.job_text(bad),
        View().text(m.ClusterStatus(leader), (bad,), 0.0),
        story_text(m.JobStory(lines=(line,), remarks=(evil,))),
        console.file.getvalue(),  # type: ignore[attr-defined]
        *capsys.readouterr(),
    ]
    for text in shown:
        assert "\x1b" not in text
        assert "\x07" not in text
        assert "\\u001b[2Jdone" in text


def test_records_far_ahead_of_the_clock_are_reported_if_there_are_any() -> None:
    assert "ahead of the clock" not in views.job_text(STATUS)
    timed = m.OperatorStatus("event_time-1", "event_time", records_ahead=1234)
    status = replace(STATUS, operators=(*STATUS.operators, timed))
    assert "1,234 records were too far ahead of the clock for event_time" in views.job_text(status)
    assert json_shapes.job_json(status)["operators"][-1]["records_ahead"] == 1234


def test_a_failed_job_shows_its_error_and_a_restarted_one_its_last_failure() -> None:
    failed = m.JobStatus("k", state=m.JobState.FAILED, error="disk full")
    assert "error: disk full" in views.job_text(failed)
    assert "last failure: disk full" in views.job_text(m.JobStatus("k", state=m.JobState.RUNNING, error="disk full"))


def test_a_mode_that_is_not_the_default_is_shown() -> None:
    loose = replace(STATUS, checkpoint_mode=m.CheckpointMode.AT_LEAST_ONCE)
    assert "; at least once, 3 completed" in views.checkpoint_line(loose)
    assert json_shapes.job_json(loose)["checkpoints"]["mode"] == "at_least_once"
    exact = replace(STATUS, checkpoint_mode=m.CheckpointMode.EXACTLY_ONCE)
    assert "once" not in views.checkpoint_line(exact)
    assert json_shapes.job_json(exact)["checkpoints"]["mode"] == "exactly_once"


def test_records_in_flight_are_shown() -> None:
    last = m.CompletedCheckpoint(7, "p", size_bytes=3 << 20, unaligned=True, channel_state_bytes=1 << 20)
    assert "3.0 MiB, 1.0 MiB of it in flight" in views.checkpoint_line(replace(STATUS, last_checkpoint=last))
    assert "checkpoint, unaligned" in views.checkpoints_text([replace(last, kind=m.CheckpointKind.CHECKPOINT)])


def test_the_base_of_a_checkpoint_is_shown() -> None:
    full = m.CompletedCheckpoint(7, "p", kind=m.CheckpointKind.CHECKPOINT, written_bytes=5)
    increment = replace(full, incremental=True)
    diff = replace(increment, diff_values=4, diff_saved_bytes=900)
    stored = [json_shapes.checkpoint_json(item) for item in (full, increment, diff)]
    assert [item and item["state"] for item in stored] == ["full", "incremental", "diff"]
    assert [item and (item["diff_values"], item["diff_saved_bytes"]) for item in stored] == [(0, 0), (0, 0), (4, 900)]
    assert " diff " in views.checkpoints_text([diff])


def test_plain_progress_repeats_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    progress = PlainProgress()
    progress.status(STATUS)
    progress.status(STATUS)
    progress.event(EVENT)
    progress.event(m.JobEvent(m.JobEventKind.CHECKPOINT_COMPLETED, 1))
    out = capsys.readouterr().out.splitlines()
    assert len(out) == 2
    assert out[1].endswith("leader granted: token 2")


def test_the_live_view_shows_operators_checkpoints_and_events() -> None:
    progress = LiveProgress()
    progress.event(EVENT)
    progress.lost("h:1: Socket closed")
    progress.status(STATUS)
    console = Console(record=True, width=120, file=io.StringIO())
    console.print(progress._live.get_renderable())
    text = console.export_text()
    for part in ("k  RUNNING  attempt 2", "1,234,567", "last checkpoint 7: 3.0 MiB", "token 2", "Socket closed"):
        assert part in text


def test_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(m.JobStatus("k", state=m.JobState.FINISHED)) == 0
    assert exit_code(m.JobStatus("k", state=m.JobState.CANCELED)) == 0
    assert exit_code(m.JobStatus("k", state=m.JobState.FAILED, error="e")) == 1
    assert capsys.readouterr().err == "error: job k failed: e\n"


def test_a_failure_is_shown_in_its_parts() -> None:
    place = m.FailurePlace("sql-1", "amount", (m.SplitRange("a.csv", 0, 50),), "Traceback")
    failure = m.JobFailure(m.FailureCause.DATA_ERROR, "read", 1, place, 3, 4)
    assert json_shapes.job_json(replace(STATUS, failure=failure))["failure"] == {
        "cause": "data_error",
        "vertex": "read",
        "subtask": 1,
        "operator": "sql-1",
        "column": "amount",
        "read": [{"split": "a.csv", "start": 0, "end": 50}],
        "times": 3,
        "attempt": 4,
        "traceback": "Traceback",
    }
    assert json_shapes.job_json(STATUS)["failure"] is None


def test_a_traceback_is_whole_on_request_and_named_where_it_is_not() -> None:
    text = 'Traceback (most recent call last):\n  File "a.py", line 3, in f\nKeyError: 1'
    failure = m.JobFailure(m.FailureCause.USER_ERROR, "read", 1, m.FailurePlace(traceback=text))
    failed = replace(STATUS, state=m.JobState.FAILED, error="e", failure=failure)
    assert views.traceback_text(failed) == text
    assert "`lockgate job k --traceback` shows" in views.job_text(failed)
    assert "--traceback" not in views.job_text(STATUS)
    assert views.traceback_text(replace(STATUS, error="")) == "job k has not failed"
    assert views.traceback_text(replace(failed, failure=None)) == "there is no traceback for this failure: e"


def test_a_long_error_in_the_list_of_jobs_is_cut_to_the_line() -> None:
    error = f"task manager tm-1 is lost: {'very ' * 100}bad"
    failed = m.JobStatus("orders-1", state=m.JobState.FAILED, error=error)
    short = m.JobStatus("clicks-1", state=m.JobState.FAILED, error="it failed")
    for width in (100, 160):
        text = views.jobs_text((failed, short), width)
        cut = next(line for line in text.splitlines() if line.startswith("orders-1"))
        assert width - 10 < len(cut) <= width
        assert cut.endswith(" ...")
        assert text.endswith("\n\n`lockgate job KEY` shows the full text of a line that ends with ...")
    narrow = views.jobs_text((failed,), 20)
    assert "task manager tm-1 is lost" in narrow
    assert views.jobs_text((short,), 160).endswith("it failed")
    lines = m.JobStatus("orders-1", state=m.JobState.FAILED, error="it failed\nin two lines")
    assert "it failed ...\n" in views.jobs_text((lines,), 160)
    piped = views.jobs_text((failed, lines))
    assert error in piped, "where it is not for a terminal"
    assert len(piped.splitlines()) == 3, "a line for each job below the header, and nothing else"
