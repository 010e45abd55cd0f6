"""JobRecords on the embedded twin: idempotence, unknown outcomes, corruption, cleaning up."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from lockgate_ha.embedded import EmbeddedZooKeeper
from lockgate_ha.errors import Conflict, CorruptRecord, Fenced, NewerRecord, OutcomeUnknown, StoreUnavailable
from lockgate_ha.grant import LeadershipGrant
from lockgate_ha.paths import Paths, node_name, text_of
from lockgate_ha.records import JobRecords, RestartPoint
from lockgate_ha.session_store import SessionStore
from lockgate_ha.store import Create, Delete, Put
from lockgate_proto import release
from lockgate_proto.codec import decode, encode
from lockgate_proto.messages import AttemptRecord, CompletedCheckpoint, FirstPositions, JobOrders, JobRecord, JobResult

JOB = JobRecord(job_key="k", run_id="r1", graph=b"graph", graph_checksum="c", submitted_unix_ms=5, token=1)
RESULT = JobResult(job_key="k", run_id="r1", outcome="FINISHED", ended_unix_ms=9, dirty=True)


class Place:
    """A leader with its records."""

    def __init__(self) -> None:
        self.server = EmbeddedZooKeeper()
        self.store: SessionStore
        self.store, self.grant = self.server.lead("c", "a")
        self.records = JobRecords(self.store, "c", settle_ms=50, keep_results=10)


@pytest.fixture
def place() -> Place:
    return Place()


def checkpoint(number: int, checksum: str = "x") -> CompletedCheckpoint:
    return CompletedCheckpoint(checkpoint_id=number, pointer=f"p{number}", checksum=checksum, token=1)


def test_a_submitted_job_has_all_its_records(place: Place) -> None:
    place.records.submit(place.grant, JOB)
    assert place.records.jobs() == (JOB,)
    assert place.records.job("k") == JOB
    assert place.records.attempt("k") == AttemptRecord(token=1)
    assert place.records.checkpoint_id("k") == 0
    assert place.records.checkpoints("k") == ()
    assert place.records.result("k") is None


@pytest.mark.parametrize("stray", ["backup", "-1", "\u0665", "1_0"])
def test_a_checkpoint_node_that_is_no_number_is_named(place: Place, stray: str) -> None:
    place.records.submit(place.grant, JOB)
    path = f"{Paths('c').checkpoints('k')}/{stray}"
    place.store.commit(place.grant, [Create(path)])
    with pytest.raises(CorruptRecord, match="not the number of a checkpoint") as caught:
        place.records.checkpoints("k")
    assert caught.value.path == path


def test_a_counter_that_is_not_a_number_is_quoted_in_part(place: Place) -> None:
    place.records.submit(place.grant, JOB)
    place.store.commit(place.grant, [Put(Paths("c").checkpoint_id("k"), b"9" * 100_000)])
    with pytest.raises(CorruptRecord, match="is not a number") as caught:
        place.records.checkpoint_id("k")
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("node", ["graph", "attempt", "orders", "result"])
def test_a_record_of_a_newer_version_is_refused_in_words_and_left_as_it_is(place: Place, node: str) -> None:
    place.records.submit(place.grant, JOB)
    path = getattr(Paths("c"), node)("k")
    newer = encode(JobOrders()) + b"\x80\x05\x03"  # of any kind: field 80 is 3
    place.store.commit(place.grant, [Put(path, newer) if node in ("graph", "attempt") else Create(path, newer)])
    sentence = rf"{path} has format 3, and Lockgate \S+ reads formats up to 2: a newer version has written it, so"
    with pytest.raises(NewerRecord, match=sentence):
        place.records.found("k") if node in ("graph", "result") else place.records.restart_point("k")
    assert place.records.jobs() == (() if node == "graph" else (JOB,))
    assert place.store.read(path) == newer


def test_records_say_their_format(place: Place) -> None:
    place.records.submit(place.grant, JOB)
    stored = place.store.read(Paths("c").graph("k"))
    assert stored is not None
    assert decode(JobRecord, stored) == dataclasses.replace(JOB, format_version=1)
    place.store.commit(place.grant, [Put(Paths("c").graph("k"), encode(JOB))])  # before there were formats
    assert place.records.job("k") == JOB


@pytest.mark.parametrize("used", [{"slot_attempts": (1, 2)}, {"first_positions": (FirstPositions("read", b"places"),)}])
def test_a_version_that_does_not_know_a_field_of_an_attempt_leaves_its_record_alone(
    place: Place, monkeypatch: pytest.MonkeyPatch, used: dict[str, Any]
) -> None:
    """It would adopt or restart the job, and write the record again without the field."""
    place.records.submit(place.grant, JOB)
    plain = AttemptRecord(2, ("tm-a", "tm-b"), token=1)
    later = dataclasses.replace(plain, **used)
    place.records.write_attempt(place.grant, "k", later)
    assert place.records.attempt("k") == later
    monkeypatch.setattr(release, "RECORD_FORMAT", 1)
    with pytest.raises(NewerRecord, match="/attempt has format 2"):
        place.records.restart_point("k")
    place.records.write_attempt(place.grant, "k", plain)
    assert place.records.restart_point("k").attempt == plain, "nothing is in the way of an upgrade that needs it not"


@pytest.mark.parametrize("lost", ["attempt", "checkpoint_id", "checkpoints"])
def test_a_job_that_lacks_a_record_of_its_submission_is_not_whole(place: Place, lost: str) -> None:
    place.records.submit(place.grant, JOB)
    place.records.require_whole("k")
    path = getattr(Paths("c"), lost)("k")
    place.store.commit(place.grant, [Delete(path)])
    with pytest.raises(CorruptRecord, match="it is missing") as caught:
        place.records.require_whole("k")
    assert caught.value.path == path


def test_a_deleted_record_is_not_written_as_if_it_existed(place: Place) -> None:
    place.records.submit(place.grant, JOB)
    paths = Paths("c")
    place.store.commit(place.grant, [Delete(paths.attempt("k")), Delete(paths.checkpoint_id("k"))])
    with pytest.raises(CorruptRecord, match="it is missing"):
        place.records.write_attempt(place.grant, "k", AttemptRecord(attempt=1))
    with pytest.raises(CorruptRecord, match="it is missing"):
        place.records.write_checkpoint_id(place.grant, "k", 1)


def test_a_missing_node_reads_as_nothing(place: Place) -> None:
    records = place.records
    assert (records.job("no"), records.attempt("no"), records.result("no")) == (None, None, None)
    assert (records.checkpoint_id("no"), records.checkpoints("no"), records.jobs(), records.results()) == (
        0,
        (),
        (),
        (),
    )


def test_the_same_run_twice_is_one_job_and_another_run_conflicts(place: Place) -> None:
    place.records.submit(place.grant, JOB)
    place.records.submit(place.grant, JOB)
    with pytest.raises(Conflict):
        place.records.submit(place.grant, dataclasses.replace(JOB, run_id="r2"))
    assert place.records.jobs() == (JOB,)


def test_a_key_with_a_result_cannot_be_submitted_again(place: Place) -> None:
    place.records.submit(place.grant, JOB)
    place.records.write_result(place.grant, RESULT)
    place.records.clean(place.grant, "k")
    with pytest.raises(Conflict):
        place.records.submit(place.grant, JOB)
    assert place.records.jobs() == ()


def test_attempts_and_checkpoint_ids_are_replaced(place: Place) -> None:
    place.records.submit(place.grant, JOB)
    place.records.write_attempt(place.grant, "k", AttemptRecord(3, ("t1", "t2"), 1, 2))
    place.records.write_checkpoint_id(place.grant, "k", 12)
    place.records.add_checkpoint(place.grant, "k", checkpoint(12))
    attempt = AttemptRecord(3, ("t1", "t2"), 1, 2)
    assert place.records.attempt("k") == attempt
    assert place.records.checkpoint_id("k") == 12
    assert place.records.restart_point("k") == RestartPoint(attempt, (checkpoint(12),), 12, JobOrders())


def test_records_of_a_job_that_does_not_exist_cannot_be_written(place: Place) -> None:
    with pytest.raises(Conflict):
        place.records.write_attempt(place.grant, "k", AttemptRecord(1))
    with pytest.raises(Conflict):
        place.records.write_checkpoint_id(place.grant, "k", 1)
    with pytest.raises(Conflict):
        place.records.add_checkpoint(place.grant, "k", checkpoint(1))


def test_checkpoints_come_newest_first_by_number(place: Place) -> None:
    place.records.submit(place.grant, JOB)
    for number in (9, 10, 2):
        place.records.add_checkpoint(place.grant, "k", checkpoint(number))
    assert [checkpoint.checkpoint_id for checkpoint in place.records.checkpoints("k")] == [10, 9, 2]
    place.records.remove_checkpoint(place.grant, "k", 9)
    place.records.remove_checkpoint(place.grant, "k", 9)
    assert [checkpoint.checkpoint_id for checkpoint in place.records.checkpoints("k")] == [10, 2]


def test_a_checkpoint_id_never_names_two_contents(place: Place) -> None:
    place.records.submit(place.grant, JOB)
    place.records.add_checkpoint(place.grant, "k", checkpoint(1))
    place.records.add_checkpoint(place.grant, "k", checkpoint(1))
    with pytest.raises(Conflict):
        place.records.add_checkpoint(place.grant, "k", checkpoint(1, checksum="other"))


@pytest.mark.parametrize("applied", [True, False])
@pytest.mark.parametrize("method", ["submit", "cancel", "attempt", "checkpoint_id", "add", "remove", "result", "clean"])
def test_an_unknown_outcome_is_read_back(place: Place, applied: bool, method: str) -> None:
    records, grant = place.records, place.grant
    if method != "submit":
        records.submit(grant, JOB)
    if method == "remove":
        records.add_checkpoint(grant, "k", checkpoint(1))
    if method == "clean":
        records.write_result(grant, RESULT)
    place.server.break_next_write(applied=applied)
    if method == "submit":
        records.submit(grant, JOB)
        assert records.job("k") == JOB
    elif method == "cancel":
        records.request_cancel(grant, JOB)
        assert records.job("k") == dataclasses.replace(JOB, cancel_requested=True)
    elif method == "attempt":
        records.write_attempt(grant, "k", AttemptRecord(4))
        assert records.attempt("k") == AttemptRecord(4)
    elif method == "checkpoint_id":
        records.write_checkpoint_id(grant, "k", 4)
        assert records.checkpoint_id("k") == 4
    elif method == "add":
        records.add_checkpoint(grant, "k", checkpoint(4))
        assert records.checkpoints("k") == (checkpoint(4),)
    elif method == "remove":
        records.remove_checkpoint(grant, "k", 1)
        assert records.checkpoints("k") == ()
    elif method == "result":
        records.write_result(grant, RESULT)
        assert records.result("k") == RESULT
    else:
        records.clean(grant, "k")
        assert records.result("k") == dataclasses.replace(RESULT, dirty=False)


def test_an_unknown_outcome_stays_unknown_while_zookeeper_is_away(place: Place) -> None:
    place.records.submit(place.grant, JOB)

    class Broken(SessionStore):
        def commit(self, grant: LeadershipGrant, operations: object) -> None:
            assert grant
            assert operations
            place.server.stop()
            raise OutcomeUnknown("broke")

    store = Broken("c", place.store._session)
    with pytest.raises(OutcomeUnknown):
        JobRecords(store, "c", settle_ms=10).write_checkpoint_id(place.grant, "k", 4)
    with pytest.raises(StoreUnavailable):
        place.records.write_checkpoint_id(place.grant, "k", 4)
    place.server.start()
    place.records.write_checkpoint_id(place.grant, "k", 4)


def test_writes_that_break_every_time_are_given_up(place: Place) -> None:
    place.records.submit(place.grant, JOB)
    for _ in range(3):
        place.server.break_next_write(applied=False)
    with pytest.raises(StoreUnavailable, match="3 tries"):
        place.records.write_checkpoint_id(place.grant, "k", 4)


def test_a_superseded_leader_can_write_nothing(place: Place) -> None:
    place.records.submit(place.grant, JOB)
    place.records.write_result(place.grant, RESULT)
    place.server.lead("c", "b")
    writes: list[Callable[[], None]] = [
        lambda: place.records.submit(place.grant, dataclasses.replace(JOB, job_key="k2")),
        lambda: place.records.request_cancel(place.grant, JOB),
        lambda: place.records.write_attempt(place.grant, "k", AttemptRecord(9)),
        lambda: place.records.write_checkpoint_id(place.grant, "k", 9),
        lambda: place.records.add_checkpoint(place.grant, "k", checkpoint(9)),
        lambda: place.records.remove_checkpoint(place.grant, "k", 9),
        lambda: place.records.write_result(place.grant, dataclasses.replace(RESULT, error="e")),
        lambda: place.records.clean(place.grant, "k"),
    ]
    for write in writes:
        with pytest.raises(Fenced):
            write()
    assert place.records.checkpoint_id("k") == 0


def test_a_cancel_stays_marked_and_needs_a_job(place: Place) -> None:
    with pytest.raises(Conflict):
        place.records.request_cancel(place.grant, JOB)
    place.records.submit(place.grant, JOB)
    for _ in range(2):
        place.records.request_cancel(place.grant, JOB)
    place.records.write_attempt(place.grant, "k", AttemptRecord(3))
    place.records.submit(place.grant, JOB)  # the same run again: nothing is unmarked
    assert place.records.jobs() == (dataclasses.replace(JOB, cancel_requested=True),)


def test_cleaning_deletes_the_job_and_keeps_the_result(place: Place) -> None:
    place.records.submit(place.grant, JOB)
    place.records.add_checkpoint(place.grant, "k", checkpoint(1))
    place.records.write_result(place.grant, RESULT)
    place.records.clean(place.grant, "k")
    place.records.clean(place.grant, "k")
    assert (place.records.jobs(), place.records.checkpoints("k")) == ((), ())
    assert place.records.results() == (dataclasses.replace(RESULT, dirty=False),)


def test_an_unfinished_job_is_never_cleaned(place: Place) -> None:
    place.records.submit(place.grant, JOB)
    with pytest.raises(Conflict, match="no result"):
        place.records.clean(place.grant, "k")
    assert place.records.jobs() == (JOB,)


def test_the_result_of_another_run_is_not_replaced(place: Place) -> None:
    place.records.write_result(place.grant, RESULT)
    place.records.write_result(place.grant, dataclasses.replace(RESULT, error="more"))
    with pytest.raises(Conflict):
        place.records.write_result(place.grant, dataclasses.replace(RESULT, run_id="r2"))


def test_the_oldest_clean_results_are_forgotten(place: Place) -> None:
    dirty = dataclasses.replace(RESULT, job_key="dirty", ended_unix_ms=0)
    place.records.write_result(place.grant, dirty)
    notified: list[str] = []

    def forgetting(keys: tuple[str, ...]) -> None:
        assert all(place.records.result(key) is not None for key in keys), "notified before"
        notified.extend(keys)

    for number in range(11):
        result = dataclasses.replace(RESULT, job_key=f"k{number:02}", ended_unix_ms=number + 1)
        place.records.write_result(place.grant, result)
        place.records.clean(place.grant, result.job_key, forgetting)
    assert notified == ["k00", "k01"]
    kept = {result.job_key for result in place.records.results()}
    assert "dirty" in kept
    assert "k10" in kept
    assert not set(notified) & kept
    assert len(kept) <= 10


def test_a_corrupt_job_is_no_obstacle_to_the_others(place: Place) -> None:
    paths = Paths("c")
    place.records.submit(place.grant, JOB)
    place.records.submit(place.grant, dataclasses.replace(JOB, job_key="bad"))
    place.store.commit(place.grant, [Put(paths.graph("bad"), b"\xff\xff"), Put(paths.checkpoint_id("bad"), b"x")])
    assert place.records.jobs() == (JOB,)
    with pytest.raises(CorruptRecord, match="bad/graph"):
        place.records.job("bad")
    with pytest.raises(CorruptRecord, match="not a number"):
        place.records.checkpoint_id("bad")


def test_a_corrupt_checkpoint_is_an_error_never_a_step_back(place: Place) -> None:
    place.records.submit(place.grant, JOB)
    place.records.add_checkpoint(place.grant, "k", checkpoint(1))
    place.store.commit(place.grant, [Create(Paths("c").checkpoint("k", 2), b"\xff\xff")])
    with pytest.raises(CorruptRecord):
        place.records.checkpoints("k")


@pytest.mark.parametrize("key", ["a/b", ".", "..", "ü ß", "%2F", "zookeeper", "a\x00b"])
def test_any_job_key_becomes_one_node(place: Place, key: str) -> None:
    assert text_of(node_name(key)) == key
    place.records.submit(place.grant, dataclasses.replace(JOB, job_key=key))
    assert [job.job_key for job in place.records.jobs()] == [key]


def test_an_empty_key_is_refused() -> None:
    with pytest.raises(ValueError, match="must not be empty"):
        node_name("")
