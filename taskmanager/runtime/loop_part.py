"""What a subtask of a loop does beside its work: it knows its back edges, and takes part in finding the loop's end."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
from lockgate_proto.loops import heads_of, is_feedback, loop_of
from lockgate_proto.messages import EndOfInput, JobGraph, LoopProbe, SubtaskId, Watermark

from taskmanager.barrier.events import LoopEnded
from taskmanager.exchange.elements import ChannelId, Element
from taskmanager.runtime.output_set import OutputSet
from taskmanager.task.loop_rounds import LoopEffect, LoopRounds, SendProbe


class LoopPart:
    """Used by the subtask's thread.

    members: the vertices of the loop; feedback: the input channels that are back edges, by number.
    """

    def __init__(self, graph: JobGraph, subtask: SubtaskId, channels: Sequence[ChannelId]) -> None:
        self.members = loop_of(graph, subtask.vertex_id)
        back = {edge.source for edge in graph.edges if is_feedback(edge) and edge.target == subtask.vertex_id}
        numbers = range(len(channels))
        self.feedback = frozenset(one for one in numbers if channels[one].vertex_id in back)
        inside = {one for one in numbers if channels[one].vertex_id in self.members} - self.feedback
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
        """Looks at the next element of a channel and does what the loop wants. True: nobody else needs to see it.

        Event time does not go round: watermarks on back edges are dropped. Raises what sending raises.
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
            if isinstance(effect, SendProbe):
                outputs.send_within(self.members, effect.probe)
            else:
                to_barriers(LoopEnded())
        return isinstance(element, LoopProbe) or (is_back and isinstance(element, EndOfInput | Watermark))


def loop_part_of(graph: JobGraph, subtask: SubtaskId, channels: Sequence[ChannelId]) -> LoopPart | None:
    """For one subtask; None where its vertex is in no loop."""
    return LoopPart(graph, subtask, channels) if loop_of(graph, subtask.vertex_id) else None
