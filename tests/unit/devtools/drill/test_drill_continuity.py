"""Samples of a job's status to the cost of a kill."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from lockgate_devtools.drill.continuity import is_measured, measured
from lockgate_devtools.drill.model import Kill, Mode, Target
from lockgate_devtools.drill.sample import Sample
from lockgate_devtools.drill.timeline import Before
from lockgate_proto.messages import EdgeView, JobStatus, Partitioning, SubtaskStatusView

KILL_US = 1_700_000_000_000_000
BEFORE = Before(KILL_US, token=7, attempt=3)
RATE = 8  # records a millisecond


def at(
    ms: float,
    read: int,
    *,
    token: int = 7,
    attempt: int = 3,
    again: int = 0,
    subtasks: int = 6,
    begun: tuple[tuple[int, int], ...] = (),
    exchanges: bool = False,
) -> Sample:
    """begun: empty: all of them in this attempt."""
    begun = begun or (((attempt, subtasks),) if subtasks else ())
    return Sample(KILL_US + round(ms * 1000), token, attempt, subtasks, read, read, again, begun, exchanges)


def steady(until_ms: int = 0) -> list[Sample]:
    """Three seconds before the kill, every 200 ms."""
    return [at(ms, 100_000 + RATE * ms) for ms in range(-3000, until_ms, 200)]


def cost(samples: Iterable[Sample], mode: Mode | None = Mode.RESTART, target: Target = Target.LEADER) -> Kill:
    return measured(Kill(target, 1, mode=mode), BEFORE, tuple(samples))


def test_an_adopted_attempt_has_cost_nothing() -> None:
    dip = at(50, 96_000, token=8, subtasks=0)  # the new leader has read the snapshot, and knows of no attempt
    later = [at(ms, 100_000 + RATE * ms, token=8) for ms in range(150, 1400, 200)]
    kill = cost([*steady(), dip, *later], Mode.REATTACH)
    assert (kill.restarted_subtasks, kill.records_read_again, kill.throughput_ratio) == (0, 0, 1.0)
    assert kill.first_record_ms == 150.0
    assert is_measured(kill)


def test_a_restarted_attempt_reads_again_and_new_records_come_late() -> None:
    """Nothing is read from the kill on for 250 ms; then 4,000 records again, in 250 ms; then new ones."""
    again = [at(ms, 96_000 + 16 * (ms - 250), token=8, attempt=4, again=4_000) for ms in range(250, 500, 50)]
    new = [at(ms, 100_000 + RATE * (ms - 500), token=8, attempt=4, again=4_000) for ms in range(500, 1300, 100)]
    kill = cost([*steady(), at(0, 100_000), at(100, 96_000, token=8, subtasks=0), *again, *new])
    assert (kill.restarted_subtasks, kill.records_read_again, kill.throughput_ratio) == (6, 4_000, 0.5)
    assert kill.first_record_ms is None, "that comes from its event"


def test_every_attempt_that_follows_counts() -> None:
    samples = [
        *steady(),
        at(100, 96_000, attempt=4),
        at(200, 96_000, attempt=4, subtasks=0),
        at(400, 96_000, attempt=5),
    ]
    assert cost(samples, target=Target.TASKMANAGER).restarted_subtasks == 12


def test_only_what_began_again_counts_where_the_others_run_on() -> None:
    """Two attempts: the first one of a part of two subtasks, the second one of a part of four."""
    samples = [
        *steady(),
        at(100, 99_000, begun=((3, 6),)),  # those that are lost are still listed
        at(200, 99_000, attempt=4, begun=((3, 4), (4, 2))),
        at(400, 99_000, attempt=5, begun=((3, 2), (5, 4))),
    ]
    kill = cost(samples[:-1], target=Target.TASKMANAGER)
    assert (kill.restarted_subtasks, kill.mode) == (2, Mode.REGION)
    kill = cost(samples, target=Target.TASKMANAGER)
    assert (kill.restarted_subtasks, kill.mode) == (6, Mode.REGION)


def test_a_part_beside_which_records_are_sent_again_is_no_region() -> None:
    """The last sample is of a job that has ended: its edges are not known any more."""
    part = at(200, 99_000, attempt=4, begun=((3, 4), (4, 2)), exchanges=True)
    kill = cost([*steady(), part, at(1_200, 108_000, attempt=4, subtasks=0)], target=Target.TASKMANAGER)
    assert (kill.restarted_subtasks, kill.mode) == (2, Mode.PARTIAL)
    assert cost([*steady(), at(200, 99_000, attempt=4, exchanges=True)]).mode is Mode.RESTART


def test_where_all_follows_a_part_nothing_has_run_on() -> None:
    part, whole = at(200, 99_000, attempt=4, begun=((3, 4), (4, 2))), at(400, 99_000, attempt=5)
    kill = cost([*steady(), part, whole], target=Target.TASKMANAGER)
    assert (kill.restarted_subtasks, kill.mode) == (8, Mode.RESTART)


def test_an_attempt_that_no_status_has_shown_counts_as_all_subtasks() -> None:
    kill = cost([*steady(), at(400, 99_000, attempt=5, begun=((3, 4), (5, 2)))], target=Target.TASKMANAGER)
    assert kill.restarted_subtasks == 8


def test_a_job_that_restarts_nothing_has_no_region() -> None:
    later = [at(ms, 100_000 + RATE * ms) for ms in range(150, 1400, 200)]
    assert cost([*steady(), *later], None, Target.STANDBY).mode is None


def test_what_the_same_leader_counted_before_is_not_of_this_kill() -> None:
    before = [at(ms, 100_000 + RATE * ms, again=700) for ms in range(-2000, 0, 200)]
    assert cost([*before, at(1200, 100_000, attempt=4, again=900)], target=Target.TASKMANAGER).records_read_again == 200


def test_each_of_two_leaders_in_a_row_counts_from_zero() -> None:
    second = [at(100, 96_000, token=8, attempt=4, again=5_000), at(1_200, 96_000, token=9, attempt=4, again=30)]
    assert cost([*steady(), *second]).records_read_again == 5_030


def test_nothing_is_claimed_without_samples() -> None:
    for samples in ([], steady()[:3]):
        kill = cost(samples)
        assert (kill.restarted_subtasks, kill.records_read_again, kill.throughput_ratio) == (None, None, None)
        assert not is_measured(kill)
    assert cost([at(-500, 0), at(0, 4_000), at(1_100, 12_800)]).throughput_ratio is None, "less than a second before"


def test_an_adopted_attempt_whose_sources_begin_again_is_found_out() -> None:
    """The dead leader knew of 100,000 records; the new one hears of fewer under the same attempt."""
    later = [at(ms, 99_100 + RATE * (ms - 150), token=8) for ms in range(150, 1400, 200)]
    assert cost([*steady(), at(0, 100_000), *later], Mode.REATTACH).records_read_again == 900
    other = [at(ms, 99_100 + RATE * (ms - 150), token=8, attempt=4) for ms in range(150, 1400, 200)]
    assert cost([*steady(), at(0, 100_000), *other]).records_read_again == 0, "its leader counts that itself"


def test_output_that_the_dead_leader_knew_of_is_not_the_first_record() -> None:
    kill = cost([*steady(), at(300, 98_000, token=8), at(1_100, 98_000, token=8)], Mode.REATTACH)
    assert kill.first_record_ms is None
    assert not is_measured(kill)


def test_a_sample_has_the_numbers_of_the_status() -> None:
    views = (SubtaskStatusView("read", 0), SubtaskStatusView("read", 1))
    status = JobStatus("k", attempt=2, token=5, subtasks=views, records_read=9, records_written=4, records_read_again=3)
    assert Sample.of(status, 77) == Sample(77, 5, 2, 2, 9, 4, 3, ((2, 2),)), "an older leader does not say when"
    mixed = replace(status, subtasks=(replace(views[0], attempt=1), replace(views[1], attempt=2)))
    assert Sample.of(mixed, 77).begun == ((1, 1), (2, 1))
    for partitioning, exchanges in ((Partitioning.FORWARD, False), (Partitioning.HASH, True)):
        edges = (EdgeView("a", "b", Partitioning.FORWARD), EdgeView("a", "c", partitioning))
        assert Sample.of(replace(status, edges=edges), 77).exchanges is exchanges
    assert Sample.of(JobStatus("k"), 77) == Sample(77, 0, 0, 0, 0, 0, 0)
