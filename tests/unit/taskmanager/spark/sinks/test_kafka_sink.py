"""What the Kafka sink does beyond the contract of all sinks: its ledger, its refusals, and its at-least-once mode."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from confluent_kafka import KafkaException, Producer
from lockgate_proto.messages import KafkaSink as KafkaOptions
from lockgate_proto.messages import KafkaWriteMode, SinkTransaction
from lockgate_taskmanager.spark.kafka_client import Kafka
from lockgate_taskmanager.spark.sinks import kafka_direct, kafka_ledger
from lockgate_taskmanager.spark.sinks.kafka import KafkaSink
from lockgate_taskmanager.spark.sinks.kafka_direct import DirectKafkaSink
from lockgate_taskmanager.spark.sinks.kafka_ledger import KafkaLedger, LedgerPlace
from lockgate_taskmanager.spark.sinks.kafka_rows import require_sizes
from lockgate_taskmanager.spark.sinks.transaction import Owner, Sink, SinkContext
from lockgate_taskmanager.state.backend import FileBackend
from lockgate_taskmanager.task.program import Canceled, DataError, StateUnreadable, Unavailable, UserError

from tests.kafka_broker import KafkaBroker

SCHEMA = pa.schema([("k", pa.string()), ("value", pa.binary())])
OWNER = Owner("job", "run", 0)
WHERE = "operator 'op'"
Attempt = Callable[..., Sink]


class Place:
    """A topic, a ledger, and attempts of a sink that write there."""

    def __init__(self, broker: KafkaBroker, folder: Path) -> None:
        self.broker = broker
        self.topic, self.commits = broker.topic(), broker.topic()
        self._backend = FileBackend(str(folder), "a")
        self._attempts = 0

    def attempt(self, run: str = "run", **fields: object) -> KafkaSink:
        options = KafkaOptions(self.broker.servers, self.topic, "k", "value", commits_topic=self.commits)
        sink = KafkaSink(self.context(run), replace(options, **fields))  # type: ignore[arg-type]
        sink.prepare(SCHEMA)
        return sink

    def direct(self, servers: str = "", **options: str) -> DirectKafkaSink:
        mode = KafkaWriteMode.KAFKA_AT_LEAST_ONCE
        named = {name.replace("_", "."): value for name, value in options.items()}
        kind = KafkaOptions(servers or self.broker.servers, self.topic, "k", "value", mode, options=named)
        return DirectKafkaSink(self.context("run"), kind)

    def context(self, run: str) -> SinkContext:
        self._attempts += 1
        return SinkContext("job", run, self._attempts, "v", 0, "op", WHERE)

    def persist(self, sink: Sink, checkpoint_id: int) -> list[SinkTransaction]:
        writer = self._backend.writer(checkpoint_id)
        return [sealed.persist(writer) for sealed in sink.seal(checkpoint_id)]

    def ledger(self) -> KafkaLedger:
        return KafkaLedger(Kafka(self.broker.servers, {}, WHERE), self.commits, "op", WHERE)

    def visible(self) -> list[bytes | None]:
        return sorted((value for _, value in self.broker.read(self.topic)), key=lambda value: value or b"")


@pytest.fixture
def place(kafka: KafkaBroker, tmp_path: Path) -> Place:
    return Place(kafka, tmp_path)


def rows(*values: str | None) -> pa.Table:
    texts = [None if value is None else value.encode() for value in values]
    return pa.table([["k"] * len(values), texts], schema=SCHEMA)


def test_the_ledger_distinguishes_owners_and_reads_from_the_given_offset(place: Place) -> None:
    sink, other = place.attempt(), place.attempt(run="other")
    ledger = place.ledger()
    ends = [ledger.end().offset]
    for item, checkpoint_id in ((sink, 3), (other, 9), (sink, 5)):
        item.write(rows("x"))
        place.persist(item, checkpoint_id)
        item.commit(checkpoint_id)
        ends.append(ledger.end().offset)
    assert ledger.committed(OWNER, ends[0], 99) == 5
    assert ledger.committed(Owner("job", "other", 0), ends[0], 99) == 9
    assert ledger.committed(Owner("job", "run", 1), ends[0], 99) == 0
    assert ledger.committed(Owner("job", "other", 0), ends[2], 99) == 0, "it lies before"
    assert ledger.committed(OWNER, ends[3], 99) == 0
    assert ledger.committed(OWNER, ends[0], 1, waits=False) >= 1


def test_a_later_snapshot_needs_only_the_newest_part_of_the_ledger(place: Place) -> None:
    sink = place.attempt()
    sink.write(rows("a"))
    (first,) = place.persist(sink, 1)
    sink.commit(1)
    sink.write(rows("b"))
    (second,) = place.persist(sink, 2)
    found = [LedgerPlace.parse(side.name) for side in (first, second)]
    assert [item is not None and item.topic for item in found] == [place.commits] * 2
    assert found[0] is not None
    assert found[1] is not None
    assert found[1].offset >= found[0].offset
    fresh = place.attempt()
    fresh.restore([second])
    assert place.visible() == [b"a", b"b"]


def test_a_recreated_ledger_cannot_be_queried(place: Place) -> None:
    sink = place.attempt()
    sink.write(rows("a"))
    (stored,) = place.persist(sink, 1)
    found = LedgerPlace.parse(stored.name)
    assert found is not None
    with pytest.raises(UserError, match="has lost records, so it is unknown whether the snapshot's pending output is"):
        place.attempt().restore([replace(stored, name=replace(found, offset=1_000).name)])
    assert place.visible() == []


def test_output_for_another_cluster_or_ledger_is_refused(place: Place) -> None:
    sink = place.attempt()
    sink.write(rows("a"))
    (stored,) = place.persist(sink, 1)
    with pytest.raises(UserError, match="start with the servers and the commits_topic that it had"):
        place.attempt(commits_topic=place.broker.topic()).restore([stored])
    with pytest.raises(StateUnreadable, match="output of another kind of sink"):
        place.attempt().restore([replace(stored, name="")])


def test_a_producer_that_was_fenced_writes_nothing(place: Place) -> None:
    """A zombie that has a producer of its own already, when its successor has taken over and gone on."""
    zombie = place.attempt()
    zombie.write(rows("a"))
    place.persist(zombie, 1)
    zombie.commit(1)
    zombie.write(rows("b"))
    stored = place.persist(zombie, 2)
    fresh = place.attempt()
    fresh.restore(stored)
    with pytest.raises(Unavailable, match="did not accept the rows of checkpoint 2"):
        zombie.commit(2)
    assert place.visible() == [b"a", b"b"]
    zombie.commit(2)  # asked again, it takes the name over, and finds in the ledger that there is nothing to do
    assert place.visible() == [b"a", b"b"]


def test_open_transactions_of_a_dead_process_are_neither_visible_nor_counted(place: Place) -> None:
    """Its rows and its note were in Kafka when it died, before it could end the transaction."""
    first = place.attempt()
    first.write(rows("a"))
    stored = place.persist(first, 1)
    dead = place.broker.producer("lockgate/job/run/op/0")
    dead.begin_transaction()
    dead.produce(place.topic, key=b"k", value=b"a")
    dead.produce(place.commits, key=place.ledger().key(OWNER), value=b"1", partition=0)
    assert dead.flush(10) == 0
    assert place.visible() == []
    heir = place.attempt()
    heir.restore(stored)
    assert place.visible() == [b"a"]
    assert place.ledger().committed(OWNER, 0, 99) == 1
    with pytest.raises(KafkaException):
        dead.commit_transaction(10)
    assert place.visible() == [b"a"]


def test_a_transaction_that_was_aborted_counts_for_nothing(place: Place) -> None:
    first = place.attempt()
    first.write(rows("a"))
    stored = place.persist(first, 1)
    gone = place.broker.producer("lockgate/job/run/op/0")
    gone.begin_transaction()
    gone.produce(place.topic, key=b"k", value=b"a")
    gone.produce(place.commits, key=place.ledger().key(OWNER), value=b"1", partition=0)
    assert gone.flush(10) == 0
    gone.abort_transaction(10)
    assert place.ledger().committed(OWNER, 0, 99) == 0
    place.attempt().restore(stored)
    assert place.visible() == [b"a"]


def test_keys_and_missing_values_arrive(place: Place) -> None:
    sink = place.attempt()
    sink.write(rows("a", None))
    place.persist(sink, 1)
    sink.commit(1)
    assert sorted(place.broker.read(place.topic), key=str) == [(b"k", None), (b"k", b"a")]
    without = place.attempt(key="")
    without.write(rows("b"))
    place.persist(without, 2)
    without.commit(2)
    assert (None, b"b") in place.broker.read(place.topic)


def test_columns_that_do_not_fit_are_the_authors(place: Place) -> None:
    sink = place.attempt()
    with pytest.raises(UserError, match="unknown value column 'value'; the columns are: k"):
        sink.prepare(pa.schema([("k", pa.string())]))
    with pytest.raises(UserError, match=r"the key column 'k' is int64, but Kafka takes STRING or BINARY: cast it, or"):
        sink.prepare(pa.schema([("k", pa.int64()), ("value", pa.string())]))


def test_a_missing_topic_is_the_authors_error(place: Place) -> None:
    with pytest.raises(UserError, match="Kafka has no topic never; create it first"):
        place.attempt(topic="never")


def test_a_record_that_is_too_large_is_the_authors_and_leaves_nothing(place: Place) -> None:
    sink = place.attempt()
    sink.write(rows("x" * 3_000))
    stored = place.persist(sink, 1)
    with pytest.raises(DataError, match=r"did not accept the rows of checkpoint 1: .*[Mm]essage size too large"):
        place.attempt(options={"message.max.bytes": "2000"}).restore(stored)
    assert place.visible() == []


def test_a_record_that_is_too_large_is_refused_before_a_checkpoint_contains_it(place: Place) -> None:
    sink = place.attempt(options={"message.max.bytes": "2000"})
    with pytest.raises(DataError, match=r"^operator 'op': a record has 3,037 bytes, and the option message.max.bytes"):
        sink.write(rows("a", None, "x" * 3_000))
    sink.write(rows("x" * 1_963, None))  # with its key and the overhead it is as large as it may be
    place.persist(sink, 1)
    sink.commit(1)
    assert place.visible() == [None, b"x" * 1_963]


@pytest.mark.parametrize("key", [None, "k"])
def test_a_records_size_is_what_librdkafka_counts(key: str | None) -> None:
    producer = Kafka(gone(), {"message.max.bytes": "2000"}, WHERE).producer()
    longest = max(size for size in range(1_900, 2_001) if takes(producer, key, size))
    assert longest < 2_000
    record = {"value": [b"x" * longest], **({"key": [key.encode()]} if key else {})}
    require_sizes(pa.table(record), 2_000, WHERE)
    with pytest.raises(DataError):
        require_sizes(pa.table(record), 1_999, WHERE)
    producer.purge()


def takes(producer: Producer, key: str | None, size: int) -> bool:
    try:
        producer.produce("t", value=b"x" * size, key=key)
    except KafkaException:
        return False
    return True


def gone() -> str:
    """An address where no broker is."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


