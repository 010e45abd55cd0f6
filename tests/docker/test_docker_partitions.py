"""The compose cluster when the network between containers is cut, and when one is frozen: every job ends exactly.

Each result is recomputed from the input: every record once, every total right.
"""

from __future__ import annotations

import pytest

from tests.docker.fleet import ZOOKEEPERS, Fleet

pytestmark = [pytest.mark.docker, pytest.mark.rotating, pytest.mark.timeout(1200)]


def test_a_cut_blocks_both_directions_and_healing_tolerates_a_restart(whole: Fleet) -> None:
    victim, *others, bystander = whole.of("taskmanager", "zookeeper-1")
    ways = [(item, two) for other in others for item, two in ((victim, other), (other, victim))]
    whole.cut(victim, tuple(others))
    assert not [way for way in ways if whole.lets_out(*way)]
    assert all(whole.hears_nothing(*way) for way in ways), "a cut that says so is none"
    assert whole.lets_out(victim, bystander)
    assert not whole.hears_nothing(victim, bystander)
    assert whole.lets_out(bystander, victim)
    assert whole.lets_out(*others)
    whole.kill(others[0])
    whole.start(others[0])
    whole.heal()
    ways = [way for way in ways if others[0] not in way]  # it may have another address now
    assert all(whole.lets_out(*way) for way in ways)


def test_the_leader_is_cut_off_from_zookeeper_but_not_from_task_managers(whole: Fleet) -> None:
    with whole.ledger() as job:
        job.wait_checkpoints(2)
        deposed = whole.leader()
        whole.cut(deposed, whole.of(*ZOOKEEPERS))
        whole.wait_until(lambda: whole.leader_name() != deposed.service, "another coordinator leads")
        job.wait_attempt(2)
        whole.heal()
        job.check_exact()
        assert whole.leader_name() != deposed.service


def test_the_leader_is_cut_off_from_task_managers_but_not_from_zookeeper(whole: Fleet) -> None:
    with whole.ledger() as job:
        job.wait_checkpoints(2)
        whole.cut(whole.leader(), whole.of("taskmanager"))
        whole.wait_until(lambda: not whole.client.cluster().task_managers, "the leader misses its task managers")
        whole.heal()
        job.wait_attempt(2)
        assert job.check_exact().restarts >= 1


def test_the_leader_is_cut_off_from_everything(whole: Fleet) -> None:
    with whole.ledger() as job:
        job.wait_checkpoints(2)
        deposed = whole.leader()
        whole.cut(deposed, tuple(container for container in whole.containers() if container.is_running))
        job.wait_attempt(2)
        whole.heal()
        assert job.check_exact().restarts >= 1
        assert whole.leader_name() != deposed.service


def test_one_task_manager_is_cut_off_from_the_others(whole: Fleet) -> None:
    with whole.ledger() as job:
        job.wait_checkpoints(2)
        busy = {subtask.task_manager_id.removeprefix("tm-") for subtask in whole.client.job(job.key).subtasks}
        assert len(busy) > 1, "no record crosses the network"
        victim = next(container for container in whole.of("taskmanager") if container.id[:12] in busy)
        before = len(job.checkpoints())
        whole.cut(victim, whole.of("taskmanager"))
        job.pause(6)
        completed = len(job.checkpoints()) - before
        whole.heal()
        job.wait_checkpoints(2)
        restarts = job.check_exact().restarts
        assert completed <= 6 or restarts >= 1, "the cut has held up nothing: undisturbed it were a dozen checkpoints"


def test_a_leader_paused_past_its_session_finds_itself_replaced(whole: Fleet) -> None:
    with whole.ledger() as job:
        job.wait_checkpoints(2)
        frozen = whole.leader()
        whole.pause(frozen)
        job.wait_attempt(2)  # a standby took over on evidence, long before the session is over
        whole.wait_until(lambda: not whole.is_in_line(frozen), "the session of the paused leader is over")
        whole.unpause(frozen)
        whole.wait_until(lambda: whole.is_in_line(frozen), "it stands by")
        job.wait_checkpoints(2)
        assert whole.leader_name() != frozen.service
        job.check_exact()
