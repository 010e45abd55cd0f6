"""Splits for several subtasks of a task manager travel in one message, in their order among the others."""

from __future__ import annotations

from lockgate_coordinator.job.effects import Effect, Send, WakeAt
from lockgate_coordinator.job.together import MOST_TOGETHER, together
from lockgate_proto.messages import (
    AssignSplits,
    AssignSplitsTogether,
    AttemptId,
    DrainSources,
    SplitState,
    SubtaskId,
)
from lockgate_proto.splits import orders_in

ATTEMPT = AttemptId("job", "run", 1)


def order(index: int, splits: int = 1) -> AssignSplits:
    return AssignSplits(SubtaskId(ATTEMPT, "read", index), tuple(SplitState(str(each)) for each in range(splits)))


def to(name: str, *indices: int) -> list[Effect]:
    return [Send(name, order(index)) for index in indices]


def test_orders_for_one_task_manager_are_one_message_in_their_order() -> None:
    mixed: list[Effect] = [*to("a", 1), *to("b", 2), WakeAt(5), *to("a", 3), *to("a", 2)]
    assert together(mixed) == [
        Send("a", AssignSplitsTogether((order(1), order(3), order(2)))),
        *to("b", 2),
        WakeAt(5),
    ]


def test_no_order_overtakes_another_message_to_the_same_task_manager() -> None:
    drain: list[Effect] = [Send("a", DrainSources(ATTEMPT))]
    assert together([*to("a", 1), *drain, *to("a", 2)]) == [*to("a", 1), *drain, *to("a", 2)]
    assert together([*drain, *to("a", 1), *to("b", 1), *to("a", 2)]) == [
        *drain,
        Send("a", AssignSplitsTogether((order(1), order(2)))),
        *to("b", 1),
    ]


def test_a_message_that_names_many_splits_takes_no_more() -> None:
    few, most = order(1), order(2, MOST_TOGETHER - 4)
    full: list[Effect] = [Send("a", each) for each in (few, most, few, few)]
    assert together(full) == [
        Send("a", AssignSplitsTogether((few, most))),
        Send("a", AssignSplitsTogether((few, few))),
    ]
    huge: list[Effect] = [Send("a", order(1, 2 * MOST_TOGETHER)), Send("a", few)]
    assert together(huge) == huge


def test_the_single_orders_have_the_cause_of_the_message() -> None:
    found = orders_in(AssignSplitsTogether((order(1), order(2)), "c1-7"))
    assert [(each.subtask, each.cause_id) for each in found] == [
        (SubtaskId(ATTEMPT, "read", 1), "c1-7"),
        (SubtaskId(ATTEMPT, "read", 2), "c1-7"),
    ]


def test_splits_with_long_names_are_not_collected_beyond_a_message() -> None:
    long = AssignSplits(SubtaskId(ATTEMPT, "read", 1), (SplitState("x" * 1_000 * MOST_TOGETHER),))
    each: list[Effect] = [Send("a", long), Send("a", long)]
    assert together(each) == each
