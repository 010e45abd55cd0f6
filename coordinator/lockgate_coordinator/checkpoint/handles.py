"""Queries on the handles in a snapshot: sizes, files shared by snapshots, and bytes taken over from another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from urllib.parse import unquote

from lockgate_common.masking import bare
from lockgate_proto.messages import CheckpointMetadata, OperatorState, StateHandle, SubtaskState

Owner = tuple[str, int, str]
"""The owner of a handle: vertex id, subtask and operator id."""


class NothingToTakeOver(ValueError):
    """A snapshot builds on missing bytes. The message is one sentence."""


def handles(state: OperatorState) -> Iterator[StateHandle]:
    """Every handle of an operator's state."""
    if state.handle is not None:
        yield state.handle
    yield from state.increments
    yield from state.files


def all_handles(states: Sequence[SubtaskState]) -> Iterator[StateHandle]:
    """Every handle of a snapshot."""
    for subtask in states:
        for operator in subtask.operators:
            yield from handles(operator)
        for channel in subtask.channels:
            if channel.handle is not None:
                yield channel.handle


def shared_files(metadata: CheckpointMetadata) -> frozenset[str]:
    """Names, in the run's `shared` folder, of the files that a snapshot refers to."""
    found = (handle.path for handle in all_handles(metadata.subtasks) if handle.shared)
    return frozenset(unquote(bare(path).rpartition("/")[2]) for path in found)  # each URI has its storage's options


def writer_of(name: str) -> int | None:
    """The checkpoint that wrote a shared file, from the beginning of its name; None for a name of another kind."""
    number = name.partition("-")[0]
    return int(number) if number.isdigit() else None


def size_bytes(states: Sequence[SubtaskState]) -> int:
    """Size of all state together."""
    return sum(handle.size_bytes for handle in all_handles(states))


def written_bytes(states: Sequence[SubtaskState], checkpoint_id: int) -> int:
    """Size of the bytes that this checkpoint itself has written."""
    return sum(handle.size_bytes for handle in all_handles(states) if handle.checkpoint_id in (0, checkpoint_id))


def diffs(states: Sequence[SubtaskState], checkpoint_id: int) -> tuple[int, int]:
    """The number of values that this checkpoint itself wrote as differences, and the bytes that this saved."""
    mine = [handle for handle in all_handles(states) if handle.checkpoint_id == checkpoint_id]
    return sum(handle.diff_values for handle in mine), sum(handle.diff_saved_bytes for handle in mine)


def is_incremental(states: Sequence[SubtaskState], checkpoint_id: int) -> bool:
    """True when it refers to files of earlier checkpoints."""
    return any(handle.checkpoint_id not in (0, checkpoint_id) for handle in all_handles(states))


def completed_handles(
    states: Sequence[SubtaskState], earlier: Sequence[CheckpointMetadata]
) -> tuple[SubtaskState, ...]:
    """The same states with the bytes that the acknowledgements left out.

    earlier: completed checkpoints from which they may have been taken over. Raises NothingToTakeOver.
    """
    if not any(handle.taken_over for handle in all_handles(states)):
        return tuple(states)
    there = {
        (_owner(subtask, operator), handle.checkpoint_id, handle.name): handle
        for metadata in earlier
        for subtask in metadata.subtasks
        for operator in subtask.operators
        for handle in handles(operator)
        if handle.checkpoint_id and not handle.path
    }

    def filled(owner: Owner, handle: StateHandle) -> StateHandle:
        if not handle.taken_over:
            return handle
        found = there.get((owner, handle.checkpoint_id, handle.name))
        if found is None or (found.size_bytes, found.checksum) != (handle.size_bytes, handle.checksum):
            raise NothingToTakeOver(
                f"{owner[0]}-{owner[1]} builds on the state of operator '{owner[2]}' in checkpoint "
                f"{handle.checkpoint_id}, which is missing"
            )
        return found

    return tuple(
        replace(
            subtask,
            operators=tuple(
                replace(
                    operator,
                    handle=None if operator.handle is None else filled(_owner(subtask, operator), operator.handle),
                    increments=tuple(filled(_owner(subtask, operator), increment) for increment in operator.increments),
                )
                for operator in subtask.operators
            ),
        )
        for subtask in states
    )


def _owner(subtask: SubtaskState, operator: OperatorState) -> Owner:
    return (subtask.vertex_id, subtask.subtask, operator.operator_id)
