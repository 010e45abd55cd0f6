"""How a mutant comes into the processes that a test starts: see tests.mutation."""

from __future__ import annotations

import os

VARIABLE = "LOCKGATE_TEST_MUTANT"
"""The module below tests.mutation that is applied in this run of the tests."""


def program() -> str:
    """Source text to stand before that of a process started from the root of the repository; "" without a mutant."""
    name = os.environ.get(VARIABLE, "")
    return f"import tests.mutation.{name}\n" if name else ""
