"""What a subtask's input makes of the elements of its channels."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest
from lockgate_proto.messages import Barrier, CheckpointMode, EndOfInput, Watermark
from lockgate_taskmanager.barrier.events import Aligned, BarrierOvertakes, Overtaken
from lockgate_taskmanager.exchange.elements import ChannelId, Element
from lockgate_taskmanager.exchange.gate import InputGate
from lockgate_taskmanager.runtime.output_set import OutputSet
from lockgate_taskmanager.runtime.subtask_input import Records, Step, SubtaskInput
from lockgate_taskmanager.task import events as on

ROWS = pa.table({"n": [1, 2]})
MORE = pa.table({"n": [3]})


class Inputs:
    """Two channels, a[0] and a[1]."""

    def __init__(self, mode: CheckpointMode = CheckpointMode.EXACTLY_ONCE) -> None:
        self.gate = InputGate([ChannelId("a", 0), ChannelId("a", 1)], lambda _: None)
        self.steps: list[Step] = []
        self.input = SubtaskInput(self.gate, mode, None, frozenset(), self.steps.append)

    def take(self, *elements: tuple[int, Element]) -> list[Step]:
        self.steps.clear()
        self.input.take(elements, OutputSet({}, {}), lambda: 5)
        return self.steps


def tables(step: Step) -> Sequence[tuple[str, pa.Table]]:
    assert isinstance(step, Records)
    return step.tables


def test_records_come_before_the_watermark_behind_them_and_after_the_one_in_front() -> None:
    inputs = Inputs()
    assert inputs.take((1, Watermark(9))) == []
    before, watermark, behind = inputs.take((0, ROWS), (0, Watermark(7)), (0, MORE))
    assert tables(before) == (("a", ROWS),)
    assert watermark == Watermark(7)
    assert tables(behind) == (("a", MORE),)


def test_a_channel_is_held_from_its_barrier_until_the_last_one_and_the_snapshot_is_a_step() -> None:
    inputs, barrier = Inputs(), Barrier(3)
    assert inputs.take((0, barrier)) == []
    assert inputs.gate.held() == {0}
    assert inputs.take((1, barrier)) == [Aligned(barrier, 5)]
    assert inputs.gate.held() == set()


def test_an_unaligned_barrier_is_a_step_at_once() -> None:
    inputs, barrier = Inputs(CheckpointMode.UNALIGNED), Barrier(3, unaligned=True)
    assert inputs.take((1, barrier)) == [Overtaken(barrier, 5, frozenset({1}))]


@pytest.mark.parametrize("is_drained", [False, True])
def test_the_input_ends_once_with_its_last_channel_and_says_whether_sources_have_more(is_drained: bool) -> None:
    inputs = Inputs()
    assert inputs.take((0, EndOfInput())) == []
    assert inputs.take((1, EndOfInput(is_drained))) == [on.InputExhausted()]
    assert inputs.input.is_drained is is_drained


def test_a_poll_is_bounded_only_where_barriers_overtake() -> None:
    large = pa.table({"n": pa.array(range(20_000), pa.int64())})
    found = {}
    for mode in (CheckpointMode.EXACTLY_ONCE, CheckpointMode.UNALIGNED):
        inputs = Inputs(mode)
        for channel in (0, 1):
            inputs.gate.put(channel, large)
        found[mode] = len(inputs.input.poll(0))
    assert found == {CheckpointMode.EXACTLY_ONCE: 2, CheckpointMode.UNALIGNED: 1}


def test_a_barrier_overtakes_no_records_that_were_moved_from_another_parallelism() -> None:
    inputs, barrier = Inputs(CheckpointMode.UNALIGNED), Barrier(3, unaligned=True)
    inputs.gate.put_first([(1, ROWS)])
    inputs.gate.put(0, MORE)
    inputs.input.barrier(BarrierOvertakes(barrier), 5)
    assert inputs.steps == []
    moved, overtook = inputs.take(*inputs.input.poll(0))
    assert tables(moved) == (("a", ROWS),)
    assert overtook == Overtaken(barrier, 5, frozenset())
    (behind,) = inputs.take(*inputs.input.poll(0))
    assert tables(behind) == (("a", MORE),)
