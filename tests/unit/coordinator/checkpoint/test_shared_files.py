"""What checkpoints share with each other: counted files, bytes that are taken over, and what is written down of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from lockgate_coordinator.checkpoint.completed import CompletedCheckpoints, SharedFiles, Subsumed
from lockgate_coordinator.checkpoint.handles import (
    NothingToTakeOver,
    completed_handles,
    diffs,
    is_incremental,
    shared_files,
    size_bytes,
    writer_of,
    written_bytes,
)
from lockgate_proto.codec import encode
from lockgate_proto.messages import (
    CheckpointKind,
    CheckpointMetadata,
    CompletedCheckpoint,
    OperatorState,
    StateHandle,
    StateKind,
    SubtaskState,
)


def shared(number: int, size: int = 10) -> StateHandle:
    path = f"file:///run/shared/{number}-a1-count-0-op.state"
    return StateHandle(path=path, size_bytes=size, checkpoint_id=number, shared=True)


def states(*handles: StateHandle) -> tuple[SubtaskState, ...]:
    return (SubtaskState("count", 0, (OperatorState("op", StateKind.KEYED_STATE, handles[0], handles[1:]),)),)


def metadata(number: int, *handles: StateHandle) -> CheckpointMetadata:
    return CheckpointMetadata(1, checkpoint_id=number, subtasks=states(*handles))


def record(number: int, content: CheckpointMetadata | None = None) -> CompletedCheckpoint:
    return CompletedCheckpoint(number, kind=CheckpointKind.CHECKPOINT, metadata=encode(content) if content else b"")


def test_a_file_is_deleted_with_the_last_snapshot_that_refers_to_it() -> None:
    files = SharedFiles()
    files.add(1, frozenset({"a"}))
    files.add(2, frozenset({"a", "b"}))
    files.add(3, frozenset({"a", "b", "c"}))
    assert files.remove(2) == ()
    assert files.remove(1) == ()
    files.add(4, frozenset({"c", "d"}))
    assert files.remove(3) == ("a", "b")
    assert files.remove(4) == ("c", "d")


@pytest.mark.parametrize("options", ["", "?region=R&scheme=http", "?endpoint_override=a/b:1"])
def test_shared_files_have_the_names_that_the_folder_shows(options: str) -> None:
    """A name that is another one would never be deleted with its checkpoint, and taken for an orphan's while needed."""
    handle = replace(shared(3), path=f"s3://user:pass@bucket/run%201/shared/3-a1-a%20b-0-op.state{options}")
    assert shared_files(metadata(3, handle)) == {"3-a1-a b-0-op.state"}


def test_nothing_is_deleted_while_an_unread_snapshot_is_kept() -> None:
    files = SharedFiles()
    files.add(1, None)
    files.add(2, frozenset({"a"}))
    assert files.remove(2) == ()
    files.add(3, frozenset({"b"}))
    assert files.remove(1) == ()
    assert files.remove(3) == ("b",)


def test_forgetting_a_snapshot_that_is_not_known_frees_nothing() -> None:
    assert SharedFiles().remove(7) == ()


def test_subsumed_checkpoints_say_which_files_are_free() -> None:
    completed = CompletedCheckpoints(1, (), None)
    completed.add(record(1), metadata(1, shared(1)))
    assert completed.take_subsumed() == ()
    completed.add(record(2), metadata(2, shared(1), shared(2)))
    assert completed.take_subsumed() == (Subsumed(record(1), ()),)
    completed.add(record(3), metadata(3, shared(3)))
    names = ("1-a1-count-0-op.state", "2-a1-count-0-op.state")
    assert completed.take_subsumed() == (Subsumed(record(2), names),)


def test_the_possible_bases_of_a_pending_checkpoint_are_kept() -> None:
    completed = CompletedCheckpoints(1, (), None)
    completed.add(record(1), metadata(1, shared(1)))
    completed.add(record(3), metadata(3, shared(3)))
    assert completed.take_subsumed(needed_from=1) == ()
    assert {base.checkpoint_id for base in completed.bases()} == {1, 3}
    completed.add(record(4), metadata(4, shared(1), shared(4)))
    gone = completed.take_subsumed(needed_from=3)
    assert [(subsumed.checkpoint.checkpoint_id, subsumed.free) for subsumed in gone] == [(1, ())]
    gone = completed.take_subsumed()
    assert [(subsumed.checkpoint.checkpoint_id, subsumed.free) for subsumed in gone] == [
        (3, ("3-a1-count-0-op.state",))
    ]
    assert [base.checkpoint_id for base in completed.bases()] == [4]


