"""Which records of a key are in a count window. Pure arithmetic on their numbers, for integers and numpy arrays alike.

The records of a key are numbered from 0 in order of arrival. After each `every` of them a window [start, end) ends,
with the last `size`; the first ones, before there are so many, have fewer. A window consists of whole *elements*: as
many records as the greatest common divisor of `size` and `every` for aggregates, single ones otherwise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

Numbers = Any  # int, or a numpy array of int64


@dataclass(frozen=True, slots=True)
class CountShape:
    """Windows of `size` records every `every`; element: of how many records an element consists."""

    size: int
    every: int
    element: int = 1

    @classmethod
    def folded(cls, size: int, every: int) -> CountShape:
        """With elements as long as possible."""
        return cls(size, every, math.gcd(size, every))

    def next_end(self, seen: Numbers) -> Numbers:
        """The end of the window that is due next, after `seen` records."""
        return (seen // self.every + 1) * self.every

    def due(self, before: Numbers, after: Numbers) -> Numbers:
        """How many windows end as the records become `after` from `before`."""
        return after // self.every - before // self.every

    def start(self, end: Numbers) -> Numbers:
        """Number of the first record of the window that ends before record `end`."""
        return np.maximum(end - self.size, 0)

    def first_kept(self, seen: Numbers) -> Numbers:
        """The first element that a later window needs."""
        return self.start(self.next_end(seen)) // self.element

    def behind(self, seen: Numbers) -> Numbers:
        """The element behind the last one, which may be incomplete."""
        return -(-seen // self.element)
