"""A frozen copy of an object's state: how it is stored."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import pyarrow as pa
from lockgate_proto.messages import ObjectIndex, OperatorState, StateKind

from lockgate_taskmanager.state.backend import SnapshotWriter, inline_handle
from lockgate_taskmanager.state.parts.cleaning import to_move
from lockgate_taskmanager.state.parts.pack_reader import read_parts
from lockgate_taskmanager.state.parts.pack_writer import INLINE_BYTES, PackWriter, total_bytes
from lockgate_taskmanager.state.parts.part_log import Base, PartLog
from lockgate_taskmanager.state.parts.size_limit import SizeLimit
from lockgate_taskmanager.state.parts.stored_part import Parts, StoredPart, indexed
from lockgate_taskmanager.task.program import StateUnreadable

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FrozenParts:
    """The FrozenStore of an object. about: the index without parts; what: the whole state, or the changes on a base.

    log: of an object that reports changes, whose next snapshot may build on this one.
    """

    operator_id: str
    about: ObjectIndex
    what: Parts | Base
    log: PartLog | None
    limit: SizeLimit

    def persist(self, checkpoint_id: int, writer: SnapshotWriter) -> OperatorState:
        """Stores it. Raises StateRefused, SnapshotTooLarge, StorageUnavailable, OSError."""
        if isinstance(self.what, Base):
            parts = self._changed(checkpoint_id, self.what, writer)
        else:
            parts = self._whole(self.what, writer)
        if self.log is not None:
            self.log.stored(checkpoint_id, parts)
        data, files = indexed(self.about, parts)
        files = tuple(map(writer.take_over, files)) if isinstance(self.what, Base) else files
        handle = (
            inline_handle(data)
            if len(data) <= INLINE_BYTES
            else writer.store(f"{self.operator_id}-index", pa.py_buffer(data))
        )
        return OperatorState(self.operator_id, StateKind.OBJECT_STATE, handle, files=files)

    def release(self) -> None:
        """Nothing to release but memory."""

    def _whole(self, whole: Parts, writer: SnapshotWriter) -> dict[str, StoredPart]:
        packs, size = PackWriter(self.operator_id, writer, is_shared=self.log is not None), 0
        for part in whole():
            data = part.make()
            size += len(data)
            self.limit.require(size)
            packs.add(part.name, part.items, data)
        return packs.finish()

    def _changed(self, checkpoint_id: int, base: Base, writer: SnapshotWriter) -> dict[str, StoredPart]:
        kept = {name: part for name, part in base.parts.items() if name not in base.changes}
        packs = PackWriter(self.operator_id, writer, is_shared=True)
        size = total_bytes(kept.values())
        changed_bytes = 0
        for name, change in base.changes.items():
            if change is not None:
                data = change.data()
                changed_bytes += len(data)
                self.limit.require(size + changed_bytes)
                packs.add(name, 0, data)
        moved = to_move(kept, changed_bytes)
        try:
            for name, _, data in read_parts([(name, kept[name]) for name in moved]):
                packs.add(name, 0, data)
        except StateUnreadable as error:  # the object still has what the file has lost
            LOG.warning("the next checkpoint of operator '%s' stores all of its state: %s", self.operator_id, error)
            if self.log is not None:
                self.log.distrust(checkpoint_id)
        return {**kept, **packs.finish()}
