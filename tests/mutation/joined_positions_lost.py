"""A batch whose end comes in one message with the beginning of the next one leaves no position."""

from __future__ import annotations

from lockgate_taskmanager.exchange.batches import ArrivingBatches

from tests.mutation.rewrite import rewrite

rewrite(
    ArrivingBatches,
    "arrived",
    "self._read.update((known.split, known.offset) for known in read_to)",
    "self._read = {known.split: known.offset for known in read_to}",
)
