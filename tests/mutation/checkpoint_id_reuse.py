"""A new leader counts on from the newest completed checkpoint instead of from the highest id handed out."""

from __future__ import annotations

from ha.records import JobRecords


def _forgotten(self: JobRecords, key: str) -> int:
    del self, key
    return 0


assert hasattr(JobRecords, "checkpoint_id")
JobRecords.checkpoint_id = _forgotten  # type: ignore[method-assign]
