"""Crashes, frozen leaders and a bad network against the invariants; every failure names the command that repeats it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.scenarios import every_point, quiet_scenario, random_scenario
from tests.simulation.simulation import Scenario, simulate
from tests.simulation.world import Violation

ROOT = Path(__file__).resolve().parents[2]
SEEDS = int(os.environ.get("LOCKGATE_SIMULATION_SEEDS", "400"))
CHUNK = 50
BASE_SEED = 3


def _hold(scenario: Scenario) -> None:
    again = f"--seed {scenario.seed}"
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
