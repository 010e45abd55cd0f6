"""What fails restarts alone, where no record crosses between slots; the result stays exact."""

from __future__ import annotations

from dataclasses import replace

import pytest
from lockgate_proto.messages import CheckpointMode, FixedDelayRestart

from tests.share import SHARE
from tests.simulation.job import FORWARD_VERTICES, SimulatedJob, exchanging_job, forward_job
from tests.simulation.orders import Order
from tests.simulation.scenarios import part_scenario, quiet_scenario
from tests.simulation.simulation import Outcome, simulate
from tests.simulation.taskmanager import TaskPlan

SEEDS = 24
SLOTS = 4


def outcome(*faults: tuple[float, str], job: SimulatedJob | None = None, seed: int = 5, **changes: object) -> Outcome:
    """Of a job of twelve subtasks in four slots on two of three task managers. faults: by simulated ms."""
    plan = TaskPlan(repetition=0.2, quiet_after_ms=6_000)
    base = replace(quiet_scenario(seed), task_managers=3, plan=plan)
    return simulate(replace(base, job=job or forward_job("job"), faults=faults, **changes))  # type: ignore[arg-type]


def begun(found: Outcome) -> list[int]:
    """How often the subtasks in each slot were deployed; those in one slot always together."""
    slots = [{times for key, times in found.begun.items() if key[1] == slot} for slot in range(SLOTS)]
    assert all(len(times) == 1 for times in slots)
    return [next(iter(times)) for times in slots]


@pytest.mark.parametrize("at_ms", range(420, 900, 60))
@pytest.mark.parametrize("discovered", [True, False])
def test_what_a_lost_task_manager_did_not_run_is_not_deployed_again(at_ms: int, discovered: bool) -> None:
    """Nor are its splits given out again: the source refuses a second assignment, and the ledger is exact."""
    found = outcome((at_ms, "kill_task_manager"), job=forward_job("job", discovered=discovered))
    assert (found.attempts, found.ended) == (2, ("FINISHED",))
    assert sorted(begun(found))[:2] == [1, 1]
    assert max(begun(found)) == 2


@pytest.mark.parametrize("at_ms", range(420, 900, 60))
@pytest.mark.parametrize("task_managers", [2, 3])
def test_the_slot_of_a_failed_subtask_restarts_alone(at_ms: int, task_managers: int) -> None:
    """Also beside what runs on, on the same task manager."""
    found = outcome((at_ms, "fail_subtask"), task_managers=task_managers)
    assert (found.attempts, found.ended) == (2, ("FINISHED",))
    assert sorted(begun(found)) == [1, 1, 1, 2]


@pytest.mark.parametrize("at_ms", [420, 470, 520])
def test_splits_found_before_the_first_checkpoint_are_not_given_out_again(at_ms: int) -> None:
    """No snapshot says which they are. A record that two subtasks read would be twice in the ledger."""
    found = outcome((at_ms, "kill_task_manager"), job=forward_job("job", 3_000))
    assert (found.ended, sorted(begun(found))[:2]) == (("FINISHED",), [1, 1])


def test_a_job_whose_records_cross_between_its_slots_restarts_as_a_whole() -> None:
    found = simulate(replace(quiet_scenario(3), faults=((500.0, "kill_task_manager"),)))
    assert set(found.begun.values()) == {2}


@pytest.mark.parametrize("at_ms", [1_000, 1_100, 1_250])
@pytest.mark.parametrize("fault", ["kill_task_manager", "fail_subtask"])
def test_a_new_leader_adopts_a_job_of_which_a_part_was_restarted(at_ms: int, fault: str) -> None:
    found = outcome((400.0, fault), (at_ms, "kill_leader"), job=forward_job("job", 60), reattach=True)
    assert (found.attempts, found.grants) == (2, 2)
    assert sorted(set(begun(found))) == [1, 2]


@pytest.mark.parametrize("at_ms", range(400, 580, 20))
def test_a_leader_may_die_while_a_part_restarts(at_ms: int) -> None:
    found = outcome((400.0, "kill_task_manager"), (at_ms, "kill_leader"), reattach=True)
    assert found.ended == ("FINISHED",)


@pytest.mark.parametrize("after_ms", [0, 40, 80, 250])
def test_another_task_manager_may_die_while_a_part_restarts(after_ms: int) -> None:
    faults = ((500.0, "kill_task_manager"), (500.0 + after_ms, "kill_task_manager"))
    assert outcome(*faults, job=forward_job("job", uneven=True), task_managers=4).ended == ("FINISHED",)


@pytest.mark.parametrize("after_ms", [0, 60, 250])
@pytest.mark.parametrize(
    ("order", "end"),
    [
        (Order(savepoint=True), "FINISHED"),
        (Order(3, FORWARD_VERTICES), "FINISHED"),
        (Order(), "FINISHED"),
        (Order(drain=True), "FINISHED"),
        (Order(cancel=True), "CANCELED"),
    ],
)
def test_an_order_that_comes_while_a_part_restarts_is_carried_out(order: Order, end: str, after_ms: int) -> None:
    """The oracle knows what was answered: an acknowledged savepoint, shape or end is there afterwards."""
    assert outcome((500.0, "kill_task_manager"), orders=((500.0 + after_ms, order),)).ended == (end,)


