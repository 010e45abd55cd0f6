"""The loop protocol of one subtask: it knows its back edges, and takes part in detecting the loop's termination."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import assert_never

import pyarrow as pa
from lockgate_proto.loops import heads_of, is_feedback, loop_of
from lockgate_proto.messages import EndOfInput, JobGraph, LoopProbe, SubtaskId, Watermark

from lockgate_taskmanager.barrier.events import LoopEnded
from lockgate_taskmanager.exchange.elements import ChannelId, Element
from lockgate_taskmanager.runtime.output_set import OutputSet
from lockgate_taskmanager.task.loop_rounds import LoopEffect, LoopRounds, LoopTerminated, SendProbe


class LoopPart:
    """Used by the subtask's thread.

    members: the vertices of the loop; feedback: the input channels that are back edges, by number.
    """

    def __init__(self, graph: JobGraph, subtask: SubtaskId, channels: Sequence[ChannelId]) -> None:
        self.members = loop_of(graph, subtask.vertex_id)
        back = {edge.source for edge in graph.edges if is_feedback(edge) and edge.target == subtask.vertex_id}
        numbers = range(len(channels))
        self.feedback = frozenset(number for number in numbers if channels[number].vertex_id in back)
        inside = {number for number in numbers if channels[number].vertex_id in self.members} - self.feedback
        outside = set(numbers) - inside - self.feedback
        heads = len(heads_of(graph, self.members))
        self._rounds = LoopRounds(outside, inside, self.feedback, heads)

    def takes(
        self,
        channel: int,
        element: Element,
        outputs: OutputSet,
        to_barriers: Callable[[LoopEnded], None],
    ) -> bool:
        """Processes an element as far as it concerns the loop protocol. True: the element is fully consumed.

        Event time does not circulate: watermarks on back edges are dropped. Raises what sending raises.
        """
        is_back = channel in self.feedback
        effects: list[LoopEffect] = []
        if isinstance(element, LoopProbe):
            effects = self._rounds.probed(channel, element)
        elif isinstance(element, EndOfInput):
            effects = self._rounds.ended(channel)
        elif isinstance(element, pa.Table) and element.num_rows:
            self._rounds.records(channel)
        for effect in effects:
            match effect:
                case SendProbe(probe):
                    outputs.send_within(self.members, probe)
                case LoopTerminated():
                    to_barriers(LoopEnded())
                case _:
                    assert_never(effect)
        return isinstance(element, LoopProbe) or (is_back and isinstance(element, EndOfInput | Watermark))


def loop_part_of(graph: JobGraph, subtask: SubtaskId, channels: Sequence[ChannelId]) -> LoopPart | None:
    """For one subtask; None when its vertex is in no loop."""
    return LoopPart(graph, subtask, channels) if loop_of(graph, subtask.vertex_id) else None
