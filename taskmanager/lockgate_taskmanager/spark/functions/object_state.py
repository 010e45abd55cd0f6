"""The state of an author's object: taken at barriers, and given back.

    snapshot_state() --> frozen copy --(background)--> parts, pickled, in the snapshot's files
    restore_state(state) <-- the parts of this subtask's predecessor, or this subtask's share of all

An object that has `changes_since_last_checkpoint()` names its parts, and only changed ones are stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from lockgate_proto.messages import ObjectForm, ObjectIndex, ObjectState, OperatorState

from lockgate_taskmanager.spark.functions.frozen_value import (
    called,
    copied,
    frozen,
    frozen_together,
    is_deferred,
    may_be_shared,
    pickled,
)
from lockgate_taskmanager.spark.functions.object_restore import TOGETHER, Owner, restored_value
from lockgate_taskmanager.state.parts.frozen_parts import FrozenParts
from lockgate_taskmanager.state.parts.part_log import Base, Changes, KeptPart, PartLog
from lockgate_taskmanager.state.parts.size_limit import SizeLimit
from lockgate_taskmanager.state.parts.stored_part import Part, Parts, read_index
from lockgate_taskmanager.task.program import SnapshotOrder, StateRefused, StateUnreadable

_BLOCK_BYTES = 1 << 20  # of items that are pickled together


class StateOfObject:
    """Of one subtask's object. Used from the subtask's thread, but for the pickling."""

    def __init__(self, function: Any, state: ObjectState, owner: Owner, has_files: bool) -> None:
        """has_files: the backend has files, to which later snapshots can refer."""
        self._function, self._state, self._owner = function, state, owner
        self._fields: tuple[str, ...] = tuple(getattr(function, "state_fields", ()))
        self._reports = callable(getattr(function, "changes_since_last_checkpoint", None))
        self._log = PartLog() if self._reports and has_files else None
        self._limit = SizeLimit(owner.where, int(getattr(function, "max_state_bytes", None) or 0))

    @property
    def form(self) -> ObjectForm:
        """How its parts belong together."""
        if self._fields:
            return ObjectForm.OBJECT_FIELDS
        if self._reports:
            return ObjectForm.OBJECT_PARTS
        is_whole = self._state in (ObjectState.OBJECT_STATE_FIXED, ObjectState.OBJECT_STATE_BROADCAST)
        return ObjectForm.OBJECT_WHOLE if is_whole else ObjectForm.OBJECT_ITEMS

    def restore(self, states: Sequence[OperatorState], checkpoint_id: int) -> None:
        """Gives it back to the object, which is open. states: none for an operator that the snapshot does not know.

        Raises UserError, StateUnreadable, StorageUnavailable, and what `restore_state` raises.
        """
        if not states:
            return
        indexes = [read_index(state) for state in states]
        value = restored_value(indexes, self._state, self._owner)
        if self._fields or indexes[0][0].form is ObjectForm.OBJECT_FIELDS:
            self._set_fields(value, indexes[0][0])
        else:
            self._require_kind(value, indexes[0][0])
            self._function.restore_state(value)
        (index, parts), *others = indexes
        is_ours = not others and (index.subtask, index.parallelism) == (self._owner.subtask, self._owner.parallelism)
        is_base = all(part.handle.shared and part.handle.checkpoint_id for part in parts.values())
        if self._log is not None and is_ours and is_base and index.form is self.form:
            self._log.stored(checkpoint_id, parts)

    def snapshot(self, checkpoint_id: int, order: SnapshotOrder) -> FrozenParts:
        """The state as it is now. Raises StateRefused, UserCodeFailed, Canceled."""
        kind = type(self._function)
        about = ObjectIndex(
            self.form,
            f"{kind.__module__}.{kind.__qualname__}",
            self._owner.subtask,
            self._owner.parallelism,
            broadcast=self._state is ObjectState.OBJECT_STATE_BROADCAST,
        )
        log = None if order.is_savepoint else self._log
        base: Base | None = None
        if log is not None:
            try:
                log.changed(checkpoint_id, self._changes())
            except BaseException:
                log.forget(checkpoint_id)
                raise
            base = log.base(order)
        elif self._reports and not order.is_savepoint:
            self._call("changes_since_last_checkpoint")  # the object may keep them until it is asked
        what: Parts | Base = base if base is not None else self._whole()
        return FrozenParts(self._owner.operator_id, about, what, log, self._limit)

    def _whole(self) -> Parts:
        if self._fields:
            return self._all_fields()
        value = self._call("snapshot_state")
        match self.form:
            case ObjectForm.OBJECT_PARTS:
                parts = [self._part(name, part) for name, part in self._named("snapshot_state", value).items()]
                return lambda: iter(parts)
            case ObjectForm.OBJECT_ITEMS:
                return self._items(value)
            case _:
                part = Part("", frozen(value, f"{self._owner.where}: its state", may_defer=True))
                return lambda: iter((part,))

    def _all_fields(self) -> Parts:
        missing = [name for name in self._fields if not hasattr(self._function, name)]
        if missing:
            raise StateRefused(
                f"{self._owner.where}: its object has no field '{missing[0]}', which is one of its state_fields; set it"
                " in __init__() or open()"
            )

        def what(name: str) -> str:
            return f"{self._owner.where}: field '{name}' of its state"

        shared = [name for name in self._fields if may_be_shared(self._function, name)]
        if len(shared) < 2:
            shared = []
        made = [
            Part(name, frozen(getattr(self._function, name), what(name))) for name in self._fields if name not in shared
        ]
        if shared:
            values = {name: getattr(self._function, name) for name in shared}
            made.append(Part(TOGETHER, frozen_together(values, what)))
        return lambda: iter(made)

    def _items(self, value: Any) -> Parts:
        what = f"{self._owner.where}: its state"
        if is_deferred(value):
            return lambda: self._blocks(self._listed(called(value, f"{what}: ")))
        kept = copied(self._listed(value))
        if kept is not None:
            return lambda: self._blocks(kept)
        blocks = list(self._blocks(value))
        return lambda: iter(blocks)

    def _blocks(self, items: Sequence[Any]) -> Iterator[Part]:
        at, count = 0, 1
        while at < len(items):
            block = list(items[at : at + count])
            data = pickled(block, f"{self._owner.where}: one of the items {at} to {at + len(block) - 1} of its state")
            yield Part(str(at), partial(bytes, data), len(block))
            at += len(block)
            fitting = len(block) * _BLOCK_BYTES // max(1, len(data))
            count = max(1, min(4 * count, fitting))

    def _listed(self, value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise StateRefused(
                f"{self._owner.where}: snapshot_state() returned a {type(value).__name__}; an object with on_rescale"
                " returns a list of items"
            )
        return value

    def _changes(self) -> Changes:
        found = self._named("changes_since_last_checkpoint", self._call("changes_since_last_checkpoint"))
        return {name: None if part is None else KeptPart(self._part(name, part)) for name, part in found.items()}

    def _part(self, name: str, part: Any) -> Part:
        return Part(name, frozen(part, f"{self._owner.where}: part '{name}' of its state"))

    def _named(self, method: str, value: Any) -> Mapping[str, Any]:
        if not isinstance(value, Mapping) or not all(type(name) is str for name in value):
            raise StateRefused(
                f"{self._owner.where}: {method}() returned a {type(value).__name__}; an object with"
                " changes_since_last_checkpoint() returns a dict with the name of each part, a str, and the part"
            )
        return value

    def _call(self, method: str) -> Any:
        return called(getattr(self._function, method), f"{self._owner.where}: {method}() of ")

    def _require_kind(self, value: Any, index: ObjectIndex) -> None:
        """restore_state() of an object of this form takes nothing else: its own error would not say why."""
        is_named = isinstance(value, Mapping) and all(type(name) is str for name in value)
        if self.form is ObjectForm.OBJECT_PARTS and not is_named:
            wants = "with changes_since_last_checkpoint() is restored from a dict of parts by name"
        elif self.form is ObjectForm.OBJECT_ITEMS and not isinstance(value, list):
            wants = "with on_rescale is restored from a list of items"
        else:
            return
        raise StateUnreadable(
            f"{self._owner.where}: the snapshot of its object ({index.class_name}) is a {type(value).__name__}, and"
            f" an object {wants}; restore it with an object of the same kind"
        )

    def _set_fields(self, value: Any, index: ObjectIndex) -> None:
        """Fields that the snapshot does not have keep the value that they have."""
        if not self._fields or index.form is not ObjectForm.OBJECT_FIELDS:
            was, now = ("has", "has none") if self._fields == () else ("has no", "has some")
            raise StateUnreadable(
                f"{self._owner.where}: the snapshot of its object ({index.class_name}) {was} state_fields, and its"
                f" object {now}; restore it with an object of the same kind"
            )
        lost = [name for name in value if name not in self._fields]
        if lost:
            raise StateUnreadable(
                f"{self._owner.where}: the snapshot of its object ({index.class_name}) has the field '{lost[0]}', which"
                f" {type(self._function).__qualname__} does not name in state_fields; keep the name there, even if it"
                " is not used any more"
            )
        for name, field in value.items():
            setattr(self._function, name, field)
