"""An oracle for causes: every event names one that happened before it, or something outside of the machines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lockgate_common.story_log import Outside, StoryLog
from lockgate_proto.messages import StoryLine

from tests.simulation.world import World

OUTSIDE = frozenset(Outside)


class Causes:
    """The events of every process of one run."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.lines: dict[str, StoryLine] = {}

    def added(self, line: StoryLine) -> None:
        """An event was given its id."""
        if line.id in self.lines:
            self._world.violate(f"the id {line.id} names two events: {self.lines[line.id].event}; {line.event}")
        if line.cause_id not in OUTSIDE and line.cause_id not in self.lines:
            self._world.violate(f"{line.id} ({line.event}) names the cause {line.cause_id!r}, which never happened")
        self.lines[line.id] = line

    def chain(self, event_id: str) -> tuple[StoryLine, ...]:
        """An event, its cause, the cause of that, up to the one that came from outside."""
        found = [self.lines[event_id]]
        while found[-1].cause_id not in OUTSIDE:
            found.append(self.lines[found[-1].cause_id])
        return tuple(found)


def watched(world: World) -> list[tuple[Any, str, Any]]:
    """(class, name, replacement): every story is checked while it is written."""
    add, causes = StoryLog.add, Causes(world)
    world.causes = causes

    def added(self: StoryLog, event: str, cause_id: str, effects: Sequence[str] = (), **fields: Any) -> str:
        event_id = add(self, event, cause_id, effects, **fields)
        causes.added(StoryLine(event_id, cause_id, event=event, effects=tuple(effects)))
        return event_id

    return [(StoryLog, "add", added)]
