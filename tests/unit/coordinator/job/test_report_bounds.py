"""What a task manager reports is cut before it is kept."""

from __future__ import annotations

from dataclasses import fields

from lockgate_coordinator.job import events
from lockgate_coordinator.job.provenance import MAX_RANGES, MAX_TEXT, bounded
from lockgate_proto.messages import (
    AttemptId,
    DeclineCheckpoint,
    FailurePlace,
    SplitRange,
    SplitsDiscovered,
    SubtaskCounters,
    SubtaskReport,
)

LONG = "x" * 3_000_000


def test_texts_and_lists_are_cut_and_say_so() -> None:
    ranges = tuple(SplitRange(LONG, number, number + 1) for number in range(5_000))
    report = bounded(events.Reported(SubtaskReport(error=LONG, place=FailurePlace(LONG, LONG, ranges, LONG))))
    assert isinstance(report, events.Reported)
    assert report.report.error.startswith("xxx")
    assert report.report.error.endswith("... (3000000 characters)")
    place = report.report.place
    assert place is not None
    assert [range_.start for range_ in place.ranges] == list(range(MAX_RANGES))
    assert sum(len(range_.split) for range_ in place.ranges) + len(place.operator_id) + len(place.column) < 200_000
    assert len(place.traceback) == MAX_TEXT
    declined = bounded(events.Declined(DeclineCheckpoint(reason=LONG)))
    assert isinstance(declined, events.Declined)
    assert len(declined.decline.reason) < 2 * MAX_TEXT
    found = bounded(events.SplitsFound(SplitsDiscovered(error=LONG)))
    assert isinstance(found, events.SplitsFound)
    assert len(found.found.error) < 2 * MAX_TEXT
    for counters in (SubtaskCounters(at_work=LONG), SubtaskCounters(irreproducible=LONG)):
        counted = bounded(events.CountersReported((counters,)))
        assert isinstance(counted, events.CountersReported)
        (cut,) = counted.counters
        assert 0 < len(cut.at_work) + len(cut.irreproducible) < 2_000


def test_text_of_usual_length_is_unchanged() -> None:
    place = FailurePlace("parse", "n", (SplitRange("a.csv", 1, 2),))
    for report in (
        events.Reported(SubtaskReport(error="x" * MAX_TEXT, place=place)),
        events.Declined(DeclineCheckpoint(reason="x" * MAX_TEXT)),
        events.SplitsFound(SplitsDiscovered(AttemptId("a", "b", 1), error="x" * MAX_TEXT)),
        events.CountersReported((SubtaskCounters(at_work="transform 'a'"),)),
    ):
        assert bounded(report) == report


def test_no_text_of_a_report_is_forgotten() -> None:
    """Who adds one adds its bound."""
    texts = {
        (kind.__name__, field.name)
        for kind in (SubtaskReport, DeclineCheckpoint, SplitsDiscovered, SubtaskCounters, FailurePlace, SplitRange)
        for field in fields(kind)
        if field.type == "str"
    }
    assert texts == {
        ("SubtaskReport", "error"),
        *(  # bounded where it is kept, see StoryLog
            (name, "cause_id") for name in ("SubtaskReport", "DeclineCheckpoint", "SplitsDiscovered")
        ),
        ("DeclineCheckpoint", "reason"),
        ("SplitsDiscovered", "error"),
        ("SplitsDiscovered", "vertex_id"),  # only known ones count, see provenance.py
        ("SubtaskCounters", "at_work"),
        ("SubtaskCounters", "irreproducible"),
        ("FailurePlace", "operator_id"),
        ("FailurePlace", "column"),
        ("FailurePlace", "traceback"),
        ("SplitRange", "split"),
    }
