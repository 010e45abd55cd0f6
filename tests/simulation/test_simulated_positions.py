"""Sources that begin at the end of what grows begin there once: a later attempt skips nothing that came since."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.share import SHARE
from tests.simulation.job import growing_job
from tests.simulation.scenarios import at_points, positions_scenario, quiet_scenario
from tests.simulation.simulation import simulate

SEEDS = 30
LATE_MS = 3_000
"""Of a first checkpoint that no fault in these tests waits for."""


@pytest.mark.parametrize("forward", [False, True])
@pytest.mark.parametrize("fault", ["kill_leader", "kill_task_manager", "fail_subtask"])
@pytest.mark.parametrize("at_ms", [500, 700])
def test_an_attempt_without_a_checkpoint_begins_where_the_first_began(at_ms: int, fault: str, forward: bool) -> None:
    """See Oracle.given_out: and the ledgers have every record from there on."""
    job = growing_job("job", LATE_MS, forward=forward)
    found = simulate(replace(quiet_scenario(3), job=job, task_managers=3, faults=((at_ms, fault),)))
    assert (found.attempts, found.ended) == (2, ("FINISHED",))


@pytest.mark.parametrize("kind", ["crash", "crash of a task manager"])
def test_at_every_step(kind: str) -> None:
    """Between the answer of a task manager, the record, and the orders to read; before and after checkpoints."""
    tried = [simulate(found) for found in at_points(3, kind, 3, job=growing_job("job", 250, forward=True))]
    assert max(found.attempts for found in tried) > 1


@pytest.mark.parametrize("seed", range(SEEDS // SHARE))
def test_among_faults_and_orders(seed: int) -> None:
    """Savepoints, stops and other parallelisms at about the time of the first checkpoint."""
    simulate(positions_scenario(seed))
