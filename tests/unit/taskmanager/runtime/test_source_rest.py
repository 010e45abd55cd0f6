"""When sources rest because their leader was lost."""

from __future__ import annotations

import pytest
from lockgate_proto.messages import EventTime, GeneratorSource, JobGraph, LeaderFailover, Operator, Vertex
from lockgate_taskmanager.runtime.source_rest import REST_S, SourceRest, may_rest

LOST = 7


class Clock:
    """Stands still until it is set."""

    now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


def resting(clock: Clock) -> SourceRest:
    rest = SourceRest(clock)
    assert rest.pause(LOST) is None
    rest.begin(LOST)
    assert rest.pause(LOST) is not None
    return rest


def test_a_rest_ends_by_itself() -> None:
    rest = resting(clock := Clock())
    clock.now_s += REST_S - 0.001
    assert rest.pause(LOST) is not None
    clock.now_s += 0.001
    assert rest.pause(LOST) is None


def test_it_ends_when_the_same_leader_is_back_but_not_for_its_successor() -> None:
    rest = resting(Clock())
    rest.registered(LOST + 1)
    assert rest.pause(LOST) is not None
    rest.registered(LOST)
    assert rest.pause(LOST) is None


def test_what_a_successor_has_deployed_does_not_rest() -> None:
    rest = resting(Clock())
    assert rest.pause(LOST - 1) is not None
    assert rest.pause(LOST + 1) is None


@pytest.mark.parametrize(
    ("failover", "idle_after_ms", "expected"),
    [
        (LeaderFailover.LEADER_FAILOVER_RESTART, 0, True),
        (LeaderFailover.LEADER_FAILOVER_RESTART, 200, False),
        (LeaderFailover.LEADER_FAILOVER_REATTACH, 0, False),
    ],
)
def test_which_jobs_sources_rest(failover: LeaderFailover, idle_after_ms: int, expected: bool) -> None:
    operators = (
        Operator("read", kind=GeneratorSource()),
        Operator("time", kind=EventTime("at", idle_after_ms=idle_after_ms)),
    )
    graph = JobGraph(vertices=(Vertex("source", operators=operators),), leader_failover=failover)
    assert may_rest(graph) is expected
