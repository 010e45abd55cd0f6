"""A subtask takes every record in flight that was moved to it, also those of key groups that are not its own."""

from __future__ import annotations

import pyarrow as pa
from lockgate_taskmanager.state.routing import KeyRouting


def _everything(self: KeyRouting, table: pa.Table, subtask: int) -> pa.Table:  # noqa: ARG001
    return table


KeyRouting.share = _everything  # type: ignore[method-assign]
