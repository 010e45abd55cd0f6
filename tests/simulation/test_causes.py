"""Every effect's cause is an event that happened, and every chain of causes begins outside of the machines."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from lockgate_coordinator.runtime import job_runner
from lockgate_taskmanager.runtime.stories import SubtaskStory

from tests.simulation.causes import OUTSIDE, Causes
from tests.simulation.coordinator import installed
from tests.simulation.scenarios import random_scenario
from tests.simulation.simulation import Run, Scenario
from tests.simulation.taskmanager import replacements
from tests.simulation.world import Violation


def _causes(scenario: Scenario) -> Causes:
    run = Run(scenario)
    with installed(run.world, replacements(run.world)):
        run.go()
    assert run.world.causes is not None
    return run.world.causes


@pytest.mark.parametrize("seed", [3, 7])
def test_chains_begin_outside_and_cross_processes(seed: int) -> None:
    causes = _causes(random_scenario(seed))
    assert len(causes.lines) > 50
    chains = {event_id: causes.chain(event_id) for event_id in causes.lines}
    assert {chain[-1].cause_id for chain in chains.values()} <= OUTSIDE
    complete = [chain for chain in chains.values() if chain[0].event.endswith("so it is complete")]
    assert complete
    for chain in complete:
        number = chain[0].event.split()[1]
        assert {line.id.partition(".")[0].partition("-")[0] for line in chain} >= {"tm"}, "it crosses task managers"
        assert any(f"checkpoint id {number} is reserved" in line.event for line in chain)
        assert all(re.search(rf" {number}\b", line.event) for line in chain[:5])


def test_a_cause_that_never_happened_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_runner, "caused", _lie)
    with pytest.raises(Violation, match="names the cause 'c9-9', which never happened"):
        _causes(random_scenario(7))


def test_an_id_used_twice_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    handled = SubtaskStory.handled

    def stale(self: SubtaskStory, *arguments: object) -> str:
        self._log._numbers = iter(range(100))
        return handled(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(SubtaskStory, "handled", stale)
    with pytest.raises(Violation, match="names two events"):
        _causes(random_scenario(7))


def _lie(body: Any, _: str) -> Any:
    return replace(body, cause_id="c9-9") if hasattr(body, "cause_id") else body
