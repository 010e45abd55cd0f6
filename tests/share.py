"""How much of what is tried again and again a run tries: with `LOCKGATE_TEST_SHARE=N` the N-th part of it.

Of Hypothesis' examples (the first ones of a test that draws the same each time), the simulation's seeds and its crash
points, and of files and tests marked `rotating`. Each day it is another part, so that N days in a row see everything;
`LOCKGATE_TEST_DAY` repeats one of them. `LOCKGATE_TEST_PARAMETERS=N` does the same with the parameters of tests that
have more than N sets of them. With `LOCKGATE_TEST_EVERY_POINT=1` a process dies at every single point there is, and not
at the telling ones alone.
"""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Iterable, Sequence
from typing import TypeVar

import pytest
from hypothesis import settings

from examples.frame.shares import DAY_S, of_the_day

SHARE = int(os.environ.get("LOCKGATE_TEST_SHARE", "1"))
DAY = int(os.environ.setdefault("LOCKGATE_TEST_DAY", str(int(time.time()) // DAY_S)))
"""Since 1970. The processes of one run agree on it."""
MOST_PARAMETERS = int(os.environ.get("LOCKGATE_TEST_PARAMETERS", "0"))
"""Of each test about so many sets a day; 0: all."""
EVERY_POINT = os.environ.get("LOCKGATE_TEST_EVERY_POINT") == "1"
ROTATING = "rotating"  # the mark
_SETTINGS = (
    "_hypothesis_internal_use_settings"  # where Hypothesis keeps those of a test, and its pytest plugin reads them
)


_Item = TypeVar("_Item")


def of_today(items: Sequence[_Item], share: int = SHARE) -> Sequence[_Item]:
    """Every `share`-th, from another one on each day."""
    return of_the_day(items, share, DAY * DAY_S)


def other_days(items: Iterable[pytest.Item], share: int = SHARE) -> list[pytest.Item]:
    """The tests marked `rotating`, themselves or by their file, that are not part of today's share."""
    rotating = [item for item in items if item.get_closest_marker(ROTATING)]
    return [item for item in rotating if not _is_today(_turn_of(item), share)]


def _is_today(turn: str, share: int) -> bool:
    """By its name alone, so that a test that is added or removed does not change the turns of others."""
    return zlib.crc32(turn.encode()) % share == DAY % share


def _turn_of(item: pytest.Item) -> str:
    """What takes turns as a whole: a file, or a single test with all sets of its parameters."""
    is_alone = any(mark.name == ROTATING for mark in item.own_markers)
    return _test(item) if is_alone else item.nodeid.partition("::")[0]


def _test(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]


def other_parameters(items: Iterable[pytest.Item], most: int = MOST_PARAMETERS) -> list[pytest.Item]:
    """Of each test with more sets of parameters than `most`, those that are left to other days."""
    if not most:
        return []
    tests: dict[str, list[pytest.Item]] = {}
    for item in items:
        tests.setdefault(_test(item), []).append(item)
    left: list[pytest.Item] = []
    for sets in tests.values():
        today = {id(item) for item in of_the_day(sets, -(-len(sets) // most), DAY // SHARE * DAY_S)}
        left += [item for item in sets if id(item) not in today]
    return left


def draw_fewer_examples(items: Iterable[pytest.Item], share: int = SHARE) -> None:
    """Takes the share of each test's examples, one at least; the rules of state machines are left as they are."""
    for function in {getattr(item, "obj", None) for item in items}:
        found = getattr(function, _SETTINGS, None)
        if found is not None and share > 1:
            setattr(function, _SETTINGS, settings(found, max_examples=max(1, found.max_examples // share)))
