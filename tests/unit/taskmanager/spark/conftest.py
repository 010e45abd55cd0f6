"""Fixtures of the tests of sources and sinks."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
from lockgate_taskmanager.spark.sinks.turns import Turns


@pytest.fixture
def processes_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each attempt is in a process of its own: nothing there keeps calls apart."""
    monkeypatch.setattr(Turns, "take", lambda *_: nullcontext())
