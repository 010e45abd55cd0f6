"""The statistics of a drill by what was struck, and its page."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from lockgate_devtools.drill.by_target import Spread, by_target
from lockgate_devtools.drill.model import Kill, Mode, RecordCheck, Report, Target
from lockgate_devtools.drill.page import page, rates
from lockgate_devtools.drill.text import render

KILLS = (
    Kill(Target.LEADER, 1, first_record_ms=100.0, first_checkpoint_ms=400.0, mode=Mode.REATTACH, restarted_subtasks=0),
    Kill(Target.STORAGE, 0, first_checkpoint_ms=900.0),
    Kill(
        Target.LEADER, 2, first_record_ms=300.0, first_checkpoint_ms=700.0, restarted_subtasks=6, records_read_again=9
    ),
)


def test_a_percentile_is_a_time_that_was_measured() -> None:
    assert Spread.of([]) is None
    assert Spread.of([5.0]) == Spread(5.0, 5.0, 5.0, 5.0)
    assert Spread.of([float(n) for n in range(100, 0, -1)]) == Spread(50.0, 90.0, 99.0, 100.0)


def test_kills_are_put_together_by_their_target() -> None:
    leader, storage = by_target(KILLS)
    assert (leader.target, len(leader.kills), leader.adopted) == (Target.LEADER, 2, 1)
    assert (leader.restarted_subtasks, leader.records_read_again) == (6, 9)
    assert leader.interruption == Spread(100.0, 300.0, 300.0, 300.0)
    assert (storage.interruption, storage.commit) == (None, Spread(900.0, 900.0, 900.0, 900.0))
    assert storage.to_json()["first_record_ms"] is None


def test_the_text_has_a_row_for_each_target() -> None:
    text = render(Report(5, KILLS, RecordCheck(300, 0, 0), 9, 1))
    assert "100 / 300 / 300 / 300" in text
    assert "900 / 900 / 900 / 900" in text


def test_every_target_has_its_row_in_text_and_page() -> None:
    report = Report(5, tuple(Kill(target, 0, first_checkpoint_ms=9.0) for target in Target), RecordCheck(3, 0, 0), 9, 1)
    for made in (render(report), page(report)):
        assert all(target.value in made for target in Target)
    rows = [line for line in render(report).splitlines() if "9 / 9 / 9 / 9" in line]
    assert len({len(row) for row in rows}) == 1, "no name is wider than its column"


def test_throughput_is_the_progress_of_half_a_second_where_it_is_known() -> None:
    found = rates([(-1.0, 0), (0.0, 1_000), (1.0, 1_000), (2.0, 5_000)])
    assert found == {-0.75: 1000, -0.25: 1000, 0.25: 0, 0.75: 0, 1.25: 4000, 1.75: 4000}
    assert rates([]) == {}


@pytest.mark.parametrize("progress", [(), ((-1.0, 0), (0.0, 10), (1.0, 10), (2.0, 60))])
def test_the_page_is_one_well_formed_file_that_loads_nothing(progress: tuple[tuple[float, int], ...]) -> None:
    kill = Kill(Target.FROZEN_LEADER, 3, first_record_ms=50.0, progress=progress)
    made = page(Report(5, (*KILLS, kill), RecordCheck(300, 2, 0), 9, 1, ('it <broke> & "fell"',)))
    root = ElementTree.fromstring(made.replace("<!DOCTYPE html>", "").replace('<meta charset="utf-8">', ""))
    assert 'it <broke> & "fell"' in "".join(root.itertext())
    assert len(root.findall(".//svg")) == bool(progress)
    assert not any(name in made for name in ("http", "src=", "<script", "@import", "url("))
    assert "FAIL" in made
