"""What `restore_state` is called with: the state of the same subtask, or a share of that of all subtasks.

at the same parallelism    the subtask's own state
on_rescale = "split"       items or parts of all subtasks, in order, divided evenly
on_rescale = "union"       those of all subtasks, at every restore
broadcast state            that of one subtask, which is the same as that of every other
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lockgate_proto.messages import ObjectForm, ObjectIndex, ObjectState

from lockgate_taskmanager.spark.author_classes import AuthorClasses
from lockgate_taskmanager.spark.raised import with_type
from lockgate_taskmanager.spark.user_code import is_end, may_be_ended
from lockgate_taskmanager.state.parts.pack_reader import read_parts
from lockgate_taskmanager.state.parts.stored_part import StoredPart
from lockgate_taskmanager.task.program import ProgramError, StateUnreadable

Stored = tuple[ObjectIndex, Mapping[str, StoredPart]]
TOGETHER = ""
"""The part of fields that may refer to the same objects: a dict by name. Any other part is one field."""
_DIVISIBLE = frozenset({ObjectForm.OBJECT_ITEMS, ObjectForm.OBJECT_PARTS})


@dataclass(frozen=True, slots=True)
class Owner:
    """The subtask whose object it is. where: the operator in messages; classes: those that came with the object."""

    operator_id: str
    where: str
    subtask: int
    parallelism: int
    classes: AuthorClasses = field(default_factory=AuthorClasses)


def restored_value(stored: Sequence[Stored], state: ObjectState, owner: Owner) -> Any:
    """The value for this subtask. stored: of one or several subtasks. Raises StateUnreadable, StorageUnavailable."""
    stored = sorted(stored, key=lambda item: item[0].subtask)
    if state is ObjectState.OBJECT_STATE_BROADCAST:
        return _copied(stored, owner)
    forms = {index.form for index, _ in stored}
    if not forms <= _DIVISIBLE:  # of an object that had no on_rescale then, and each is to have all now
        mine = (owner.subtask, owner.parallelism)
        stored = [item for item in stored if (item[0].subtask, item[0].parallelism) == mine] or stored
    index = stored[0][0]
    is_own = len(stored) == 1 and (index.subtask, index.parallelism) == (owner.subtask, owner.parallelism)
    if not (is_own or forms <= _DIVISIBLE):
        raise StateUnreadable(
            f"{owner.where}: the snapshot of its object ({index.class_name}) was taken by {index.parallelism} subtasks"
            f" without on_rescale, and cannot be divided among {owner.parallelism}; start it with"
            f" {index.parallelism}, and take a savepoint with on_rescale before the parallelism changes"
        )
    if is_own or state is ObjectState.OBJECT_STATE_UNION:
        wanted = [(item, 0, -1) for _, parts in stored for item in parts.items()]
    else:
        wanted = _share([item for _, parts in stored for item in _in_order(parts)], owner)
    return _value(index.form, wanted, owner)


def _copied(stored: Sequence[Stored], owner: Owner) -> Any:
    index, parts = stored[0]
    if not index.broadcast and index.parallelism > 1:
        raise StateUnreadable(
            f"{owner.where}: the snapshot of its object ({index.class_name}) was taken by {index.parallelism} subtasks"
            " without a broadcast input, so their states may differ, and broadcast state has to be the same in all;"
            " give the operator another id, or start from a snapshot with one subtask"
        )
    return _value(index.form, [(item, 0, -1) for item in parts.items()], owner)


Wanted = tuple[tuple[str, StoredPart], int, int]
"""A part, and the first and last item of it that are wanted; -1: to its end."""


def _share(parts: Sequence[tuple[str, StoredPart]], owner: Owner) -> list[Wanted]:
    """The subtask's share of all items, or of all parts."""
    total = sum(part.items or 1 for _, part in parts)
    first = total * owner.subtask // owner.parallelism
    end = total * (owner.subtask + 1) // owner.parallelism
    found, at = list[Wanted](), 0
    for item in parts:
        count = item[1].items or 1
        if at < end and at + count > first:
            found.append((item, max(0, first - at), min(count, end - at)))
        at += count
    return found


def _in_order(parts: Mapping[str, StoredPart]) -> list[tuple[str, StoredPart]]:
    """Parts by name, so that every subtask divides them alike; blocks of items as they were stored."""
    return sorted(parts.items(), key=lambda item: "" if item[1].items else item[0])


def _value(form: ObjectForm, wanted: Sequence[Wanted], owner: Owner) -> Any:
    loaded: dict[int, Any] = {}
    numbers: dict[tuple[str, StoredPart], list[int]] = {}
    for number, (item, _, _) in enumerate(wanted):
        numbers.setdefault(item, []).append(number)
    for name, part, data in read_parts(list(numbers)):
        for number in numbers[name, part]:
            loaded[number] = _unpickled(data, name, owner)
    values = [(item[0], loaded[number], first, end) for number, (item, first, end) in enumerate(wanted)]
    match form:
        case ObjectForm.OBJECT_ITEMS:
            return [item for _, block, first, end in values for item in (block if end < 0 else block[first:end])]
        case ObjectForm.OBJECT_FIELDS:
            return _fields([(name, value) for name, value, _, _ in values], owner)
        case ObjectForm.OBJECT_PARTS:
            return _merged([(name, value) for name, value, _, _ in values], owner)
        case ObjectForm.OBJECT_WHOLE if len(values) == 1:
            return values[0][1]
        case _:
            raise StateUnreadable(
                f"{owner.where}: its state cannot be read: it has the form {int(form)} and {len(values)} parts; use the"
                " version of Lockgate that has written it"
            )


def _fields(parts: Sequence[tuple[str, Any]], owner: Owner) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in parts:
        if name != TOGETHER:
            found[name] = value
        elif isinstance(value, dict):
            found |= value
        else:
            raise StateUnreadable(
                f"{owner.where}: its state cannot be read: a {type(value).__name__} stands for fields"
            )
    return found


def _merged(parts: Sequence[tuple[str, Any]], owner: Owner) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in parts:
        if name in found:
            raise StateUnreadable(
                f"{owner.where}: two subtasks have a part '{name}' in the snapshot, so none can have both; name parts"
                " so that they differ between subtasks, and start it with the parallelism of the snapshot until then"
            )
        found[name] = value
    return found


def _unpickled(data: bytes, name: str, owner: Owner) -> Any:
    try:
        with may_be_ended():
            return owner.classes.loads(data)
    except ProgramError:
        raise
    except Exception as error:  # unpickling runs the author's code
        if is_end(error):
            raise
        part = f" (part '{name}')" if name else ""
        raise StateUnreadable(
            f"{owner.where}: its state{part} cannot be unpickled: {with_type(error)}; a class whose"
            " objects are in it has to exist where it was, under the same name"
        ) from error
