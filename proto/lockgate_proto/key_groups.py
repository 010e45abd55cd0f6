"""Which subtask owns which key groups: the one rule behind partitioning, keyed state and rescaling."""

from __future__ import annotations


def key_group_range(subtask: int, parallelism: int, max_parallelism: int) -> range:
    """The key groups of a subtask: those with `group * parallelism // max_parallelism == subtask`."""
    first = -(-subtask * max_parallelism // parallelism)
    return range(first, -(-(subtask + 1) * max_parallelism // parallelism))
