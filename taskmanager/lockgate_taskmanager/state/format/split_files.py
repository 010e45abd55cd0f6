"""Files of a snapshot with splits that were at rest: SourceStates, of which a later one counts more."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lockgate_proto.codec import MalformedMessage, decode
from lockgate_proto.messages import SourceState, SplitState, StateHandle

from lockgate_taskmanager.state.backend import load
from lockgate_taskmanager.task.program import ProgramError, StateUnreadable


class SplitsUnknown(ProgramError):
    """Which splits a snapshot has is not known now. A fault: the next attempt may go on from another one."""


def splits_in(files: Sequence[StateHandle]) -> dict[str, SplitState]:
    """What files of one subtask's source state say of splits, by name. Raises StateUnreadable, OSError."""
    found: dict[str, SplitState] = {}
    for handle in files:
        data = load(handle)
        try:
            found |= {split.split: split for split in decode(SourceState, data.to_pybytes()).splits}
        except MalformedMessage as error:
            raise StateUnreadable(f"the state file {handle.path} cannot be read: {error}") from error
    return found


def names_in(files: Sequence[StateHandle]) -> Iterable[str]:
    """The splits that some files know, of any subtasks. Raises SplitsUnknown, OSError.

    Whoever restores from the files says for good what is wrong with them. Here they may have gone since, with the
    checkpoint that they are of.
    """
    try:
        return splits_in(files).keys()
    except StateUnreadable as error:
        raise SplitsUnknown(f"the splits of the snapshot cannot be read: {error}") from error
