"""How many records have failed is not restored."""

from __future__ import annotations

from dataclasses import replace

from lockgate_taskmanager.spark import program
from lockgate_taskmanager.spark.counting import Counters


class _Forgetful(Counters):
    def __init__(self, operators, restored) -> None:  # type: ignore[no-untyped-def]
        super().__init__(operators, [replace(item, records_failed=0) for item in restored])


program.Counters = _Forgetful  # type: ignore[misc]
