"""A job's record does not have the checksum of the snapshot that it starts from: the file may change after it."""

from __future__ import annotations

from lockgate_coordinator.runtime.persistence import Persistence

from tests.mutation.rewrite import rewrite

rewrite(
    Persistence,
    "_restored",
    "self._files.read(record.restore_from, record.restore_checksum)",
    "self._files.read_start(record.restore_from, is_trusted=True)[0]",
)
