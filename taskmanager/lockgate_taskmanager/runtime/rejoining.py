"""How one subtask takes part in a restart of a part of its job: it runs on, or starts again beside others.

runs on:       a channel breaks -> AwaitPart -> RejoinPart: its output goes to the other attempt of the receiver
starts again:  open -> every receiver has said how far it is, every sender has come -> its source is where they are
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from lockgate_proto.components import component_of
from lockgate_proto.messages import AwaitPart, ChannelOpen, PartPlace, RejoinPart, ReplayGap
from lockgate_proto.parts import whole_because

from lockgate_taskmanager.exchange.errors import ChannelClosed
from lockgate_taskmanager.exchange.gate import InputGate
from lockgate_taskmanager.exchange.outputs import RemoteOutput
from lockgate_taskmanager.runtime.absent_peers import AbsentPeers
from lockgate_taskmanager.runtime.output_set import OutputSet
from lockgate_taskmanager.task.program import ProgramContext, SubtaskProgram

log = logging.getLogger(__name__)

_MOST_SLOTS = 64
"""Listed in a heartbeat: there may be thousands."""


class Rejoining:
    """Of one subtask. give_up: called with a sentence, from any thread, when it cannot run on without a peer.

    token: of the present leader.
    """

    def __init__(self, context: ProgramContext, give_up: Callable[[str], None], token: Callable[[], int]) -> None:
        self._context, self._give_up = context, give_up
        component = component_of(context.graph, context.subtask.vertex_id)
        self.absent = AbsentPeers(give_up, token) if not whole_because(component) else None

    def on_absent(self, gate: Callable[[], InputGate]) -> Callable[[int, str], None] | None:
        """For the gate of the subtask, see InputGate; None where its channels do not outlive their senders."""
        absent = self.absent
        if absent is None:
            return None

        def lost(channel: int, reason: str) -> None:
            sender, slot = gate().sender(channel), gate().channels[channel].subtask
            absent.lost(slot, sender or 0, reason, lambda: gate().sender(channel) != sender)

        return lost

    def take(self, order: AwaitPart | RejoinPart, token: int, outputs: OutputSet) -> None:
        """The leader starts subtasks again, or they start now. From any thread. token: of the leader."""
        if self.absent is None or order.attempt != self._context.subtask.attempt:
            return
        if isinstance(order, AwaitPart):
            self.absent.await_part(order.slots, token)
            return
        self.absent.starts([place.slot for place in order.places], token, order.part)
        for place in order.places:
            for output in outputs.to(place.slot):
                self._rejoin(output, place, order, token)

    def gap(self, outputs: OutputSet) -> ReplayGap | None:
        """What it could not send again; None for nothing. From any thread."""
        found = [known for known in outputs.kept() if known[1].since] if self.absent is not None else []
        if not found:
            return None
        slots = sorted({slot for slot, _ in found})
        since = max(kept.since for _, kept in found)
        return ReplayGap(tuple(slots) if len(slots) <= _MOST_SLOTS else (), since, found[0][1].max_bytes)

    def close(self) -> None:
        """The subtask ends."""
        if self.absent is not None:
            self.absent.close()

    def is_ready(self, gate: InputGate, program: SubtaskProgram) -> bool:
        """Whether it may take part in checkpoints: where it starts beside others, once it is where they are."""
        return not self._context.is_beside or (gate.is_connected and not program.is_behind)

    def _rejoin(self, output: RemoteOutput, place: PartPlace, order: RejoinPart, token: int) -> None:
        target, participant = output.target, place.participant
        if target is None or participant is None or target.attempt is None or target.attempt.attempt >= order.part:
            return  # the order has come before
        again = replace(target, attempt=replace(target.attempt, attempt=order.part))
        hello = ChannelOpen(token, self._context.subtask, again)
        try:
            output.rejoin(participant.exchange_address, participant.incarnation, hello, order.restored_checkpoint_id)
        except ChannelClosed:
            pass  # the subtask ends
        except Exception as error:  # it is not kept, or nothing can be sent there
            log.info("the channel to %s[%d] cannot go on", target.vertex_id, target.subtask, exc_info=error)
            self._give_up(str(error))
