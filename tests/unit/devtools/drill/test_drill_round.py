"""When a round kills: the pause that the user asked for begins once the cluster is whole and the job runs."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pytest
from lockgate_devtools.drill.arena import Victim
from lockgate_devtools.drill.model import Target
from lockgate_devtools.drill.round import Round, RoundResult
from lockgate_devtools.drill.sample import Sample
from lockgate_proto.messages import JobEvent, JobState, JobStatus, LeaderFailover

EVERY_S, INTERVAL_MS = 4.0, 500


class Stage:
    """Arena, client and observer of one round, all in one, and the story of what they were asked."""

    def __init__(self, state: JobState = JobState.RUNNING, is_whole: bool = True) -> None:
        self.story: list[Any] = []
        self.status: JobStatus | None = JobStatus("drill", state=state)
        self.becomes = state
        self.is_whole = is_whole
        self.after_kill: JobState | None = None
        self.events: tuple[JobEvent, ...] = ()
        self.samples: tuple[Sample, ...] = ()
        self.client = self

    def wait_complete(self, timeout_s: float) -> bool:
        self.story.append("whole?")
        return self.is_whole and timeout_s > 0

    def wait_for(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        """See JobObserver: what is waited for comes to pass, unless it never can."""
        if condition():
            self.story.append("runs")
            return True
        self.story.append(("pause", timeout_s))
        self.status = JobStatus("drill", state=self.becomes)
        return condition()

    def job(self, _key: str) -> JobStatus:
        assert self.status is not None
        return self.status

    def victim(self, *_: Any) -> Victim:
        return Victim(4711, "the leader")

    def kill(self, victim: Victim) -> int:
        self.story.append(f"kill {victim.pid}")
        self.becomes = self.after_kill or self.becomes
        return 1


def one_kill(stage: Stage, end: float = math.inf, seed: int = 1) -> RoundResult:
    account = RoundResult()
    anything: Any = stage
    failover = {"leader_failover": LeaderFailover.LEADER_FAILOVER_RESTART}
    drill = Round(
        "drill", anything, lambda _: None, random.Random(seed), [Target.LEADER], EVERY_S, INTERVAL_MS, failover
    )
    drill._one_kill(1, Target.LEADER, anything, account, end)
    return account


def test_the_pause_counts_from_the_cluster_being_whole() -> None:
    stage = Stage()
    one_kill(stage)
    assert stage.story[:2] == ["whole?", "runs"]
    name, pause_s = stage.story[2]
    assert name == "pause"
    assert EVERY_S <= pause_s <= EVERY_S + INTERVAL_MS / 1000
    assert stage.story[3] == "kill 4711"


def test_the_kills_fall_anywhere_between_two_checkpoints() -> None:
    pauses = []
    for seed in range(20):
        stage = Stage()
        one_kill(stage, seed=seed)
        pauses.append(stage.story[2][1] - EVERY_S)
    assert len(set(pauses)) == 20
    assert min(pauses) < 0.1
    assert max(pauses) > 0.4


def test_a_cluster_that_does_not_become_complete_is_a_problem_and_nothing_is_killed() -> None:
    stage = Stage(is_whole=False)
    account = one_kill(stage)
    assert stage.story == ["whole?"]
    assert "before kill 1 the cluster was not complete" in account.problems[0]


@pytest.mark.parametrize(("state", "problems"), [(JobState.FINISHING, 0), (JobState.FINISHED, 0), (JobState.FAILED, 1)])
def test_a_job_that_runs_no_more_after_the_pause_is_not_struck(state: JobState, problems: int) -> None:
    stage = Stage()
    stage.becomes = state
    account = one_kill(stage)
    assert "kill 4711" not in stage.story
    assert len(account.problems) == problems


def test_no_kill_when_the_input_has_become_too_short_during_the_pause() -> None:
    stage = Stage()
    account = one_kill(stage, end=-math.inf)
    assert stage.story[2][0] == "pause"
    assert "kill 4711" not in stage.story
    assert account.problems == []


@pytest.mark.parametrize(
    ("state", "counted", "problems"),
    [(JobState.FINISHED, 0, 0), (JobState.FAILED, 1, 1), (JobState.RUNNING, 1, 1)],
)
def test_a_kill_that_the_end_of_the_input_has_overtaken_does_not_count(
    state: JobState, counted: int, problems: int
) -> None:
    stage = Stage()
    stage.after_kill = state
    account = one_kill(stage)
    assert "kill 4711" in stage.story
    assert (len(account.kills), len(account.problems)) == (counted, problems)
