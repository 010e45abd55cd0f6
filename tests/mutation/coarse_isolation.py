"""Of a batch that fails, a part is left out as a whole where one of its records fails."""

from __future__ import annotations

from lockgate_taskmanager.spark import isolation

_isolate = isolation.isolate


def _coarsely(count, run, budget, reason, may_be_a_record):  # type: ignore[no-untyped-def]
    found = _isolate(count, run, budget, reason, may_be_a_record)
    return {number: error for first, error in found.items() for number in (first & ~1, first | 1) if number < count}


isolation.isolate = _coarsely
