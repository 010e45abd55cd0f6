"""The compose cluster when many containers stop at once, and start again: every job ends exactly.

Each result is recomputed from the input: every record once, every total right.
"""

from __future__ import annotations

import pytest

from tests.docker.fleet import COORDINATORS, ZOOKEEPERS, Fleet

pytestmark = [pytest.mark.docker, pytest.mark.rotating, pytest.mark.timeout(1200)]


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
