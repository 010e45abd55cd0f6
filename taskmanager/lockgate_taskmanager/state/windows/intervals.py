"""Intervals of many keys that lie close together are joined. Pure numpy."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = Any  # numpy.ndarray


def joined_intervals(keys: Array, first: Array, ends: Array) -> tuple[Array, Array]:
    """Numbers the groups of intervals of one key that touch.

    Interval i of `keys[i]` is [first[i], ends[i]]; two belong together when they share a point, and so do those that
    are connected by others. Returns the group of each interval, and the greatest end of each group.
    """
    order = np.lexsort((first, keys))
    keys, first, ends = keys[order], first[order], ends[order]
    values, ranks = np.unique(ends, return_inverse=True)
    _, key_ranks = np.unique(keys, return_inverse=True)
    # A running maximum that restarts with each key: the rank of the key weighs more than any rank of an end.
    reached = values[np.maximum.accumulate(key_ranks * len(values) + ranks) % max(1, len(values))]
    is_new = np.ones(len(keys), np.bool_)
    is_new[1:] = (keys[1:] != keys[:-1]) | (first[1:] > reached[:-1])
    numbers = np.cumsum(is_new) - 1
    groups = np.empty(len(keys), np.int64)
    groups[order] = numbers
    starts = np.flatnonzero(is_new)
    greatest = np.maximum.reduceat(ends, starts) if len(starts) else ends
    return groups, greatest
