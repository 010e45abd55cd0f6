"""Programs out of Debian's packages, which tests use where they are installed."""

from __future__ import annotations

import os
import shutil

import pytest


def program(name: str, package: str, variable: str) -> str:
    """Its path; skips with the reason without it, or fails where the variable is `required`."""
    found = shutil.which(name)
    if found is None:
        reason = f"{name} is not installed; Debian's package is `{package}`"
        if os.environ.get(variable) == "required":
            pytest.fail(reason)
        pytest.skip(reason)
    return found
