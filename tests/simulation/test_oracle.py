"""Every oracle sees the mistake that it is there for: a deliberate one, in what the simulation runs."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any
from unittest import mock

from lockgate_coordinator.job.ending import Ending
from lockgate_coordinator.runtime import submissions
from lockgate_coordinator.runtime.job_runner import JobRunner
from lockgate_proto.messages import SubmitResponse
from lockgate_taskmanager.runtime import uploads
from lockgate_taskmanager.task.events import UploadFailed

from tests.simulation.flow import KEY_GROUPS, key_group_of
from tests.simulation.job import SimulatedJob, looping_job
from tests.simulation.programs import CountProgram
from tests.simulation.scenarios import (
    RESCALE,
    damaged_scenario,
    random_scenario,
    rivals_scenario,
    sick_scenario,
    storage_scenario,
)
from tests.simulation.simulation import Scenario, simulate
from tests.simulation.world import Violation


def _sees(text: str, scenarios: Iterable[Scenario], where: Any, name: str, mistake: Callable[..., Any]) -> None:
    """One of the scenarios ends with a violation that says `text`, and none ends with another one."""
    with mock.patch.object(where, name, mistake):
        said = next((item for item in map(_violation, scenarios) if item), "nothing")
    assert text in said


def _violation(scenario: Scenario) -> str:
    """What is wrong with a run, in one line; empty for nothing."""
    try:
        simulate(scenario)
    except Violation as error:
        return str(error).partition("\n")[0]
    return ""


def test_every_key_group_holds_keys() -> None:
    jobs = [SimulatedJob.draw("job", random.Random(seed)) for seed in range(50)] + [looping_job("job")]
    for job in jobs:
        for name in job.model.counting:
            groups = {key_group_of(key) for key in job.model.everything().counts(name)}
            assert groups == set(range(KEY_GROUPS))


def test_a_key_owned_by_two_subtasks_is_detected() -> None:
    def load(self: CountProgram, _: Any, content: Any) -> None:
        if not content or not hasattr(content[0], "rows"):  # keyed state, of all key groups in the file
            self.state |= dict(content)
            self.changed_at = dict.fromkeys(self.state, 0)
        else:
            self.pending += content

    scenarios = (Scenario(seed, orders=RESCALE[:1]) for seed in range(5))
    _sees("belong to another subtask as well", scenarios, CountProgram, "load", load)


def test_rows_that_are_upserted_again_are_detected() -> None:
    freeze = CountProgram.freeze

    def forgetful(self: CountProgram, *arguments: Any) -> Any:
        changed = set(self.changed)
        found = freeze(self, *arguments)
        self.changed = changed
        return found

    _sees("upserts rows again", map(Scenario, range(5)), CountProgram, "freeze", forgetful)


def test_rows_of_an_aborted_checkpoint_that_no_later_one_upserts_are_detected() -> None:
    freeze = CountProgram.freeze

    def careless(self: CountProgram, *arguments: Any) -> Any:
        self.pending.clear()
        return freeze(self, *arguments)

    scenarios = (random_scenario(seed) for seed in range(60))
    _sees("once committed the table", scenarios, CountProgram, "freeze", careless)


def test_another_job_under_the_same_key_is_detected() -> None:
    def same(found: Any, wanted: Any) -> SubmitResponse:
        return SubmitResponse(wanted.job_key, found.run_id, created=False)

    _sees("perhaps another job", map(rivals_scenario, range(10)), submissions, "_same", same)


def test_an_error_of_one_job_that_affects_others_is_detected() -> None:
    def unguarded(_: Any, what: str, call: Callable[[], None]) -> None:
        del what
        call()

    _sees("a defect that only this job meets", [sick_scenario(1)], JobRunner, "_guarded", unguarded)


def test_a_deleted_snapshot_of_a_failed_job_is_detected() -> None:
    def result(self: Ending, *arguments: Any) -> Any:
        return replace(make(self, *arguments), retained=(), keep_files=False)

    make = Ending.result
    _sees("is not kept", map(damaged_scenario, range(10)), Ending, "result", result)


def test_a_storage_failure_that_counts_against_the_job_is_detected() -> None:
    def without_cause(checkpoint_id: int, reason: str, *, is_storage: bool = False) -> UploadFailed:
        del is_storage
        return UploadFailed(checkpoint_id, reason)

    with mock.patch.object(uploads, "UploadFailed", without_cause):
        assert any(simulate(storage_scenario(seed)).attempts > 1 for seed in range(10))
