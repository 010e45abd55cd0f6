"""Slots are given out in order, also where a lost part then takes the place of what runs on."""

from __future__ import annotations

from lockgate_coordinator.graph.slots import SlotPool

from tests.mutation.rewrite import rewrite

rewrite(SlotPool, "_allocate", "item[0] not in kept", "item[0]")
