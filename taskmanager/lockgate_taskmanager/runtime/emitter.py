"""How the batches of one subtask leave it, and how it waits while its receivers are behind."""

from __future__ import annotations

from collections.abc import Callable

from lockgate_common.clock import monotonic_ms

from lockgate_taskmanager.exchange.gate import InputGate
from lockgate_taskmanager.runtime.load_meter import LoadMeter
from lockgate_taskmanager.runtime.output_set import OutputSet
from lockgate_taskmanager.runtime.time_shares import Share, TimeShares
from lockgate_taskmanager.task.program import Batch, Canceled

ACCEPT_CHECK_S = 0.25
BESIDE_CHECK_S = 0.005  # others, which run on, wait for it


class Emitter:
    """Used by the subtask's thread. gate: of the subtask, wakes it. is_elastic: sending does not block."""

    def __init__(self, gate: InputGate, shares: TimeShares, load: LoadMeter, is_elastic: bool) -> None:
        self._gate, self._shares, self._load, self._is_elastic = gate, shares, load, is_elastic

    def emit(self, batch: Batch, outputs: OutputSet) -> None:
        """Sends one batch, or a portion of it. Raises what sending raises."""
        if batch.emissions:
            with self._shares.waits(Share.BACKPRESSURED):
                outputs.emit(batch.emissions, batch.ranges)
        if batch.watermark is not None:
            outputs.broadcast(batch.watermark)
            self._load.passed(batch.watermark)

    def wait_for_room(
        self, outputs: OutputSet, is_running: Callable[[], bool], read_mailbox: Callable[[], None] | None
    ) -> None:
        """Until every receiver has, where sending does not block. Raises Canceled.

        read_mailbox: handles messages meanwhile, barriers among others; None: they wait.
        """
        while is_running():
            if read_mailbox is not None:
                read_mailbox()
            outputs.check_accepted(monotonic_ms())
            if not self._is_elastic or outputs.has_room():
                return
            self.wait_a_while(outputs)
        raise Canceled("the subtask ends")

    def wait_a_while(self, outputs: OutputSet) -> None:
        """Until a receiver has room again, or a message comes."""
        outputs.check_accepted(monotonic_ms())
        with self._shares.waits(Share.BACKPRESSURED):
            self._gate.wait(ACCEPT_CHECK_S)

    def wait_until_accepted(self, outputs: OutputSet, is_running: Callable[[], bool]) -> None:
        """Until every receiver has accepted its channel. Raises ChannelBroken when one takes too long."""
        while is_running() and not outputs.check_accepted(monotonic_ms()):
            self._gate.wait(BESIDE_CHECK_S)
