"""What keeps credentials from costing a test its time: cheap hashes of tokens, and waits that end at once."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest
from argon2 import PasswordHasher
from lockgate_common import token_book

QUICK_HASHER = partial(PasswordHasher, time_cost=1, memory_cost=8, parallelism=1)


def hash_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tokens that are issued from now on, in this process."""
    monkeypatch.setattr(token_book, "PasswordHasher", QUICK_HASHER)


def note_waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds of each `asyncio.sleep` from now on, none of which takes any time."""
    waited: list[float] = []
    sleep = asyncio.sleep

    async def noting(seconds: float) -> None:
        waited.append(seconds)
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", noting)
    return waited
