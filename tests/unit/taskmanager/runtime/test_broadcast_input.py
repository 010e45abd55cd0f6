"""A broadcast input beside another: it takes part in barriers, and not in event time."""

from __future__ import annotations

from lockgate_proto.messages import Barrier, CheckpointMode, EndOfInput, Watermark
from lockgate_taskmanager.barrier.events import Aligned
from lockgate_taskmanager.exchange.elements import ChannelId, Element
from lockgate_taskmanager.exchange.gate import InputGate
from lockgate_taskmanager.runtime.output_set import OutputSet
from lockgate_taskmanager.runtime.subtask_input import Step, SubtaskInput
from lockgate_taskmanager.task.watermarks import MAX_WATERMARK

MODELS, FIRST, SECOND = 0, 1, 2  # channels


def steps_of(*elements: tuple[int, Element]) -> list[Step]:
    gate, steps = InputGate([ChannelId("models", 0), ChannelId("a", 0), ChannelId("b", 0)]), list[Step]()
    subtask = SubtaskInput(gate, CheckpointMode.EXACTLY_ONCE, None, frozenset({"models"}), steps.append)
    for element in elements:
        subtask.take([element], OutputSet({}, {}), lambda: 0)
    return steps


def test_event_time_is_that_of_the_others() -> None:
    assert steps_of((FIRST, Watermark(50)), (SECOND, Watermark(70)), (MODELS, Watermark(10))) == [Watermark(50)]
    assert steps_of((FIRST, EndOfInput()), (SECOND, EndOfInput())) == [Watermark(MAX_WATERMARK)]


def test_a_snapshot_waits_for_its_barrier() -> None:
    barrier = Barrier(7)
    assert steps_of((FIRST, barrier), (SECOND, barrier)) == []
    assert steps_of((FIRST, barrier), (SECOND, barrier), (MODELS, barrier)) == [Aligned(barrier, 0)]
