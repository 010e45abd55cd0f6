"""`Job(leader_failover=...)`."""

from __future__ import annotations

import pytest
from lockgate_proto.messages import LeaderFailover

from lockgate import Job, PipelineError


def option(**options: object) -> LeaderFailover:
    job = Job("j", **options)  # type: ignore[arg-type]
    job.generate(10).print()
    return job.graph().leader_failover


def test_the_option_reaches_the_graph_and_the_default_is_left_out() -> None:
    assert option() is option(leader_failover="restart") is LeaderFailover.LEADER_FAILOVER_UNSPECIFIED
    assert option(leader_failover="reattach") is LeaderFailover.LEADER_FAILOVER_REATTACH


def test_another_value_is_refused() -> None:
    with pytest.raises(PipelineError, match='leader_failover must be one of "restart", "reattach", not True'):
        option(leader_failover=True)
