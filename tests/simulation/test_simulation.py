"""Crashes, frozen leaders and a bad network against the invariants; every failure names the command that repeats it."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from lockgate_proto.messages import CheckpointMode

from tests.simulation.job import looping_job
from tests.simulation.orders import Order
from tests.simulation.scenarios import (
    DRAIN,
    RESCALE,
    SAVEPOINT_THEN_DRAIN,
    SAVEPOINT_THEN_STOP,
    STOP,
    cancelled_scenario,
    every_point,
    ordered_scenario,
    quiet_scenario,
    random_scenario,
    slow_among_faults,
    slow_scenario,
)
from tests.simulation.simulation import Scenario, simulate
from tests.simulation.world import Violation

pytestmark = pytest.mark.timeout(1800)  # nothing here can hang for real, and a slow machine takes its time

ROOT = Path(__file__).resolve().parents[2]
SEEDS = int(os.environ.get("LOCKGATE_SIMULATION_SEEDS", "400"))
CHUNK = 50
BASE_SEED = 3
OTHER_MODES = (CheckpointMode.AT_LEAST_ONCE, CheckpointMode.UNALIGNED)


def _hold(scenario: Scenario) -> None:
    again = f"--seed {scenario.seed}"
    if scenario.mode is not CheckpointMode.EXACTLY_ONCE:
        again += f" --mode {scenario.mode.name.lower()}"
    if scenario.plan.slow:
        again += f" --slow {scenario.plan.slow}"
    if scenario.job is not None:
        again += " --loop"
    if scenario.at_a_time > 1:
        again += f" --at-a-time {scenario.at_a_time}"
    if scenario.orders and not scenario.crash_at and scenario == ordered_scenario(scenario.seed):
        again += " --ordered"
    if scenario.crash_at:
        again += f" --crash-at {scenario.crash_at}"
    if scenario.stall_at:
        again += f" --freeze-at {scenario.stall_at}{' --usurped' if scenario.usurped else ''}"
    try:
        simulate(scenario)
        return
    except Violation as error:
        story = str(error)
    pytest.fail(f"repeat with: python -m tests.simulation {again}\n{story}", pytrace=False)


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_random_schedules_lose_nothing_and_repeat_nothing(first: int) -> None:
    for seed in range(first, first + CHUNK):
        _hold(random_scenario(seed))


def test_a_standby_takes_over_after_a_crash_at_every_step() -> None:
    for scenario in every_point(BASE_SEED, "crash"):
        _hold(scenario)


@pytest.mark.parametrize("mode", OTHER_MODES)
def test_a_standby_takes_over_after_a_crash_at_every_step_in_every_mode(mode: CheckpointMode) -> None:
    for scenario in every_point(BASE_SEED, "crash", mode=mode):
        _hold(scenario)


@pytest.mark.parametrize("mode", OTHER_MODES)
def test_random_schedules_in_every_mode(mode: CheckpointMode) -> None:
    for seed in range(SEEDS // 4):
        _hold(replace(random_scenario(seed), mode=mode))


@pytest.mark.parametrize("mode", OTHER_MODES)
def test_a_quiet_run_in_every_mode_needs_one_attempt(mode: CheckpointMode) -> None:
    for seed in range(10):
        assert simulate(quiet_scenario(seed, mode)).attempts == 1


@pytest.mark.parametrize("mode", [CheckpointMode.EXACTLY_ONCE, *OTHER_MODES])
def test_several_checkpoints_in_flight_lose_nothing(mode: CheckpointMode) -> None:
    for seed in range(SEEDS // 8):
        _hold(replace(random_scenario(seed), mode=mode, at_a_time=3))
    for scenario in every_point(BASE_SEED, "crash", step=7, mode=mode):
        _hold(replace(scenario, at_a_time=3))


LOOP_MODES = (CheckpointMode.EXACTLY_ONCE, CheckpointMode.UNALIGNED)


@pytest.mark.parametrize("mode", LOOP_MODES)
def test_a_crash_at_every_step_loses_nothing_of_what_circles(mode: CheckpointMode) -> None:
    for scenario in every_point(BASE_SEED, "crash", mode=mode, job=looping_job("job")):
        _hold(scenario)


@pytest.mark.parametrize("mode", LOOP_MODES)
def test_random_schedules_lose_nothing_of_what_circles(mode: CheckpointMode) -> None:
    for seed in range(SEEDS // 8):
        _hold(replace(random_scenario(seed), mode=mode, job=looping_job("job")))


def test_snapshots_of_a_quiet_loop_hold_what_circles_and_it_ends_in_one_attempt() -> None:
    outcomes = [simulate(replace(quiet_scenario(seed), job=looping_job("job"))) for seed in range(10)]
    assert {one.attempts for one in outcomes} == {1}
    assert sum(one.in_flight for one in outcomes) > 20


def test_unaligned_snapshots_of_a_pressed_job_hold_records_in_flight() -> None:
    assert sum(simulate(quiet_scenario(seed, CheckpointMode.UNALIGNED)).in_flight for seed in range(10)) > 100


def test_a_leader_that_is_replaced_at_any_step_and_goes_on_does_no_harm() -> None:
    for scenario in every_point(BASE_SEED, "usurp"):
        _hold(scenario)


def test_a_leader_that_sleeps_through_its_session_at_any_step_does_no_harm() -> None:
    for scenario in every_point(BASE_SEED, "freeze", step=3):
        _hold(scenario)


def test_a_quiet_run_needs_one_attempt_and_one_leader() -> None:
    for seed in range(20):
        outcome = simulate(quiet_scenario(seed))
        assert (outcome.attempts, outcome.grants) == (1, 1)


def test_a_zookeeper_outage_restarts_nothing() -> None:
    for seed in range(20):
        outcome = simulate(Scenario(seed, faults=((300 + 20 * seed, "stop_zookeeper"),)))
        assert (outcome.attempts, outcome.grants) == (1, 1)


ORDERS = {
    "rescale": RESCALE,
    "stop": STOP,
    "drain": DRAIN,
    "savepoint then stop": SAVEPOINT_THEN_STOP,
    "savepoint then drain": SAVEPOINT_THEN_DRAIN,
}


@pytest.mark.parametrize("orders", ORDERS.values(), ids=ORDERS)
def test_a_crash_at_every_step_of_an_order_leaves_it_done_or_undone(orders: tuple[tuple[float, Order], ...]) -> None:
    quiet = Scenario(BASE_SEED, orders=orders)
    for point in range(1, simulate(quiet).points + 1):
        _hold(replace(quiet, crash_at=point))


def test_orders_among_random_faults() -> None:
    for seed in range(SEEDS // 2):
        _hold(ordered_scenario(seed))


def test_a_quiet_rescale_takes_one_attempt_each_and_a_quiet_stop_none() -> None:
    for seed in range(10):
        assert simulate(Scenario(seed, orders=RESCALE[:1])).attempts == 2
        assert simulate(Scenario(seed, orders=STOP)).attempts == 1
        assert simulate(Scenario(seed, orders=DRAIN)).attempts == 1


def test_a_stop_while_a_user_takes_a_savepoint_ends_with_its_own_once_that_is_shown() -> None:
    for seed in range(SEEDS // 4):
        at = 200.0 + 3 * (seed % 30)
        for drain in (False, True):
            orders = ((at, Order(savepoint=True)), (250.0, Order(drain=drain)))
            _hold(Scenario(seed, orders=orders))


def test_a_savepoint_that_is_asked_for_again_is_the_same_under_every_leader() -> None:
    for seed in range(SEEDS // 4):
        at = 80.0 + 7 * (seed % 20)
        faults = ((at + 10 * (seed % 9), "kill_leader"),) if seed % 2 else ()
        _hold(Scenario(seed, orders=((at, Order(savepoint=True)),), faults=faults))


def test_a_cancelled_job_has_shown_its_newest_checkpoint_whole() -> None:
    for seed in range(SEEDS // 2):
        _hold(cancelled_scenario(seed))


def test_a_slow_task_manager_is_left_in_one_attempt() -> None:
    outcomes = [simulate(slow_scenario(seed)) for seed in range(20)]
    assert all(one.attempts in (1, 2) and one.grants == 1 for one in outcomes)
    assert sum(one.attempts == 2 for one in outcomes) >= 15, "some are over before it shows"


def test_a_crash_at_every_step_of_a_move_does_no_harm() -> None:
    quiet = slow_scenario(BASE_SEED)
    for point in range(1, simulate(quiet).points + 1):
        _hold(replace(quiet, crash_at=point))


def test_moves_among_random_faults() -> None:
    for seed in range(SEEDS // 2):
        _hold(slow_among_faults(seed))


def test_a_seed_decides_everything() -> None:
    once, again = (simulate(random_scenario(7)) for _ in range(2))
    assert once == again
    program = (
        "from tests.simulation.scenarios import random_scenario; from tests.simulation.simulation import simulate; "
        "print(simulate(random_scenario(7)).digest)"
    )
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        result = subprocess.run(
            [sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
        )
        assert int(result.stdout) == once.digest
