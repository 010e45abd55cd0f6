"""A standby that cannot ask the leader says so in the status of the cluster."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from lockgate_coordinator.runtime.access import FORWARDED_METADATA
from lockgate_coordinator.runtime.errors import NotLeading
from lockgate_coordinator.runtime.job_service import JobService
from lockgate_coordinator.runtime.settings import CoordinatorSettings
from lockgate_proto import messages as m

OWN = "127.0.0.1:1"


class Standby:
    """The dispatcher of a coordinator that does not lead."""

    def call(self, _ask: Any) -> Any:
        raise NotLeading("")


@pytest.mark.parametrize(
    ("leader", "metadata"),
    [
        (None, ()),
        (m.LeaderRecord(1, OWN), ()),
        (m.LeaderRecord(1, "127.0.0.1:2"), ((FORWARDED_METADATA, "1"),)),
    ],
    ids=["none", "itself a moment ago", "asked by another standby"],
)
def test_a_leader_that_was_not_asked_is_not_without_trouble(
    leader: m.LeaderRecord | None, metadata: tuple[tuple[str, str], ...]
) -> None:
    cluster: Any = SimpleNamespace(leader=leader, contenders=lambda: ())
    dispatcher: Any = Standby()
    files: Any = None
    service = JobService(CoordinatorSettings("127.0.0.1:3", "storage"), OWN, dispatcher, files, cluster)
    known: Any = SimpleNamespace(metadata=metadata)
    assert service.GetCluster(m.GetClusterRequest(), known) == m.ClusterStatus(leader, leader_silent=True)
