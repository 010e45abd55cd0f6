"""A share of a long list for each day: what runs often stays short, and a few days see all of it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

Item = TypeVar("Item")

DAY_S = 24 * 3600


def of_the_day(items: Sequence[Item], shares: int, unix_s: float) -> Sequence[Item]:
    """Every `shares`-th item, from another one on each day: so many days in a row see each item once.

    shares: 1 or more, 1 for all items at any time; unix_s: the wall clock's seconds.
    """
    return items[int(unix_s) // DAY_S % shares :: shares]
