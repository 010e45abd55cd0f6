"""Orders of one event that travel in one message. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from lockgate_proto.messages import AssignSplits, AssignSplitsTogether

from lockgate_coordinator.job.effects import Effect, Send

MOST_TOGETHER = 1_000
"""Orders and splits in one message: far from the limits of a message. A split with a long name counts for several."""
_NAME = 1_000


def together(wanted: Sequence[Effect]) -> list[Effect]:
    """The same effects, with the splits for subtasks of one task manager in one message.

    In a large job each message costs the leader more than what it says. Nothing overtakes another message to the same
    task manager; to different ones, the order is of no account.
    """
    found: list[Effect] = []
    orders: dict[int, list[AssignSplits]] = {}  # by place in `found`
    newest: dict[str, int] = {}  # by task manager: the place of its last message
    room: dict[str, int] = {}  # by task manager: how much that one still takes
    for effect in wanted:
        if isinstance(effect, Send):
            name, body = effect.task_manager_id, effect.body
            size = _size(body) if isinstance(body, AssignSplits) else MOST_TOGETHER
            if isinstance(body, AssignSplits) and size <= room.get(name, 0):
                orders[newest[name]].append(body)
                room[name] -= size
                continue
            newest[name], room[name] = len(found), MOST_TOGETHER - size
            if isinstance(body, AssignSplits):
                orders[len(found)] = [body]
        found.append(effect)
    for place, several in orders.items():
        effect = found[place]
        if isinstance(effect, Send) and len(several) > 1:
            found[place] = Send(effect.task_manager_id, AssignSplitsTogether(tuple(several)))
    return found


def _size(order: AssignSplits) -> int:
    return 1 + sum(1 + len(split.split) // _NAME for split in order.splits)
