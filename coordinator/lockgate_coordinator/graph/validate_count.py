"""Validates count windows."""

from __future__ import annotations

import math
from collections.abc import Iterator

from lockgate_proto.messages import CountWindow

from lockgate_coordinator.graph.bounds import MAX_COUNT

MAX_PIECES = 10_000
"""Of a window, each as long as the greatest common divisor of `size` and `every`: a result adds up all of them."""


def count_problems(kind: CountWindow) -> Iterator[str]:
    """The problems of the size of a count window, and of what it does; the caller puts the operator's name in front."""
    if not 1 <= kind.size <= MAX_COUNT:
        yield f"has count windows of {kind.size} records: it must be between 1 and {MAX_COUNT}."
    if not 1 <= kind.every <= max(kind.size, 1):
        yield (
            f"has count windows of {kind.size} records every {kind.every} records: every must be between 1 and the "
            "size, so that each record is in a window."
        )
    elif kind.size // math.gcd(kind.size, kind.every) > MAX_PIECES:
        yield (
            f"has count windows of {kind.size} records every {kind.every} records, which would consist of more than "
            f"{MAX_PIECES} pieces: make every longer, preferably a divisor of the size."
        )
    if bool(kind.aggregates) is bool(kind.function):
        yield "needs either aggregates or a function for the records of a window."
    if kind.function and not kind.schema.strip():
        yield "needs the schema of its function's output, for example 'word STRING, n BIGINT'."
