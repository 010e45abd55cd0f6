"""Families, what is counted in them, and the page."""

from __future__ import annotations

import logging
import threading

import pytest
from lockgate_common.metrics.family import Family, Histogram, Kind, RisingTotal, Tally
from lockgate_common.metrics.page import MetricsPage
from lockgate_common.metrics.samples import Samples

from tests.prometheus import Page, complaints

READS = Family("lockgate_reads_total", Kind.COUNTER, "Reads.", ("kind",))
SIZE = Family("lockgate_size_bytes", Kind.GAUGE, "Size.")
TIME = Family("lockgate_time_seconds", Kind.HISTOGRAM, "Time.")


def _part(samples: Samples) -> None:
    histogram = Histogram((0.1, 1.0))
    for value in (0.05, 0.1, 0.5, 7.0):
        histogram.observe(value)
    samples.add(READS, 3, "fast")
    samples.add(READS, 4, 'odd "name"\n')
    samples.add(SIZE, 12.5)
    samples.add_histogram(TIME, histogram)


def test_a_page_has_every_sample_and_the_process() -> None:
    kind, body = MetricsPage((_part,)).render()
    page = Page(body)
    assert kind.startswith("text/plain; version=")
    assert page.get("lockgate_reads_total", kind="fast") == 3
    assert page.get("lockgate_reads_total", kind='odd "name"\n') == 4
    assert page.get("lockgate_size_bytes") == 12.5
    assert [page.get("lockgate_time_seconds_bucket", le=le) for le in ("0.1", "1.0", "+Inf")] == [2, 3, 4]
    assert page.get("lockgate_time_seconds_sum") == pytest.approx(7.65)
    assert page.get("lockgate_metrics_incomplete") == 0
    assert page.get("process_resident_memory_bytes")


def test_promtool_finds_nothing_to_complain_about() -> None:
    assert complaints(MetricsPage((_part,)).render()[1]) == ""


def test_promtool_complains_about_a_bad_name() -> None:
    bad = Family("lockgate_read_milliseconds", Kind.GAUGE, "Time.")
    found = complaints(MetricsPage((lambda samples: samples.add(bad, 1),)).render()[1])
    assert 'lockgate_read_milliseconds use base unit "seconds"' in found


def test_a_part_that_raises_is_left_out_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    def broken(samples: Samples) -> None:
        samples.add(SIZE, 1)
        raise ValueError("the actor is stuck")

    page = MetricsPage((broken, _part))
    with caplog.at_level(logging.WARNING):
        bodies = [page.render()[1] for _ in range(3)]
    assert Page(bodies[-1]).get("lockgate_reads_total", kind="fast") == 3
    assert Page(bodies[-1]).get("lockgate_metrics_incomplete") == 1
    assert [record.getMessage() for record in caplog.records] == [
        "a part of the metrics could not be collected: the actor is stuck"
    ]


def test_a_total_that_falls_makes_a_counter_that_does_not() -> None:
    rising = RisingTotal()
    assert [rising.total("records", value) for value in (0, 100, 80, 100, 130)] == [0, 100, 100, 120, 150]
    assert rising.total("others", 7) == 7


def test_buckets_tell_a_checkpoint_of_minutes_from_a_longer_one() -> None:
    histogram = Histogram()
    for minutes in (2, 5, 10, 30, 31):
        histogram.observe(minutes * 60)
    assert histogram.buckets()[0][-6:] == (
        ("60.0", 0),
        ("120.0", 1),
        ("300.0", 2),
        ("600.0", 3),
        ("1800.0", 4),
        ("+Inf", 5),
    )


def test_threads_do_not_lose_counts() -> None:
    histogram, tally = Histogram(), Tally()

    def count() -> None:
        for _ in range(5_000):
            histogram.observe(0.2)
            tally.add("a")

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert histogram.buckets()[0][-1] == ("+Inf", 20_000)
    assert tally.items() == [("a", 20_000)]


def test_a_time_is_counted_even_if_the_block_raises() -> None:
    histogram = Histogram()
    with pytest.raises(KeyError), histogram.timed():
        raise KeyError
    assert histogram.buckets()[0][-1] == ("+Inf", 1)
