"""Splits of a lost part that no checkpoint has are given to any subtask."""

from __future__ import annotations

from lockgate_coordinator.job.splits import SplitAssigner

from tests.mutation.rewrite import rewrite

rewrite(SplitAssigner, "carry_on", "if index not in stay", "if False")
