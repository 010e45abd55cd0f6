"""What `lockgate status` says when the leader itself could not be asked."""

from __future__ import annotations

import pytest
from lockgate_proto import messages as m

from lockgate.commands.status import status_text, zookeeper_line
from lockgate.commands.top import View
from lockgate.json_shapes import status_json

LEADER = m.LeaderRecord(1, "h:1", "0x1", 7)
SILENT = m.ClusterStatus(LEADER, leader_silent=True)


@pytest.mark.parametrize(
    ("cluster", "line"),
    [
        (m.ClusterStatus(LEADER), "zookeeper: the leader reports no trouble"),
        (SILENT, "zookeeper: not known, the leader did not answer"),
        (m.ClusterStatus(leader_silent=True), "zookeeper: there is no leader to report on it"),
    ],
    ids=["well", "silent", "none"],
)
def test_no_trouble_is_said_only_by_the_leader(cluster: m.ClusterStatus, line: str) -> None:
    assert zookeeper_line(cluster) == line


def test_task_managers_of_a_silent_leader_are_not_known() -> None:
    assert "There is no task manager" in status_text(m.ClusterStatus(LEADER), ())
    text = status_text(SILENT, ())
    assert "There is no task manager" not in text
    assert "its task managers are not known" in text
    assert status_json(SILENT, ())["leader_silent"] is True


def test_top_does_not_count_task_managers_that_it_does_not_know() -> None:
    assert "task managers: 0, slots: 0, free: 0" in View().text(m.ClusterStatus(LEADER), (), 0.0)
    text = View().text(SILENT, (), 0.0)
    assert "task managers: not known" in text
    assert "zookeeper: not known" in text
