"""What is a sink is known in three rooms that do not import each other."""

from __future__ import annotations

from coordinator.graph import shape
from taskmanager.runtime import subtask_task
from taskmanager.spark import layout


def test_leader_task_loop_and_chain_know_the_same_sinks_and_sources() -> None:
    assert {kind.__name__ for kind in shape.SINKS} == set(subtask_task.SINKS)
    assert set(layout._SINKS) == set(shape.SINKS)
    assert set(layout._SOURCES) == set(shape.SOURCES)
