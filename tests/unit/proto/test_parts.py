"""Which jobs restart in part although they exchange records."""

from __future__ import annotations

from dataclasses import replace

import pytest
from lockgate_proto.messages import (
    CheckpointMode,
    CheckpointOptions,
    Edge,
    JobGraph,
    ObjectState,
    Operator,
    Partitioning,
    RecordFunction,
    SocketSource,
    TaskManagerFailover,
)
from lockgate_proto.parts import is_made_again, whole_because

from tests.unit.coordinator.jobs import COUNT, word_count

PART = TaskManagerFailover.TASK_MANAGER_FAILOVER_PART


def graph() -> JobGraph:
    return replace(word_count(), task_manager_failover=PART)


def spread(edge: Partitioning) -> JobGraph:
    return replace(graph(), edges=(Edge("read", "count", edge),))


def after_source(operator: Operator) -> JobGraph:
    read, count = graph().vertices
    return replace(graph(), vertices=(replace(read, operators=(*read.operators, operator)), count))


def distributed_twice() -> JobGraph:
    read, count = graph().vertices
    third = replace(count, id="again", operators=(Operator("more", kind=COUNT),))
    return replace(
        graph(), vertices=(read, count, third), edges=(*graph().edges, Edge("count", "again", Partitioning.HASH))
    )


def from_a_socket() -> JobGraph:
    read, count = graph().vertices
    return replace(graph(), vertices=(replace(read, operators=(Operator("lines", kind=SocketSource()),)), count))


def test_records_that_are_distributed_once_by_key_let_the_others_run_on() -> None:
    assert whole_because(graph()) == ""


def test_a_stateless_function_in_front_of_the_exchange_is_the_authors_word() -> None:
    assert whole_because(after_source(Operator("clean", kind=RecordFunction()))) == ""


@pytest.mark.parametrize("mode", [CheckpointMode.CHECKPOINT_MODE_UNSPECIFIED, CheckpointMode.EXACTLY_ONCE])
def test_aligned_barriers_let_the_others_run_on(mode: CheckpointMode) -> None:
    assert whole_because(replace(graph(), checkpoints=CheckpointOptions(mode=mode))) == ""


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (word_count(), "its task_manager_failover is not PART"),
        (
            replace(graph(), checkpoints=CheckpointOptions(mode=CheckpointMode.UNALIGNED)),
            "its checkpoints are UNALIGNED",
        ),
        (spread(Partitioning.REBALANCE), "the records from 'read' to 'count' are not distributed by key"),
        (spread(Partitioning.BROADCAST), "the records from 'read' to 'count' are not distributed by key"),
        (distributed_twice(), "what 'count' distributes has been distributed before"),
        (from_a_socket(), "the source 'lines' cannot read up to a given position"),
        (
            after_source(Operator("counter", kind=RecordFunction(state=ObjectState.OBJECT_STATE_FIXED))),
            "operator 'counter' in front of an exchange has state",
        ),
    ],
)
def test_what_makes_the_whole_job_restart_is_named(found: JobGraph, why: str) -> None:
    assert whole_because(found) == why


def test_what_others_have_had_is_made_again_in_front_of_an_exchange_and_only_if_they_run_on() -> None:
    assert [is_made_again(graph(), name) for name in ("read", "count")] == [True, False]
    assert not is_made_again(word_count(), "read")
    assert not is_made_again(spread(Partitioning.FORWARD), "read")
