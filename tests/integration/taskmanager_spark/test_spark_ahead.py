"""Records far ahead of the clock: they are processed and counted, and make no other record late."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lockgate_proto.event_times import ANY_TIME_AHEAD
from lockgate_proto.messages import EventTime, TumblingWindow, Window
from lockgate_taskmanager.spark.engine import SparkEngine
from lockgate_taskmanager.spark.event_time import Declaration, Times

from .results import end_after_two_restarts, late_of, millis
from .test_spark_windows import START, clicks, expected, write_clicks, written

pytestmark = pytest.mark.integration

Job = Callable[..., Any]
NOW_MS = 1_800_000_000_000
FAR = "2999-12-31T23:59:59.000Z"
FAR_MS = 32_503_679_999_000


def poisoned(folder: Path) -> list[tuple[int, str, int]]:
    """Clicks of two files, and early in each one of the year 2999; what is in them."""
    records = write_clicks(folder, files=2, rows=2000)
    for number, path in enumerate(sorted(folder.iterdir())):
        lines = path.read_text().splitlines(keepends=True)
        lines.insert(150, json.dumps({"at": FAR, "user": f"far{number}", "amount": 7}) + "\n")
        path.write_text("".join(lines))
    return records


def ahead_of(run: Any) -> int:
    """Records that lay too far ahead, in all operators."""
    return sum(counter.records_ahead for program in run.programs.values() for counter in program.counters())


def test_a_time_far_ahead_makes_nothing_late_and_its_record_is_in_the_result(job: Job, tmp_path: Path) -> None:
    """Attempts that end with a failure read the same records again: each counts once."""
    records = poisoned(tmp_path / "in")
    run = job(clicks(tmp_path, Window(TumblingWindow(5000), "at")))
    end_after_two_restarts(run, "source", rounds=2)
    window = FAR_MS - FAR_MS % 5000
    far = {(f"far{number}", window): (1, 7, 7.0) for number in range(2)}
    assert written(tmp_path) == {**expected(records, 5000, 5000), **far}
    assert (late_of(run), ahead_of(run)) == (0, 2)


@pytest.mark.parametrize("max_ahead_ms", [0, ANY_TIME_AHEAD])
def test_event_time_advances_by_the_accepted_times(job: Job, tmp_path: Path, max_ahead_ms: int) -> None:
    poisoned(tmp_path / "in")
    run = job(clicks(tmp_path, Window(TumblingWindow(5000), "at"), parallelism=1, max_ahead_ms=max_ahead_ms))
    run.fix_batch_size("source", 20_000)
    for _ in range(8):
        assert run.batch("source")
    run.checkpoint(1)
    fired = {start for _, start in written(tmp_path)}
    is_bounded = max_ahead_ms == 0
    assert max(fired) > millis(START), "some of it is over"
    assert (late_of(run) == 0, ahead_of(run)) == (is_bounded, 2 if is_bounded else 0)


def test_a_split_with_only_such_records_counts_as_unread(job: Job, tmp_path: Path) -> None:
    """What it holds back, it holds back until it ends or is idle; at the end of the input everything has fired."""
    (tmp_path / "in").mkdir()
    lines = "".join(json.dumps({"at": FAR, "user": f"u{row}", "amount": row}) + "\n" for row in range(50))
    (tmp_path / "in" / "0.json").write_text(lines)
    run = job(clicks(tmp_path, Window(TumblingWindow(5000), "at"), parallelism=1))
    run.to_end()
    run.checkpoint(1)
    assert len(written(tmp_path)) == 50
    assert (late_of(run), ahead_of(run)) == (0, 50)


times = st.lists(st.one_of(st.none(), st.integers(NOW_MS - 10, NOW_MS + 30), st.just(FAR_MS)), min_size=1, max_size=12)


@settings(max_examples=12, deadline=None)
@given(times, st.sampled_from([ANY_TIME_AHEAD, 1, 10]))
def test_the_highest_time_within_the_bound(engine: SparkEngine, found: list[int | None], max_ahead_ms: int) -> None:
    kind = EventTime("at", max_ahead_ms=max_ahead_ms)
    declaration = Declaration(kind, "operator 'time'", lambda: NOW_MS)
    frame = declaration(engine._session.createDataFrame(pa.table({"at": pa.array(found, pa.int64())})))
    frame.toArrow()
    known = [number for number in found if number is not None]
    believed = [number for number in known if max_ahead_ms == ANY_TIME_AHEAD or number <= NOW_MS + max_ahead_ms]
    assert declaration.times(frame) == Times(max(believed, default=None), len(known) - len(believed))
