"""A story for a subtask that stands alone."""

from __future__ import annotations

from lockgate_taskmanager.runtime.stories import Stories, SubtaskStory
from lockgate_taskmanager.task.program import ProgramContext


def story_of(context: ProgramContext) -> SubtaskStory:
    """As its Deployments would make it."""
    assert context.subtask.attempt is not None
    return SubtaskStory(Stories("tm", "test").of(context.subtask.attempt), context.subtask, "tm.test-0")
