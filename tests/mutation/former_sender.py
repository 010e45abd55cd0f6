"""A former attempt of a sender may take its channel back."""

from __future__ import annotations

from lockgate_taskmanager.exchange.gate import InputGate

from tests.mutation.rewrite import rewrite

rewrite(InputGate, "connect", "target.sender >= attempt", "target.sender == attempt")
