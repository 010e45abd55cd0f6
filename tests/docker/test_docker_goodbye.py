"""A goodbye differs from a crash: a stopped process says so, and is not found out.

Both kinds of end survive, so a result that is exact proves neither: what tells them apart is what the leader's log says
of it. Whether the next leader is granted before the process has ended depends on how fast either is.
"""

from __future__ import annotations

import time

import pytest
from lockgate_proto.messages import JobEvent, JobEventKind

from tests.docker.fleet import Container, Fleet
from tests.drained import PATIENCE_S
from tests.ledger_job import NEVER, LedgerJob

pytestmark = [pytest.mark.docker, pytest.mark.rotating, pytest.mark.timeout(1200)]

# How a coordinator that becomes the leader knows that the former one left of its own accord.
GOODBYES = {"there was no leader", "the process at the leader's address reported that it is not the leader"}


def _wait_event(job: LedgerJob, kind: JobEventKind, after_us: int) -> JobEvent:
    """The first such event since then."""

    def found() -> list[JobEvent]:
        return [event for event in job.observer.events if event.kind is kind and event.unix_us > after_us]

    assert job.observer.wait_for(lambda: bool(found()), PATIENCE_S), f"{job.key} has not seen {kind.name}"
    return found()[0]


def _why_granted(fleet: Fleet, token: int) -> str:
    """What the leader has logged when it was granted the token."""
    said = f"token {token} was granted: "
    (line,) = _wait_log(fleet, fleet.leader(), said)
    return line.partition(said)[2]


def _wait_log(fleet: Fleet, container: Container, said: str, since_us: int = 0) -> list[str]:
    """The lines of a container's log in which it says that; the engine writes them down a moment after it did."""
    found: list[str] = []

    def is_said() -> bool:
        found[:] = [line for line in fleet.log(container, since_us).splitlines() if said in line]
        return bool(found)

    fleet.wait_until(is_said, f"{container.service} says: {said}")
    return found


def _now(fleet: Fleet, container: Container) -> Container:
    """The same container as it is now."""
    (found,) = (item for item in fleet.containers() if item.id == container.id)
    return found


def test_a_leader_that_is_stopped_hands_over_and_is_not_suspected(whole: Fleet) -> None:
    with whole.ledger() as job:
        job.wait_checkpoints(2)
        leader = whole.leader()
        asked_us = time.time_ns() // 1000
        whole.stop(leader)
        granted = _wait_event(job, JobEventKind.LEADER_GRANTED, asked_us)
        ended = _now(whole, leader)
        assert not ended.is_running
        assert ended.exit_code == 0
        assert whole.leader_name() != leader.service
        assert _why_granted(whole, granted.token) in GOODBYES
        job.check_exact()


def test_the_leaders_container_is_killed_and_the_leader_is_found_out(whole: Fleet) -> None:
    with whole.ledger() as job:
        job.wait_checkpoints(2)
        leader = whole.leader()
        killed_us = whole.kill(leader)
        granted = _wait_event(job, JobEventKind.LEADER_GRANTED, killed_us)
        job.wait_attempt(2)
        assert whole.leader_name() != leader.service
        assert _now(whole, leader).exit_code == 137
        assert _why_granted(whole, granted.token) not in GOODBYES
        assert job.check_exact().restarts == 1


def test_a_task_manager_that_is_stopped_says_goodbye_and_gives_its_slots_back_at_once(whole: Fleet) -> None:
    with whole.ledger(restart=NEVER) as job:  # a failure would end it
        job.wait_checkpoints(2)
        busy = {subtask.task_manager_id for subtask in whole.client.job(job.key).subtasks}
        leaving = next(container for container in whole.of("taskmanager") if f"tm-{container.id[:12]}" in busy)
        name = f"tm-{leaving.id[:12]}"
        asked_us = time.time_ns() // 1000
        whole.stop(leaving)
        assert name not in {task_manager.task_manager_id for task_manager in whole.client.cluster().task_managers}
        ended = _now(whole, leaving)
        assert not ended.is_running
        assert ended.exit_code == 0
        # The leader took its farewell, and ended the stream while the process was still there to hear it.
        _wait_log(whole, leaving, "ended: the leader ended it", asked_us)
        _wait_log(whole, whole.leader(), f"task manager {name} has left", asked_us)
        job.wait_attempt(2)
        assert name not in {subtask.task_manager_id for subtask in whole.client.job(job.key).subtasks}
        status = job.check_exact()
        assert status.restarts == 1
