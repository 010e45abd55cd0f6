"""The compose cluster under faults: every job ends exactly, whatever happens to containers and to the net between them.

Each result is recomputed from the input: every record once, every total right.
"""

from __future__ import annotations

import subprocess

import pytest
from lockgate_proto.messages import JobState

from tests.docker.fleet import COORDINATORS, ZOOKEEPERS, Fleet

pytestmark = [pytest.mark.docker, pytest.mark.timeout(1200)]


def test_a_job_submitted_from_outside_is_exact_and_containers_are_healthy(whole: Fleet) -> None:
    with whole.ledger(seconds=4) as job:
        job.check_exact()
    served = (*COORDINATORS, *ZOOKEEPERS, "taskmanager")
    whole.wait_until(
        lambda: all(container.health == "healthy" for container in whole.of(*served)), "every container is healthy"
    )


def test_zookeeper_speaks_tls_only(whole: Fleet) -> None:
    (server,) = whole.of("zookeeper-1")
    assert whole.serves(server.service), "with a certificate of the authority"
    plain = "exec 3<>/dev/tcp/127.0.0.1/2181 && printf srvr >&3 && timeout 10 cat <&3"
    said = subprocess.run(["docker", "exec", server.id, "bash", "-c", plain], capture_output=True, check=False)
    assert b"Mode" not in said.stdout


def test_the_image_is_no_larger_than_promised(whole: Fleet) -> None:
    assert whole.image_bytes() <= 1_500_000_000


def test_a_zookeeper_member_is_killed_and_then_the_ensembles_leader(whole: Fleet) -> None:
    with whole.ledger() as job:
        job.wait_checkpoints(2)
        leader = whole.zookeeper_leader()
        follower = whole.one(next(name for name in ZOOKEEPERS if name != leader))
        whole.kill(follower)
        job.wait_checkpoints(3)
        whole.start(follower)
        whole.wait_until(lambda: whole.serves(follower.service), "the member is back")
        job.wait_checkpoints(1)
        whole.kill(whole.one(leader))
        job.wait_checkpoints(3)
        job.check_exact()


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


@pytest.mark.timeout(2400)
def test_a_rolling_restart_of_every_host_loses_nothing(whole: Fleet) -> None:
    """On each of three hosts run a ZooKeeper server, a coordinator and a task manager, which stop at once."""
    with whole.ledger() as job:
        job.wait_checkpoints(2)
        for host in zip(whole.of(*ZOOKEEPERS), whole.of(*COORDINATORS), whole.of("taskmanager"), strict=True):
            whole.stop(*host)
            whole.start(*host)
            whole.wait_until(lambda name=host[0].service: whole.serves(name), f"{host[0].service} is back")
            whole.wait_complete()
            job.wait_checkpoints(2)
        job.check_exact()


def test_all_coordinators_down_and_up_again(whole: Fleet) -> None:
    with whole.ledger() as job:
        job.wait_checkpoints(2)
        all_of_them = whole.of(*COORDINATORS)
        for container in all_of_them:
            whole.kill(container)
        job.pause(3)
        whole.start(*all_of_them)
        job.wait_attempt(2)
        job.check_exact()


def test_everything_taken_down_or_killed_and_up_again_on_the_same_volumes(whole: Fleet) -> None:
    with whole.ledger() as job:
        job.wait_checkpoints(2)
        for end in (("down",), ("kill", "rm -f")):
            attempt = job.status.attempt
            for command in end:
                whole.compose(command)
            assert not whole.containers()
            whole.restore()
            whole.wait_complete()
            job.wait_attempt(attempt + 1)
        job.check_exact()


def test_a_task_manager_that_leaves_gives_its_slots_back_and_one_more_is_taken_in(whole: Fleet) -> None:
    with whole.ledger() as job:
        job.wait_checkpoints(2)
        whole.compose("up -d --scale taskmanager=4")
        whole.wait_until(lambda: len(whole.client.cluster().task_managers) == 4, "the fourth has registered")
        whole.compose("up -d --scale taskmanager=3")
        whole.wait_until(lambda: len(whole.client.cluster().task_managers) == 3, "one has left")
        job.wait_checkpoints(2)
        assert job.check_exact().state is JobState.FINISHED
