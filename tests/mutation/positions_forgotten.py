"""A receiver does not note how far the splits of its senders have come."""

from __future__ import annotations

from lockgate_taskmanager.exchange.batches import ArrivingBatches

from tests.mutation.rewrite import rewrite

rewrite(ArrivingBatches, "arrived", "self._positions |= self._read", "pass")
