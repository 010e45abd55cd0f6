"""How much of what is tried again and again a run tries: with `LOCKGATE_TEST_SHARE=N` the N-th part of it.

Of Hypothesis' examples, the simulation's seeds and its crash points. With `LOCKGATE_TEST_EVERY_POINT=1` a process dies
at every single point there is, and not at the telling ones alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

import pytest
from hypothesis import settings

SHARE = int(os.environ.get("LOCKGATE_TEST_SHARE", "1"))
EVERY_POINT = os.environ.get("LOCKGATE_TEST_EVERY_POINT") == "1"
_SETTINGS = (
    "_hypothesis_internal_use_settings"  # where Hypothesis keeps those of a test, and its pytest plugin reads them
)


def draw_fewer_examples(items: Iterable[pytest.Item], share: int = SHARE) -> None:
    """Takes the share of each test's examples, one at least; the rules of state machines are left as they are."""
    for function in {getattr(item, "obj", None) for item in items}:
        found = getattr(function, _SETTINGS, None)
        if found is not None and share > 1:
            setattr(function, _SETTINGS, settings(found, max_examples=max(1, found.max_examples // share)))
