"""The files of a snapshot with idle splits: SourceStates, of which a later one overrides an earlier one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lockgate_proto.codec import MalformedMessage, decode
from lockgate_proto.messages import SourceState, SplitState, StateHandle

from lockgate_taskmanager.state.backend import load
from lockgate_taskmanager.task.program import ProgramError, StateUnreadable


class SplitsUnknown(ProgramError):
    """The splits of a snapshot cannot be read now. A transient fault: the next attempt may use another snapshot."""


def splits_in(files: Sequence[StateHandle]) -> dict[str, SplitState]:
    """The splits in the files of one subtask's source state, by name. Raises StateUnreadable, OSError."""
    found: dict[str, SplitState] = {}
    for handle in files:
        data = load(handle)
        try:
            found |= {split.split: split for split in decode(SourceState, data.to_pybytes()).splits}
        except MalformedMessage as error:
            raise StateUnreadable(f"the state file {handle.path} cannot be read: {error}") from error
    return found


def names_in(files: Sequence[StateHandle]) -> Iterable[str]:
    """The names of the splits in some files, of any subtasks. Raises SplitsUnknown, OSError.

    Only a restore from the files reports a permanent error. Here the files may have been deleted with their checkpoint.
    """
    try:
        return splits_in(files).keys()
    except StateUnreadable as error:
        raise SplitsUnknown(f"the splits of the snapshot cannot be read: {error}") from error
