"""The PostgreSQL server that tests use; where there can be none they are skipped, or fail where it is required."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import pytest

from examples.frame import NotHere
from examples.frame.postgresql import PASSWORD, PostgresqlServer

__all__ = ["PASSWORD", "REQUIRED", "PostgresqlServer", "server_for_tests"]

REQUIRED = "LOCKGATE_TEST_POSTGRESQL"
"""Set to `required` where a skip is to count as a failure."""


@contextlib.contextmanager
def server_for_tests() -> Iterator[PostgresqlServer]:
    """One that runs; skips with the reason where there can be none, or fails where it is required."""
    with contextlib.ExitStack() as stack:
        try:
            server = stack.enter_context(PostgresqlServer())
        except NotHere as reason:
            if os.environ.get(REQUIRED) == "required":
                pytest.fail(str(reason))
            pytest.skip(str(reason))
        yield server
