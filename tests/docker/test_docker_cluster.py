"""The compose cluster up and healthy, and when single members of it end: every job ends exactly.

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


def test_a_task_manager_that_leaves_gives_its_slots_back_and_one_more_is_taken_in(whole: Fleet) -> None:
    with whole.ledger() as job:
        job.wait_checkpoints(2)
        whole.compose("up -d --scale taskmanager=4")
        whole.wait_until(lambda: len(whole.client.cluster().task_managers) == 4, "the fourth has registered")
        whole.compose("up -d --scale taskmanager=3")
        whole.wait_until(lambda: len(whole.client.cluster().task_managers) == 3, "one has left")
        job.wait_checkpoints(2)
        assert job.check_exact().state is JobState.FINISHED