def test_a_new_leader_counts_from_the_records() -> None:
    old = metadata(1, shared(1))
    new = metadata(2, shared(1), shared(2))
    completed = CompletedCheckpoints(1, (record(2, new), record(1, old)), new)
    assert completed.take_subsumed() == (Subsumed(record(1), ()),)
    unread = CompletedCheckpoints(2, (record(3), record(2, new)), None)
    unread.add(record(4), metadata(4, shared(4)))
    assert unread.take_subsumed() == (Subsumed(record(2), ()),), "3 may refer to anything"


def test_a_new_leader_has_the_checkpoint_behind_savepoints_as_a_base() -> None:
    old, base = metadata(1, shared(1)), metadata(2, shared(2))
    savepoint = CompletedCheckpoint(3, kind=CheckpointKind.SAVEPOINT)
    newest = metadata(3, StateHandle(path="file:///x"))
    completed = CompletedCheckpoints(2, (savepoint, record(2, base), record(1, old)), newest)
    assert {found.checkpoint_id for found in completed.bases()} == {2, 3}


def test_increments_build_on_checkpoints_not_on_savepoints() -> None:
    completed = CompletedCheckpoints(1, (), None)
    assert completed.newest_checkpoint_id == 0
    completed.add(record(1), metadata(1, shared(1)))
    completed.add(CompletedCheckpoint(2, kind=CheckpointKind.SAVEPOINT), metadata(2, StateHandle(path="file:///x")))
    assert completed.newest_checkpoint_id == 1


def test_bytes_that_did_not_travel_are_put_in_from_the_checkpoint_that_has_them() -> None:
    full = StateHandle(inline=b"full", size_bytes=4, checksum="c1", checkpoint_id=1)
    left_out = StateHandle(size_bytes=4, checksum="c1", checkpoint_id=1, taken_over=True)
    increment = StateHandle(inline=b"inc", size_bytes=3, checksum="c2", checkpoint_id=2)
    assert completed_handles(states(left_out, increment), [metadata(1, full)]) == states(full, increment)
    assert completed_handles(states(full), []) == states(full)


@pytest.mark.parametrize("there", [[], [StateHandle(inline=b"xxxx", size_bytes=4, checksum="other", checkpoint_id=1)]])
def test_missing_bytes_make_no_checkpoint(there: list[StateHandle]) -> None:
    left_out = StateHandle(size_bytes=4, checksum="c1", checkpoint_id=1, taken_over=True)
    with pytest.raises(
        NothingToTakeOver, match="count-0 builds on the state of operator 'op' in checkpoint 1, which is missing"
    ):
        completed_handles(states(left_out), [metadata(1, handle) for handle in there])


def test_sizes_give_the_total_and_the_new_part() -> None:
    chain = states(shared(1, 100), shared(2, 5), shared(3, 7))
    assert (size_bytes(chain), written_bytes(chain, 3), is_incremental(chain, 3)) == (112, 7, True)
    whole = states(StateHandle(path="file:///x", size_bytes=9))
    assert (size_bytes(whole), written_bytes(whole, 3), is_incremental(whole, 3)) == (9, 9, False)
    assert shared_files(metadata(3, StateHandle(path="file:///run/chk-3/x"), shared(2))) == {"2-a1-count-0-op.state"}


def test_differences_are_counted_for_the_checkpoint_that_has_written_them() -> None:
    first = replace(shared(2, 5), diff_values=3, diff_saved_bytes=900)
    second = replace(shared(3, 7), diff_values=2, diff_saved_bytes=500)
    chain = states(shared(1, 100), first, second)
    assert diffs(chain, 3) == (2, 500)
    assert diffs(states(shared(1, 100), first), 3) == (0, 0)


def test_a_shared_file_is_called_after_the_checkpoint_that_has_written_it() -> None:
    assert writer_of("12-a1-v-0-op.state") == 12
    assert writer_of("12-a1-v-0-op.state.4711.tmp") == 12
    assert writer_of("README") is None
