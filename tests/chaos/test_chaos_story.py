"""`lockgate job KEY --story` on real processes: a checkpoint, a restart and a takeover, from event to cause."""

from __future__ import annotations

import pytest

from tests.chaos.testing_cluster import TestingCluster
from tests.parsed_story import parsed_story

pytestmark = [pytest.mark.chaos, pytest.mark.rotating]


def test_checkpoint_restart_and_takeover_are_followed_to_their_causes(
    testing: TestingCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    target = ("--cluster", str(testing.cluster.directory))
    with testing.ledger() as job:
        job.wait_checkpoints(3)
        story = parsed_story(job.key, capsys, *target)
        story.check_order()
        story.check_checkpoint()
        testing.cluster.kill("taskmanager", 0)
        job.wait_attempt(2)
        parsed_story(job.key, capsys, *target).check_restart(2)
        testing.kill_leader()
        job.wait_attempt(3)
        story = parsed_story(job.key, capsys, *target)
        assert any("begins with the grant of token" in remark for remark in story.remarks)
        chain = story.chain(next(line for line in story.containing("its thread starts") if line["attempt"] == 3))
        assert chain[-1]["cause_id"] == "leadership"
        assert chain[-1]["event"].startswith("the job's records are read")
