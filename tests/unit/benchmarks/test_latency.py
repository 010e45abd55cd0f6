"""From printed results to latencies, and the shapes of the jobs that are measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import latency
from benchmarks.latency_figures import KEYS, latencies, missing
from benchmarks.latency_plot import plot
from benchmarks.latency_results import Printed, numbers_of, printed


def test_latency_counts_from_the_time_a_record_is_due() -> None:
    """At 10 records/s record 20 is due 2 s after the start, however late it was sent."""
    found = latencies("stateless", [(102.5, (20,)), (102.5, (25,))], start=100.0, rate=10)
    assert found.due_s.tolist() == [2.0, 2.5]
    assert found.ms.tolist() == [500.0, 0.0]


def test_a_count_is_the_result_of_every_record_since_the_last_one() -> None:
    seen = [(101.0, (7, 1)), (103.0, (7, 3))]
    found = latencies("keyed", seen, start=100.0, rate=KEYS)
    assert found.due_s.tolist() == [0.07, 1.07, 2.07]
    assert found.ms.round().tolist() == [930.0, 1930.0, 930.0]


def test_a_window_is_late_from_the_record_that_closes_it() -> None:
    found = latencies("window", [(101.5, (3, 101_200, 9))], start=100.0, rate=10)
    assert (found.due_s.tolist(), found.ms.round().tolist()) == ([1.2], [300.0])


def test_phases_are_chosen_by_the_time_a_record_is_due() -> None:
    seen = [(100.0 + number + 0.001 * number, (number,)) for number in range(20)]
    found = latencies("stateless", seen, start=100.0, rate=1)
    assert found.phase(0, 5) == {"p50_ms": 2.0, "p90_ms": 3.6, "p99_ms": 4.0, "p999_ms": 4.0, "records": 5}
    assert found.phase(30) == {}


@pytest.mark.parametrize(
    ("case", "seen", "expected"),
    [
        ("stateless", [(0.0, (0,)), (0.0, (2,))], 0),
        ("stateless", [(0.0, (0,))], 1),
        ("stateless", [(0.0, (0,)), (0.0, (2,)), (0.0, (2,))], 1),
        ("keyed", [(0.0, (0, 1)), (0.0, (1, 1)), (0.0, (0, 3))], 0),
        ("keyed_python", [(0.0, (0, 3))], 1),
        ("window", [(0.0, (0, 200, 1)), (0.0, (0, 400, 3))], 0),
        ("window", [(0.0, (0, 200, 5))], 1),
    ],
)
def test_missing_and_doubled_results_are_counted(
    case: str, seen: list[tuple[float, tuple[int, ...]]], expected: int
) -> None:
    """Of four records; the stateless case lets every second one through."""
    assert missing(case, seen, sent=4, every=2) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"  17  3", (17, 3)),
        (b" 4", (4,)),
        (b" key  n", ()),
        (b"-- print-1, subtask 0: 2 rows", ()),
        (b"", ()),
        (b"  5 2026-11-27 14:12:00+00:00 2026-11-27 14:12:00.200000+00:00  2", (5, 1795788720200, 2)),
    ],
)
def test_rows_are_distinguished_from_other_lines(line: bytes, expected: tuple[int, ...]) -> None:
    assert numbers_of(line) == expected


def test_results_have_the_time_at_which_they_were_there(tmp_path: Path) -> None:
    log = tmp_path / "taskmanager-0.log"
    log.write_text("  1\n")  # of an earlier run
    with Printed([log]) as results, log.open("a") as file:
        file.write("-- print-1, subtask 0: 2 rows\n id\n  2\n  3")
        file.flush()
        file.write("4\n")
    assert [numbers for _, numbers in results.seen] == [(2,), (34,)]
    times = [at for at, _ in results.seen]
    assert times == sorted(times)


def test_results_of_the_peer_carry_their_time(tmp_path: Path) -> None:
    (tmp_path / "peer.txt").write_text("12.5 3 4\n12.5 5 6\n")
    assert printed(tmp_path / "peer.txt") == [(12.5, (3, 4)), (12.5, (5, 6))]


def test_entries_have_the_agreed_fields() -> None:
    seen = [(100.0 + number + 0.25, (number,)) for number in range(20)]
    found = latency.entries("stateless", latency.Load(1, 20), seen, 100.0, {"peer": None, "checkpoints": "none"})
    assert [entry["phase"] for entry in found] == ["warm", "cold"]
    assert {"case", "rate", "p50_ms", "p90_ms", "p99_ms", "p999_ms", "peer"} <= found[0].keys()
    assert found[0]["p50_ms"] == 250.0


@pytest.mark.spark  # functions are pickled with PySpark
def test_the_jobs_have_the_shapes_of_their_cases() -> None:
    load = latency.Load(100_000, 20)
    jobs = {case: latency.graph(case, 1234, load, 1000, 1) for case in latency.CASES}
    assert {case: len(job.edges) for case, job in jobs.items()} == {
        "stateless": 0,
        "keyed": 1,
        "window": 1,
        "keyed_python": 1,
    }
    assert load.sample == 100


def test_the_latencies_are_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    figures = {"p50_ms": 20.0, "p90_ms": 30.0, "p99_ms": 40.0, "p999_ms": 50.0}
    found = [
        {"case": case, "rate": rate, "peer": peer, "checkpoints": "none", "phase": "warm", **figures}
        for case in latency.CASES
        for rate in latency.RATES
        for peer in (None, latency.PEER)
    ]
    plot(found, tmp_path / "latency.png")
    assert (tmp_path / "latency.png").read_bytes().startswith(b"\x89PNG")
