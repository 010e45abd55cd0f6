"""What a lost task manager ran restarts alone where records cross between the slots; the result stays exact."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.share import SHARE
from tests.simulation.job import SimulatedJob, exchanging_job, random_job
from tests.simulation.orders import Order
from tests.simulation.scenarios import exchanging_scenario, quiet_scenario
from tests.simulation.simulation import Outcome, simulate
from tests.simulation.taskmanager import TaskPlan

SEEDS = 24
SLOTS = 4
PLAN = TaskPlan(repetition=0.2, quiet_after_ms=6_000)


def outcome(*faults: tuple[float, str], job: SimulatedJob | None = None, seed: int = 5, **changes: object) -> Outcome:
    """Of a job of twenty subtasks in four slots on two or three of three task managers. faults: by simulated ms."""
    base = replace(quiet_scenario(seed), task_managers=3, plan=PLAN)
    return simulate(replace(base, job=job or exchanging_job("job"), faults=faults, **changes))  # type: ignore[arg-type]


def begun(found: Outcome) -> list[int]:
    """How often the subtasks in each slot were deployed; those in one slot always together."""
    slots = [{times for key, times in found.begun.items() if key[1] == slot} for slot in range(SLOTS)]
    assert all(len(times) == 1 for times in slots)
    return [next(iter(times)) for times in slots]


@pytest.mark.parametrize("at_ms", range(380, 900, 65))
@pytest.mark.parametrize("discovered", [True, False])
def test_what_a_lost_task_manager_did_not_run_is_not_deployed_again(at_ms: int, discovered: bool) -> None:
    found = outcome((at_ms, "kill_task_manager"), job=exchanging_job("job", discovered=discovered))
    assert (found.attempts, found.ended) == (2, ("FINISHED",))
    assert sorted(begun(found))[:2] == [1, 1]
    assert max(begun(found)) == 2


@pytest.mark.parametrize("at_ms", [420, 560, 700])
def test_the_slots_of_the_task_manager_of_a_failed_subtask_restart(at_ms: int) -> None:
    found = outcome((at_ms, "fail_subtask"))
    assert (found.attempts, found.ended, min(begun(found))) == (2, ("FINISHED",), 1)


@pytest.mark.parametrize("poll_ms", [20, 120])
@pytest.mark.parametrize("at_ms", [430, 520, 640, 760])
def test_splits_that_are_found_by_and_by_are_read_by_the_same_subtask_again(at_ms: int, poll_ms: int) -> None:
    """Records of those that no checkpoint has were passed on to others, which know them by their sender.

    A part in which another one had them could not catch up, and all would restart.
    """
    job = exchanging_job("job", 3_000, poll_ms=poll_ms, uneven=poll_ms > 20)
    found = outcome((at_ms, "kill_task_manager"), job=job)
    assert (found.attempts, found.ended, min(begun(found))) == (2, ("FINISHED",), 1)


@pytest.mark.parametrize("at_ms", range(900, 1_300, 90))
@pytest.mark.parametrize("seed", [5, 6])
def test_sources_may_be_at_their_end_when_they_have_caught_up(seed: int, at_ms: int) -> None:
    job = exchanging_job("job", 400, discovered=False, uneven=True)
    assert outcome((at_ms, "kill_task_manager"), job=job, seed=seed).ended == ("FINISHED",)


@pytest.mark.parametrize("after_ms", range(0, 200, 20))
def test_a_leader_may_die_while_a_part_restarts(after_ms: int) -> None:
    found = outcome((500.0, "kill_task_manager"), (500.0 + after_ms, "kill_leader"), reattach=True)
    assert found.ended == ("FINISHED",)


@pytest.mark.parametrize("point", range(57, 106, 4))
def test_a_leader_may_die_at_any_of_its_steps_while_a_part_restarts(point: int) -> None:
    found = outcome((500.0, "kill_task_manager"), crash_at=point, reattach=True)
    assert (found.ended, found.grants) == (("FINISHED",), 2)


@pytest.mark.parametrize("after_ms", [0, 40, 60, 80, 120, 250])
def test_another_task_manager_may_die_while_a_part_restarts_or_soon_after(after_ms: int) -> None:
    faults = ((500.0, "kill_task_manager"), (500.0 + after_ms, "kill_task_manager"))
    assert outcome(*faults, job=exchanging_job("job", uneven=True), task_managers=4).ended == ("FINISHED",)


@pytest.mark.parametrize("after_ms", [0, 40, 60, 80, 120])
@pytest.mark.parametrize("fault", ["break_channel", "freeze_task_manager", "isolate_task_manager", "cut_both_ways"])
def test_channels_may_break_while_a_part_restarts(fault: str, after_ms: int) -> None:
    assert outcome((500.0, "kill_task_manager"), (500.0 + after_ms, fault)).ended == ("FINISHED",)


@pytest.mark.parametrize("at_ms", [620, 740])
@pytest.mark.parametrize("after_ms", [-10, 15, 40])
def test_the_storage_may_be_away_while_a_part_restarts(at_ms: int, after_ms: int) -> None:
    """Beside what runs on, it may have had records from that, so nothing runs on."""
    faults = ((float(at_ms), "kill_task_manager"), (float(at_ms + after_ms), "lose_storage"))
    assert outcome(*faults).ended == ("FINISHED",)


@pytest.mark.parametrize("after_ms", [0, 60, 250])
@pytest.mark.parametrize(
    ("order", "end"),
    [
        (Order(savepoint=True), "FINISHED"),
        (Order(3, ("source", "count")), "FINISHED"),
        (Order(), "FINISHED"),
        (Order(drain=True), "FINISHED"),
        (Order(cancel=True), "CANCELED"),
    ],
)
def test_an_order_that_comes_while_a_part_restarts_is_carried_out(order: Order, end: str, after_ms: int) -> None:
    assert outcome((500.0, "kill_task_manager"), orders=((500.0 + after_ms, order),)).ended == (end,)


@pytest.mark.parametrize("at_ms", [480, 560, 700])
def test_all_restart_where_more_was_sent_than_can_be_kept(at_ms: int) -> None:
    found = outcome((at_ms, "kill_task_manager"), plan=replace(PLAN, log_bytes=400), job=exchanging_job("job", 3_000))
    assert (found.ended, min(begun(found))) == (("FINISHED",), 2)


@pytest.mark.parametrize("at_ms", [1_150, 1_300])
def test_where_the_leader_knows_that_in_time_no_part_is_deployed(at_ms: int) -> None:
    """From the heartbeats, of which each task manager sends two before; its source still finds more then."""
    job = exchanging_job("job", 3_000, poll_ms=300)
    found = outcome((at_ms, "kill_task_manager"), plan=replace(PLAN, log_bytes=400), job=job)
    assert (found.ended, found.attempts, begun(found)) == (("FINISHED",), 2, [2] * SLOTS)


@pytest.mark.parametrize("at_ms", range(460, 700, 30))
@pytest.mark.parametrize("discovered", [True, False])
def test_all_restart_where_a_record_may_go_elsewhere_the_second_time(at_ms: int, discovered: bool) -> None:
    """A part that begins before the first heartbeat finds out itself."""
    found = outcome((at_ms, "kill_task_manager"), job=random_job("job", 400, discovered=discovered))
    assert (found.ended, min(begun(found))) == (("FINISHED",), 2)


@pytest.mark.parametrize("at_ms", [1_000, 1_150])
def test_where_the_leader_knows_of_chance_in_time_no_part_is_deployed(at_ms: int) -> None:
    found = outcome((at_ms, "kill_task_manager"), job=random_job("job", 3_000))
    assert (found.ended, found.attempts, begun(found)) == (("FINISHED",), 2, [2] * SLOTS)


@pytest.mark.parametrize("seed", range(max(1, SEEDS // SHARE)))
def test_nothing_is_lost_to_chance_among_other_faults(seed: int) -> None:
    assert simulate(replace(exchanging_scenario(seed), job=random_job("job"), orders=())).ended


@pytest.mark.parametrize("seed", range(6))
def test_a_batch_that_had_arrived_in_part_is_neither_lost_nor_there_twice(seed: int) -> None:
    """It is larger than a channel."""
    found = outcome((540.0, "kill_task_manager"), plan=replace(PLAN, gate_bytes=100), seed=seed)
    assert found.ended == ("FINISHED",)


@pytest.mark.parametrize("seed", range(max(1, SEEDS // SHARE)))
def test_parts_restart_among_other_faults(seed: int) -> None:
    assert simulate(exchanging_scenario(seed)).ended