def test_the_ledger_waits_as_long_as_kafka_may_keep_the_transaction_of_a_dead_producer(place: Place) -> None:
    options = {"transaction.timeout.ms": "1200000"}
    ledger = KafkaLedger(Kafka(place.broker.servers, options, WHERE), place.commits, "op", WHERE)
    assert ledger._patience_s() == 1_215
    assert place.ledger()._patience_s() == 915, "brokers allow 15 minutes, whatever this job has chosen"


def test_the_ledger_says_what_it_waits_for(
    place: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(kafka_ledger, "_SAY_AFTER_S", 0.5)
    dead = place.broker.producer("another")
    dead.begin_transaction()
    dead.produce(place.commits, key=b"other", value=b"1", partition=0)
    assert dead.flush(10) == 0
    waits: list[int] = []

    def may_wait() -> None:
        waits.append(1)
        if len(waits) == 100:
            dead.commit_transaction(10)

    waiting = KafkaLedger(Kafka(place.broker.servers, {}, WHERE), place.commits, "op", WHERE, may_wait)
    assert waiting.committed(OWNER, 0, 1) == 0
    assert len(waits) >= 100
    (said,) = caplog.messages
    assert "another producer's transaction is open in it" in said
    assert f"the topic {place.commits} could not be read up to offset 1" in said


def test_a_transaction_that_stays_open_fails_the_attempt_in_the_end(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = place.broker.producer("another")
    dead.begin_transaction()
    dead.produce(place.commits, key=b"other", value=b"1", partition=0)
    assert dead.flush(10) == 0
    monkeypatch.setattr(KafkaLedger, "_patience_s", lambda _: 0.0)
    with pytest.raises(Unavailable, match="another producer's transaction is open in it"):
        place.ledger().committed(OWNER, 0, 1)
    dead.abort_transaction(10)


def test_a_cancel_ends_the_wait_for_a_broker_that_is_away(place: Place) -> None:
    sink = place.attempt()
    sink.write(rows("a"))
    place.persist(sink, 1)
    sink._kafka = Kafka(gone(), {}, WHERE)
    failures, thread = in_background(lambda: sink.commit(1))
    sink.cancel()
    thread.join(60)
    assert not thread.is_alive()
    assert [type(failure) for failure in failures] == [Canceled]
    assert place.visible() == []


def in_background(call: Callable[[], object]) -> tuple[list[BaseException], threading.Thread]:
    """What it raises, and its thread."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return failures, thread


def test_at_least_once_shows_records_at_once_and_a_snapshot_waits_for_them(place: Place) -> None:
    sink = place.direct(linger_ms="60000")
    assert sink.seal(1) == (), "nothing can have been written yet"
    sink.prepare(SCHEMA)
    sink.write(rows("a", "b"))
    stored = place.persist(sink, 2)
    assert place.visible() == [b"a", b"b"]
    sink.commit(2)
    again = place.direct()
    again.restore(stored)
    assert place.visible() == [b"a", b"b"]
    sink.close()


def test_at_least_once_no_snapshot_covers_records_that_kafka_has_not_accepted(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_direct, "require_topic", lambda *_: None)
    sink = place.direct(gone(), message_timeout_ms="200")
    sink.prepare(SCHEMA)
    sink.write(rows("a"))
    for checkpoint_id in (1, 2):
        with pytest.raises(Unavailable, match="did not accept a record"):
            place.persist(sink, checkpoint_id)
    with pytest.raises(Unavailable):
        sink.write(rows("b"))


def without_broker() -> DirectKafkaSink:
    options = KafkaOptions("h:9", "t", "k", "value", KafkaWriteMode.KAFKA_AT_LEAST_ONCE)
    return DirectKafkaSink(SinkContext("job", "run", 1, "v", 0, "op", WHERE), options)


class SlowKafka:
    """A producer whose queue is never empty: for each record that Kafka accepts, the job has written another."""

    def __init__(self, write_more: Callable[[], object]) -> None:
        self.queue: list[tuple[bytes, Callable[[object, object], None]]] = []
        self.accepted: list[bytes] = []
        self._write_more = write_more

    def produce(self, _topic: str, value: bytes, key: bytes, on_delivery: Callable[[object, object], None]) -> None:
        assert key == b"k"
        self.queue.append((value, on_delivery))

    def poll(self, timeout_s: float) -> None: ...

    def flush(self, timeout_s: float) -> int:
        assert timeout_s < 1
        value, acknowledge = self.queue.pop(0)
        self.accepted.append(value)
        acknowledge(None, None)
        self._write_more()
        return len(self.queue)


def test_at_least_once_a_snapshot_does_not_wait_for_records_behind_its_barrier(tmp_path: Path) -> None:
    sink, writer = without_broker(), FileBackend(str(tmp_path), "a").writer(1)
    producer = sink._producer = SlowKafka(lambda: sink.write(rows("later")))
    for checkpoint_id, before in ((1, ["a", "b"]), (2, ["c"])):
        sink.write(rows(*before))
        waiting = len(producer.queue)
        for sealed in sink.seal(checkpoint_id):
            sealed.persist(writer)
        assert len(producer.queue) == waiting
    assert producer.accepted == [b"a", b"b", b"later", b"later", b"c"]


def test_at_least_once_a_snapshot_waits_as_long_as_kafka_accepts_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(kafka_direct, "time", SimpleNamespace(monotonic=lambda: now[0]))
    sink, writer = without_broker(), FileBackend(str(tmp_path), "a").writer(1)

    def pass_time() -> None:
        now[0] += kafka_direct._STALL_S - 1

    sink._producer = SlowKafka(pass_time)
    sink.write(rows(*"abcde"))
    (slow,) = sink.seal(1)
    slow.persist(writer)
    sink.write(rows("f"))
    monkeypatch.setattr(sink._producer, "flush", lambda _: pass_time())
    with pytest.raises(Unavailable, match="operator 'op': Kafka did not accept 1 record in time"):
        sink.seal(2)[1].persist(writer)


def test_at_least_once_a_cancel_ends_a_write_and_a_flush_and_nothing_is_sent_later(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_direct, "require_topic", lambda *_: None)
    sink = place.direct(gone(), queue_buffering_max_messages="2")
    sink.prepare(SCHEMA)
    producer = sink._producer
    sink.write(rows("a"))
    sealed = sink.seal(1)
    calls = [in_background(lambda: sink.write(rows(*"bcde"))), in_background(lambda: sealed[0].persist(None))]
    sink.cancel()
    for failures, thread in calls:
        thread.join(60)
        assert not thread.is_alive()
        assert [type(failure) for failure in failures] == [Canceled]
    sink.close()
    producer.flush(0)
    assert len(producer) == 0


def test_at_least_once_cannot_take_over_uncommitted_output(place: Place) -> None:
    sink = place.attempt()
    sink.write(rows("a"))
    stored = place.persist(sink, 1)
    with pytest.raises(StateUnreadable, match='start it with mode="exactly_once", as it was'):
        place.direct().restore(stored)
