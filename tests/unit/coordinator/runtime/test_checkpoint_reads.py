"""A missing file means a deleted checkpoint only when the checkpoint is no longer retained."""

from __future__ import annotations

import asyncio
import shutil
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from grpc import StatusCode
from lockgate_common.serving.refusals import Refused
from lockgate_coordinator.checkpoint.content import FORMAT_VERSION
from lockgate_coordinator.runtime.checkpoint_reads import CheckpointReads
from lockgate_coordinator.runtime.errors import Busy, StorageError
from lockgate_coordinator.runtime.guard import status
from lockgate_coordinator.runtime.metadata_files import MetadataFiles, Run
from lockgate_proto import messages as m

RUN = Run("job", "run-1")
PROBLEM = "/storage/shared/7.state does not exist"


class Reads:
    """Checkpoints in a local storage. missing: those of which a task manager misses a file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files = MetadataFiles(str(folder), "default")
        self.kept: list[m.CompletedCheckpoint] = []
        self.missing: set[str] = set()
        self.outcome = m.QueryOutcome.ANSWERED  # of what is not missing
        self.opened: m.CompletedCheckpoint | None = None  # answers the next query
        self.subsumed_meanwhile: list[m.CompletedCheckpoint] = []
        self.jobs: dict[str, Any] = {}
        self.visits = 0  # to the actor
        self.is_each_deleted = False  # the newest, whenever one is read
        self.values: tuple[m.KeyedValue, ...] = ()
        self.call: Any = None
        self.reads = CheckpointReads(self, self.files, self._retained)  # type: ignore[arg-type]

    def add(self, checkpoint_id: int) -> m.CompletedCheckpoint:
        metadata = m.CheckpointMetadata(FORMAT_VERSION, checkpoint_id=checkpoint_id)
        stored = self.files.write(RUN, metadata, self.files.content(metadata))
        self.kept.insert(0, m.CompletedCheckpoint(checkpoint_id, stored.pointer, stored.checksum))
        return self.kept[0]

    async def called(self, ask: Any, _thread: Any, *, here: bool) -> Any:
        assert here, "a query does not wait for the actor's thread"
        self.visits += 1
        return ask(self)

    def run(self) -> None:
        """The job runs: its runner knows its checkpoints."""
        checkpoints = SimpleNamespace(all=lambda: tuple(self.kept))
        self.jobs["job"] = SimpleNamespace(checkpoints=lambda: checkpoints)

    def query(
        self, _key: str, checkpoint: m.CompletedCheckpoint, _operators: Any, *, is_newest: bool
    ) -> tuple[m.CompletedCheckpoint, Future[m.StateAnswer]]:
        if is_newest and self.opened is not None:
            checkpoint, self.opened = self.opened, None
        answer: Future[m.StateAnswer] = Future()
        is_missing = checkpoint.pointer in self.missing
        outcome = m.QueryOutcome.CHECKPOINT_GONE if is_missing else self.outcome
        problem = "" if outcome is m.QueryOutcome.ANSWERED else PROBLEM
        answer.set_result(m.StateAnswer(1, outcome, self.values, problem))
        return checkpoint, answer

    def ask(self, checkpoint_id: int = 0, *subsumed: m.CompletedCheckpoint) -> Any:
        """subsumed: before the answer is there."""

        async def outcome(answer: Future[m.StateAnswer], _late: str, _limit_s: float) -> m.StateAnswer:
            self.kept = [each for each in self.kept if each not in subsumed]
            if self.is_each_deleted:
                del self.kept[0]
            return answer.result()

        async def work(step: Any) -> Any:
            return step()

        self.call = SimpleNamespace(thread=None, outcome=outcome, work=work, is_large=False)
        request = m.QueryStateRequest("job", checkpoint_id, (m.OperatorKeys("op", ("[1]",)),))
        return asyncio.run(self.reads.query(request, self.call))  # type: ignore[arg-type]

    def offsets(self, *deleted: m.CompletedCheckpoint) -> list[int]:
        """Ids. deleted: after the list was made."""
        self.subsumed_meanwhile = list(deleted)
        return [each.checkpoint_id for each in self.reads.offsets("job")]

    def _retained(self, _key: str) -> tuple[m.CompletedCheckpoint, ...]:
        found = tuple(self.kept)
        for each in self.subsumed_meanwhile:
            if each in self.kept:
                self.kept.remove(each)
                self.files.delete_pointed(each.pointer)
        return found


@pytest.fixture
def reads(tmp_path: Path) -> Reads:
    return Reads(tmp_path / "storage")


def test_a_query_moves_on_from_a_deleted_checkpoint(reads: Reads) -> None:
    _, newest = reads.add(1), reads.add(2)
    reads.missing.add(newest.pointer)
    assert reads.ask(0, newest).checkpoint_id == 1


@pytest.mark.parametrize("asked", [0, 7])
def test_a_query_of_a_running_job_visits_the_actor_once(reads: Reads, asked: int) -> None:
    reads.add(7)
    reads.run()
    assert reads.ask(asked).checkpoint_id == 7
    assert reads.visits == 1, "each visit is two switches between threads"


@pytest.mark.parametrize(("size", "is_large"), [(10, False), (1 << 20, True)])
def test_only_a_short_answer_is_encoded_without_a_worker(reads: Reads, size: int, is_large: bool) -> None:
    reads.add(7)
    reads.values = (m.KeyedValue("op", "[1]", True, ""), m.KeyedValue("op", "[2]", True, "x" * size))
    assert reads.ask().values == reads.values
    assert reads.call.is_large is is_large


def test_a_query_gives_up_when_every_checkpoint_is_deleted_before_it_is_read(reads: Reads) -> None:
    reads.missing |= {reads.add(number).pointer for number in range(1, 20)}
    reads.is_each_deleted = True
    with pytest.raises(Busy, match="each checkpoint was deleted before it was read"):
        reads.ask()


def test_a_query_says_that_the_checkpoint_it_named_is_gone(reads: Reads) -> None:
    _, newest = reads.add(1), reads.add(2)
    reads.missing.add(newest.pointer)
    with pytest.raises(Refused, match="has no checkpoint 2, or no longer: there are 1"):
        reads.ask(2, newest)


@pytest.mark.parametrize("asked", [0, 2])
def test_a_query_says_that_a_file_of_a_kept_checkpoint_is_missing(reads: Reads, asked: int) -> None:
    _, newest = reads.add(1), reads.add(2)
    reads.missing.add(newest.pointer)
    with pytest.raises(Refused, match=f"checkpoint 2 is kept, but a file of it is missing: {PROBLEM}"):
        reads.ask(asked)


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        (m.QueryOutcome.TRY_AGAIN, StatusCode.UNAVAILABLE),
        (m.QueryOutcome.UNREADABLE_STATE, StatusCode.FAILED_PRECONDITION),
        (m.QueryOutcome.NOT_ANSWERABLE, StatusCode.INVALID_ARGUMENT),
    ],
)
def test_only_a_query_that_may_be_answered_later_is_repeated(
    reads: Reads, outcome: m.QueryOutcome, code: StatusCode
) -> None:
    reads.add(7)
    reads.outcome = outcome
    with pytest.raises((Busy, Refused), match=PROBLEM) as caught:
        reads.ask()
    assert status(caught.value, "QueryState")[0] is code


def test_the_answer_has_the_id_of_the_checkpoint_that_was_open(reads: Reads) -> None:
    reads.opened, _ = reads.add(1), reads.add(2)
    assert reads.ask().checkpoint_id == 1
    assert reads.ask().checkpoint_id == 2


def test_a_query_moves_on_from_one_that_is_open_no_more_kept_or_not(reads: Reads) -> None:
    reads.opened, _ = reads.add(1), reads.add(2)
    reads.missing.add(reads.opened.pointer)
    assert reads.ask().checkpoint_id == 2


def test_offsets_leave_out_a_checkpoint_deleted_meanwhile(reads: Reads) -> None:
    first = reads.add(1)
    reads.add(2)
    assert reads.offsets(first) == [2]


def test_offsets_say_that_the_storage_is_away(reads: Reads) -> None:
    reads.add(1)
    shutil.move(reads.folder, reads.folder.with_name("away"))
    with pytest.raises(StorageError, match=r"cannot read .*/chk-1/_metadata for now: the storage is away") as caught:
        reads.offsets()
    assert status(caught.value, "ListCheckpoints")[0] is StatusCode.UNAVAILABLE, "a client asks again"


def test_offsets_say_that_a_file_is_lost(reads: Reads) -> None:
    lost = reads.add(1)
    reads.files.delete_pointed(lost.pointer)
    with pytest.raises(Refused, match=r"checkpoint 1 is kept, but a file of it is missing: .* does not exist"):
        reads.offsets()
