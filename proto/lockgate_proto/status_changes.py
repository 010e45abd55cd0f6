"""What is different between two statuses of a job, so that a watcher gets that instead of the whole status. Pure."""

from __future__ import annotations

from dataclasses import fields, replace
from itertools import compress
from operator import attrgetter, is_not

from lockgate_proto.messages import JobStatus, StatusChange, SubtaskChange, SubtaskStatusView

_FIELDS = tuple(field.name for field in fields(JobStatus) if field.name != "subtasks")
_KNOWN = frozenset(_FIELDS)
_all_but_load = attrgetter(*(field.name for field in fields(SubtaskStatusView) if field.name != "load"))


class MisfittingChange(ValueError):
    """A change that does not belong to the status; str() says why."""


def change_between(before: JobStatus, after: JobStatus) -> StatusChange | None:
    """What `changed` needs; None where the whole status is shorter.

    Subtasks that are the same objects are not looked at: a status shares those that have not changed.
    """
    old, new = before.subtasks, after.subtasks
    if len(old) != len(new):
        return None
    others = compress(range(len(new)), map(is_not, old, new)) if new is not old else ()
    subtasks = tuple(_subtask_change(index, old[index], new[index]) for index in others if old[index] != new[index])
    if 2 * sum(isinstance(item.change, SubtaskStatusView) for item in subtasks) > len(new):
        return None
    values = {name: value for name in _FIELDS if (value := getattr(after, name)) != getattr(before, name)}
    return StatusChange(tuple(values), JobStatus(**values) if values else None, subtasks)


def changed(before: JobStatus | None, change: StatusChange) -> JobStatus:
    """The status after a change. before: None: there was none yet. Raises MisfittingChange.

    Fields of a newer version are left out.
    """
    if before is None:
        raise MisfittingChange("it came before the first status")
    values = {name: getattr(change.status or JobStatus(), name) for name in change.fields if name in _KNOWN}
    return replace(before, **values, subtasks=_changed_subtasks(before.subtasks, change.subtasks))


def _subtask_change(index: int, old: SubtaskStatusView, new: SubtaskStatusView) -> SubtaskChange:
    is_load = new.load is not None and _all_but_load(old) == _all_but_load(new)
    return SubtaskChange(index, new.load if is_load else new)


def _changed_subtasks(
    before: tuple[SubtaskStatusView, ...], changes: tuple[SubtaskChange, ...]
) -> tuple[SubtaskStatusView, ...]:
    if not changes:
        return before
    found = list(before)
    for item in changes:
        if not 0 <= item.index < len(found):
            raise MisfittingChange(f"it names subtask {item.index} of {len(found)}")
        if isinstance(item.change, SubtaskStatusView):
            found[item.index] = item.change
        elif item.change is not None:
            found[item.index] = replace(found[item.index], load=item.change)
    return tuple(found)
