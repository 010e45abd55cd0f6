"""`Job(leader_failover=...)`."""

from __future__ import annotations

import pytest
from lockgate_proto.messages import LeaderFailover

from lockgate import Job, PipelineError


def option(**options: object) -> LeaderFailover:
    job = Job("j", **options)  # type: ignore[arg-type]
    job.generate(10).print()
    return job.graph().leader_failover


def test_the_option_reaches_the_graph_and_no_choice_is_left_to_the_cluster() -> None:
    """So a pipeline that was submitted before the default changed is still the same job when it is submitted again."""
    assert option() is LeaderFailover.LEADER_FAILOVER_UNSPECIFIED
    assert option(leader_failover="reattach") is LeaderFailover.LEADER_FAILOVER_REATTACH
    assert option(leader_failover="restart") is LeaderFailover.LEADER_FAILOVER_RESTART


def test_another_value_is_refused() -> None:
    with pytest.raises(PipelineError, match='leader_failover must be one of "reattach", "restart", not True'):
        option(leader_failover=True)