@pytest.mark.parametrize("poll_ms", [20, 120])
@pytest.mark.parametrize("at_ms", [430, 520, 640, 760])
def test_splits_that_are_found_by_and_by_are_each_read_once(at_ms: int, poll_ms: int) -> None:
    job = forward_job("job", poll_ms=poll_ms, uneven=True)
    found = outcome((at_ms, "kill_task_manager"), job=job)
    assert (found.attempts, found.ended) == (2, ("FINISHED",))
    assert min(begun(found)) == 1


@pytest.mark.parametrize("at_ms", [420, 480])
def test_a_part_begins_once_what_runs_on_knows_how_the_checkpoints_before_have_ended(at_ms: int) -> None:
    """Which it would hear of nowhere else: here and in the next two tests the oracle sees what they are about."""
    found = outcome((at_ms, "kill_task_manager"), job=forward_job("job", 60))
    assert (found.attempts, found.ended) == (2, ("FINISHED",))


@pytest.mark.parametrize("at_ms", range(580, 700, 40))
def test_what_runs_on_hears_of_a_checkpoint_that_was_being_written_when_a_part_was_lost(at_ms: int) -> None:
    faults = ((at_ms - 120, "slow_storage"), (at_ms, "kill_task_manager"))
    assert outcome(*faults, job=forward_job("job", 60), metadata_in_files=True).ended == ("FINISHED",)


@pytest.mark.parametrize("after_ms", range(50, 60, 2))
def test_a_job_that_is_cancelled_before_a_part_begins_does_not_doubt_what_was_committed(after_ms: int) -> None:
    order = (620.0 + after_ms, Order(cancel=True))
    found = outcome((620, "kill_task_manager"), job=forward_job("job", 60), orders=(order,))
    assert found.ended == ("CANCELED",)


@pytest.mark.parametrize("at_ms", [620, 740])
@pytest.mark.parametrize("after_ms", [-10, 15, 40])
def test_a_part_waits_alone_for_a_storage_that_is_away(at_ms: int, after_ms: int) -> None:
    faults = ((float(at_ms), "kill_task_manager"), (float(at_ms + after_ms), "lose_storage"))
    found = outcome(*faults)
    assert (found.ended, min(begun(found)), max(begun(found)) > 2) == (("FINISHED",), 1, True)


@pytest.mark.parametrize("at_ms", [560, 760])
def test_a_part_whose_copies_are_where_others_run_on_does_not_take_their_slots(at_ms: int) -> None:
    job, plan = forward_job("job", 60), TaskPlan(repetition=0.2, quiet_after_ms=6_000, slots=3)
    found = outcome((at_ms, "kill_task_manager"), job=job, replicas=1, task_managers=2, plan=plan)
    assert found.ended == ("FINISHED",)


@pytest.mark.parametrize("job", [forward_job("job"), exchanging_job("job")], ids=["forward", "exchanging"])
def test_the_rest_does_not_run_on_for_ever_where_there_are_no_slots_for_a_part(job: SimulatedJob) -> None:
    """Its sinks would hold everything since the last checkpoint."""
    found = outcome((500, "lose_task_manager"), job=job, task_managers=2)
    assert (found.ended, min(begun(found))) == (("FINISHED",), 2)


@pytest.mark.parametrize("at_ms", [430, 460, 500, 560])
def test_an_answer_of_a_lister_that_runs_on_is_not_lost_while_a_part_restarts(at_ms: int) -> None:
    """It is slow, and says once what is new."""
    faults = ((at_ms - 100, "slow_storage"), (at_ms, "kill_task_manager"))
    assert outcome(*faults, job=forward_job("job", poll_ms=20, uneven=True)).ended == ("FINISHED",)


@pytest.mark.parametrize("at_ms", [450, 500])
def test_barriers_that_overtake_records_and_copies_of_state_leave_a_part_a_part(at_ms: int) -> None:
    mode = CheckpointMode.UNALIGNED
    found = outcome((at_ms, "kill_task_manager"), mode=mode, at_a_time=2, replicas=1)
    assert (found.attempts, found.ended, min(begun(found))) == (2, ("FINISHED",), 1)


@pytest.mark.parametrize("at_ms", [460, 580])
def test_what_is_lost_at_the_same_time_is_one_failure(at_ms: int) -> None:
    """The job allows one restart."""
    job = replace(forward_job("job"), restart=FixedDelayRestart(1, 50))
    found = outcome((at_ms, "kill_task_manager"), (at_ms + 5, "kill_task_manager"), job=job, task_managers=5)
    assert found.ended == ("FINISHED",)


@pytest.mark.parametrize("seed", range(3))
def test_each_attempt_of_a_job_that_is_broken_off_ends(seed: int) -> None:
    """Its coordinator fails at the first checkpoint, when a part of it has begun in another attempt."""
    found = outcome(
        (420, "fail_subtask"), job=forward_job("job", 600), jobs=2, sick="defect", task_managers=5, seed=seed
    )
    assert found.ended == ("FINISHED",)


@pytest.mark.parametrize("seed", range(max(1, SEEDS // SHARE)))
def test_parts_restart_among_other_faults(seed: int) -> None:
    assert simulate(part_scenario(seed)).ended
