"""What runs on has started when it first reports in the attempt of a part."""

from __future__ import annotations

from lockgate_coordinator.graph.execution_graph import ExecutionGraph

from tests.mutation.rewrite import rewrite

rewrite(ExecutionGraph, "advance", "if not self._is_started(before):", "if key not in self._started_ms:")
