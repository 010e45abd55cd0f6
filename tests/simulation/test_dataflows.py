"""Random dataflows on the whole simulated cluster, under random faults, against one thread that follows each record.

The same examples in every run; with LOCKGATE_TEST_SHARE a third of them, of every other mode each day.
LOCKGATE_TEST_SIMULATION_DATAFLOWS=N draws N others of each mode, shrinks what fails, and Hypothesis says how to see it
again.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from lockgate_proto.loops import loops
from lockgate_proto.messages import CheckpointMode

from tests.share import SHARE, of_today
from tests.simulation.dataflows import scenarios
from tests.simulation.simulation import Outcome, Scenario, simulate

pytestmark = pytest.mark.timeout(1800)  # nothing here can hang for real, and a slow machine takes its time

EXAMPLES = os.environ.get("LOCKGATE_TEST_SIMULATION_DATAFLOWS", "")
SEARCH = (Phase.explicit, Phase.reuse, Phase.generate)
SETTINGS = settings(
    max_examples=int(EXAMPLES or 50),
    derandomize=not EXAMPLES,
    phases=(*SEARCH, Phase.shrink) if EXAMPLES else SEARCH,
    database=None,
    deadline=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)
MODES = {
    "aligned": (CheckpointMode.EXACTLY_ONCE, 0),
    "at least once": (CheckpointMode.AT_LEAST_ONCE, 0),
    "unaligned": (CheckpointMode.UNALIGNED, 0),
    "aligned with timeout": (CheckpointMode.UNALIGNED, 25),
    "stop the world": (CheckpointMode.STOP_THE_WORLD, 0),
}


@pytest.mark.slow
@pytest.mark.parametrize("mode", of_today([*MODES], min(SHARE, 2)))
def test_a_dataflow_under_faults_has_the_result_of_one_thread(mode: str) -> None:
    seen: Counter[str] = Counter()

    share = 1 if EXAMPLES else min(SHARE, 3)

    @settings(SETTINGS, max_examples=SETTINGS.max_examples // share)
    @given(scenarios(*MODES[mode]))
    def holds(scenario: Scenario) -> None:
        outcome = simulate(scenario)
        seen.update(_happened(scenario, outcome))

    holds()
    wanted = {"several attempts", "several leaders", "a rescale", "several sources", "several ways", "a broadcast"}
    wanted |= set() if mode == "at least once" else {"a loop"}
    if SHARE == 1:  # these are rare
        wanted |= {"a log"} if mode in ("aligned", "unaligned") else set()
        wanted |= {"records in flight", "records that are moved"} if mode == "unaligned" else set()
    assert wanted <= set(seen), f"it never saw {wanted - set(seen)}: {seen}"


def _happened(scenario: Scenario, outcome: Outcome) -> list[str]:
    assert scenario.job is not None
    has_loop = bool(loops(scenario.job.graph()))
    found = {
        "several attempts": outcome.attempts > 1,
        "several leaders": outcome.grants > 1,
        "a rescale": outcome.rescales > 0,
        "several sources": len(scenario.job.model.first_partition) > 1,
        "several ways": max(Counter(edge.source for edge in scenario.job.edges).values()) > 1,
        "a broadcast": any(edge.partitioning.name == "BROADCAST" for edge in scenario.job.edges),
        "a loop": has_loop,
        "a log": has_loop and outcome.in_flight > 0,
        "records in flight": not has_loop and outcome.in_flight > 0,
        "records that are moved": outcome.moved > 0,
    }
    return [name for name, is_so in found.items() if is_so]
