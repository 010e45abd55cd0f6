"""Kafka as a source: every record once from every offset, ends that are ends, and nothing skipped in silence."""

from __future__ import annotations

import random
import socket
from collections.abc import Callable, Iterator
from dataclasses import replace

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from lockgate_common.backlog import Backlog
from lockgate_proto.messages import FailureCause, KafkaSource, KafkaStart, SplitState
from lockgate_taskmanager.runtime.failures import cause_of, text_of
from lockgate_taskmanager.spark import kafka_client
from lockgate_taskmanager.spark.sources.kafka import SCHEMA, KafkaReader, discover, reopened
from lockgate_taskmanager.spark.sources.reading import Reading
from lockgate_taskmanager.task.program import Exhausted, Idle, Unavailable, UserError

from tests.kafka_broker import PARTITIONS, KafkaBroker

WHERE = "operator 'read_kafka-1'"
LOOKS = 500  # each waits a fiftieth of a second at most
QUICK = {"fetch.wait.max.ms": "10"}
Make = Callable[..., KafkaReader]


@pytest.fixture
def make(kafka: KafkaBroker) -> Iterator[Make]:
    """Readers of one topic's splits, closed at the end."""
    made: list[KafkaReader] = []

    def reader(
        topic: str, splits: tuple[SplitState, ...], by_split: bool = False, complete: bool = True
    ) -> KafkaReader:
        kafka_reader = KafkaReader(source(kafka, topic), WHERE, by_split)
        kafka_reader.assign(splits, complete)
        made.append(kafka_reader)
        return kafka_reader

    yield reader
    for kafka_reader in made:
        kafka_reader.close()


def source(kafka: KafkaBroker, topic: str, **fields: object) -> KafkaSource:
    return KafkaSource(servers=kafka.servers, topics=(topic,), options=QUICK, **fields)  # type: ignore[arg-type]


def filled(kafka: KafkaBroker, records: int = 20) -> str:
    """A topic with so many records in each of its first two partitions."""
    topic = kafka.topic()
    for partition in (0, 1):
        kafka.produce(topic, [(b"k", b"%d-%d" % (partition, n)) for n in range(records)], partition)
    return topic


def read(reader: KafkaReader, budget_bytes: int = 10_000, until: int | None = None) -> pa.Table:
    """Everything to the end, or until so many records are there."""
    pieces = [SCHEMA.empty_table()]
    for _ in range(LOOKS):
        found = reader.read(budget_bytes, 0)
        if isinstance(found, Exhausted):
            break
        if isinstance(found, Reading):
            assert found.rows == found.content.num_rows
            assert found.content.schema.equals(SCHEMA)
            pieces.append(found.content)
        if until is not None and sum(piece.num_rows for piece in pieces) >= until:
            break
    else:
        raise AssertionError(f"not read to the end: {reader.splits()}")
    return pa.concat_tables(pieces)


def values(table: pa.Table) -> list[bytes]:
    return sorted(table.column("value").to_pylist())


def test_a_bounded_source_reads_the_existing_input_and_ends(kafka: KafkaBroker, make: Make) -> None:
    topic = filled(kafka)
    splits, complete = discover(source(kafka, topic, bounded=True), (), WHERE)
    assert complete
    assert [(split.split, split.offset, split.end) for split in splits] == [
        (f"{topic}/{number}", 0, 20 if number < 2 else 0) for number in range(PARTITIONS)
    ]
    kafka.produce(topic, [(None, b"later")])
    reader = make(topic, splits)
    table = read(reader)
    assert values(table) == sorted(b"%d-%d" % (partition, n) for partition in (0, 1) for n in range(20))
    assert all(split.offset == split.end for split in reader.splits())
    first = table.filter(pa.compute.equal(table["partition"], 0))
    assert first["offset"].to_pylist() == list(range(20))
    assert set(table["topic"].to_pylist()) == {topic}
    assert first["timestamp"].null_count == 0


def test_a_time_that_no_timestamp_can_have_is_null(kafka: KafkaBroker, make: Make) -> None:
    """A producer that has written nanoseconds ends no job: the record is in the topic for good."""
    topic = kafka.topic()
    producer = Producer({"bootstrap.servers": kafka.servers})
    times = [1_700_000_000_000, 1_700_000_000_000_000_000, 2**63 - 1, 9_000_000_000_000_000]
    for time_ms in times:
        producer.produce(topic, b"x", partition=0, timestamp=time_ms)
    assert producer.flush(10) == 0
    table = read(make(topic, discover(source(kafka, topic, bounded=True), (), WHERE)[0]))
    expected = [1_700_000_000_000_000, None, None, 9_000_000_000_000_000_000]
    assert table.column("timestamp").cast(pa.int64()).to_pylist() == expected


def test_every_offset_can_be_restored(kafka: KafkaBroker, make: Make) -> None:
    topic = filled(kafka)
    whole = [b"0-%d" % n for n in range(20)]
    choice = random.Random(1)
    for start in (0, 19, *choice.sample(range(1, 19), 3)):
        table = read(make(topic, (SplitState(f"{topic}/0", start, 20),)), budget_bytes=choice.randint(1, 500))
        assert table["value"].to_pylist() == whole[start:], start


def test_offsets_cover_exactly_the_records_read(kafka: KafkaBroker, make: Make) -> None:
    topic = filled(kafka, 3_000)
    first = make(topic, (SplitState(f"{topic}/0", 0, -1),), complete=False)
    table = read(first, budget_bytes=1, until=1)
    (split,) = first.splits()
    assert split.offset == table.num_rows < 3_000
    second = make(topic, (SplitState(split.split, split.offset, 3_000),))
    rest = read(second)
    both = pa.concat_tables([table, rest])
    assert both["offset"].to_pylist() == list(range(3_000))


def test_the_backlog_is_the_records_up_to_the_ends(kafka: KafkaBroker, make: Make) -> None:
    topic = filled(kafka, 3_000)
    splits = tuple(SplitState(f"{topic}/{number}", 0, -1) for number in (0, 1))
    reader = make(topic, splits, complete=False)
    assert reader.unread(0) == Backlog(), "nothing has been fetched"
    done = read(reader, budget_bytes=1, until=1).num_rows
    for _ in range(LOOKS):
        if reader.unread(0).records is not None:
            break
        found = reader.read(1, 0)
        done += found.rows if isinstance(found, Reading) else 0
    assert 0 < done < 6_000
    assert reader.unread(0) == Backlog(records=6_000 - done)
    read(reader, until=6_000 - done)
    assert reader.unread(0) == Backlog(records=0)


def test_the_backlog_of_a_bounded_source_ends_where_it_does(kafka: KafkaBroker, make: Make) -> None:
    topic = filled(kafka)
    reader = make(topic, (SplitState(f"{topic}/0", 4, 12), SplitState(f"{topic}/1", 20, 20)))
    assert reader.unread(0) == Backlog(records=8)
    read(reader)
    assert reader.unread(0) == Backlog(records=0)


def test_an_unbounded_source_continues_with_new_lines(kafka: KafkaBroker, make: Make) -> None:
    topic = filled(kafka)
    splits, complete = discover(source(kafka, topic), (), WHERE)
    assert not complete
    reader = make(topic, splits, complete=False)
    assert read(reader, until=40).num_rows == 40
    assert isinstance(reader.read(1000, 0), Idle)
    kafka.produce(topic, [(None, b"more"), (b"gone", None)], 3)
    more = read(reader, until=2)
    assert [(row["key"], row["value"], row["partition"]) for row in more.to_pylist()] == [
        (None, b"more", 3),
        (b"gone", None, 3),
    ]


def test_marks_of_transactions_are_passed_over(kafka: KafkaBroker, make: Make) -> None:
    """They take an offset and are no record: the end of the partition is behind the last one."""
    topic = kafka.topic()
    producer = Producer({"bootstrap.servers": kafka.servers, "transactional.id": topic})
    producer.init_transactions(10)
    for n in range(3):
        producer.begin_transaction()
        producer.produce(topic, value=b"%d" % n, partition=0)
        producer.commit_transaction(10)
    splits, _ = discover(source(kafka, topic, bounded=True), (), WHERE)
    assert splits[0].end == 6
    bounded = make(topic, splits)
    assert values(read(bounded)) == [b"0", b"1", b"2"]
    assert bounded.splits()[0].offset == 6
    endless = make(topic, (SplitState(f"{topic}/0", 0, -1),), complete=False)
    read(endless, until=3)
    for _ in range(LOOKS):
        if endless.splits()[0].offset == 6:
            break
        endless.read(1000, 0)
    assert endless.splits()[0].offset == 6, "retention may take the marks away without a gap"


def test_records_of_open_and_aborted_transactions_are_not_read(kafka: KafkaBroker, make: Make) -> None:
    topic = kafka.topic()
    producer = kafka.producer(topic)
    producer.begin_transaction()
    producer.produce(topic, value=b"never", partition=0)
    assert producer.flush(10) == 0
    kafka.produce(topic, [(None, b"behind")])
    early, _ = discover(source(kafka, topic, bounded=True), (), WHERE)
    assert early[0].end == 0, "nothing that can be read is there yet"
    reader = make(topic, (SplitState(f"{topic}/0", 0, -1),), complete=False)
    for _ in range(LOOKS):
        assert isinstance(reader.read(10_000, 0), Idle), "it waits before the open transaction"
        if not reader.backlog(0):
            break
    assert reader.splits()[0].offset == 0
    producer.abort_transaction(10)
    found = read(reader, until=1)
    assert [(row["value"], row["offset"]) for row in found.to_pylist()] == [(b"behind", 1)]
    splits, _ = discover(source(kafka, topic, bounded=True), (), WHERE)
    assert splits[0].end == 3, "the mark of the abort counts"
    assert values(read(make(topic, splits))) == [b"behind"]


def test_a_new_job_may_begin_at_the_end_but_new_partitions_are_read_whole(kafka: KafkaBroker) -> None:
    topic = filled(kafka)
    latest = source(kafka, topic, starting=KafkaStart.KAFKA_LATEST)
    splits, _ = discover(latest, (), WHERE)
    assert [split.offset for split in splits] == [20, 20, 0, 0]
    fresh, complete = discover(latest, [f"{topic}/{number}" for number in (0, 2, 3)], WHERE)
    assert fresh == (SplitState(f"{topic}/1", 0, -1),)
    assert not complete


def test_partitions_of_another_run_end_where_they_end_now(kafka: KafkaBroker) -> None:
    topic = filled(kafka)
    before = [SplitState(f"{topic}/{number}", 5, 5) for number in (0, 1)]
    left = SplitState("left/0", 5, 5)
    bounded = source(kafka, topic, bounded=True)
    now = [replace(split, end=20) for split in before]
    assert reopened(bounded, [*before, left], WHERE) == (*now, left), "a topic that is left out is refused elsewhere"
    assert {split.end for split in reopened(source(kafka, topic), before, WHERE)} == {-1}
    with pytest.raises(UserError, match=r"no longer has offset 21; it has 0 to 19 now.*Nothing is skipped"):
        reopened(bounded, [SplitState(f"{topic}/0", 21, 21)], WHERE)


def test_records_removed_by_retention_end_the_job_with_a_message(kafka: KafkaBroker, make: Make) -> None:
    topic = filled(kafka)
    kafka.remove_before(topic, 0, 7)
    (left, *_), _ = discover(source(kafka, topic), (), WHERE)
    assert left.offset == 7
    with pytest.raises(
        UserError, match=r"no longer has offset 0; it has 7 to 19 now\. .* Nothing is skipped"
    ) as caught:
        read(make(topic, (SplitState(f"{topic}/0", 0, -1),)), until=1)
    assert cause_of(caught.value) is FailureCause.USER_ERROR
    assert "\n" not in text_of(caught.value)
    assert read(make(topic, (left,)), until=1)["offset"][0].as_py() == left.offset


def test_a_recreated_topic_ends_the_job_too(kafka: KafkaBroker, make: Make) -> None:
    topic = filled(kafka)
    with pytest.raises(UserError, match=r"partition 1 of the topic \S+ no longer has offset 500; it has 0 to 19 now"):
        read(make(topic, (SplitState(f"{topic}/1", 500, -1),)), until=1)


def test_by_split_a_batch_holds_one_split_and_reports_its_end(kafka: KafkaBroker, make: Make) -> None:
    topic = filled(kafka)
    splits, _ = discover(source(kafka, topic, bounded=True), (), WHERE)
    reader = make(topic, splits, by_split=True)
    ended: list[str] = []
    seen: list[bytes] = []
    for _ in range(LOOKS):
        found = reader.read(10_000, 0)
        if isinstance(found, Exhausted):
            break
        if isinstance(found, Reading):
            partitions = set(found.content["partition"].to_pylist())
            assert len(partitions) <= 1
            for number in partitions:
                assert found.split == f"{topic}/{number}" or f"{topic}/{number}" in found.ended
            ended += found.ended
            seen += found.content["value"].to_pylist()
    assert sorted(ended) == [f"{topic}/0", f"{topic}/1"], "empty ones have ended before"
    assert len(seen) == len(set(seen)) == 40


def test_a_partition_that_was_read_to_its_end_has_no_backlog(kafka: KafkaBroker, make: Make) -> None:
    topic = filled(kafka)
    reader = make(topic, (SplitState(f"{topic}/0", 0, -1), SplitState(f"{topic}/2", 0, -1)), complete=False)
    assert set(reader.backlog(0)) == {f"{topic}/0", f"{topic}/2"}
    for _ in range(LOOKS):
        reader.read(10_000, 0)
        if not reader.backlog(0):
            break
    assert reader.backlog(0) == set()


def test_a_split_assigned_twice_continues_at_its_offset(kafka: KafkaBroker, make: Make) -> None:
    topic = filled(kafka)
    split = SplitState(f"{topic}/0", 0, 20)
    reader = make(topic, (split,), complete=False)
    assert read(reader, until=20).num_rows == 20
    reader.assign((split, SplitState(f"{topic}/1", 15, 20)), True)
    assert values(read(reader)) == [b"1-%d" % n for n in range(15, 20)]


def test_a_missing_topic_is_the_authors_error_and_a_vanished_one_a_fault(kafka: KafkaBroker) -> None:
    missing = source(kafka, f"never-{kafka.topic()}", bounded=True)
    with pytest.raises(UserError, match=r"Kafka has no topic never-\S+; create it first"):
        discover(missing, (), WHERE)
    with pytest.raises(Unavailable, match=r"no longer has a topic"):
        discover(missing, (f"{missing.topics[0]}/0",), WHERE)


def test_a_snapshot_of_another_topic_is_refused(kafka: KafkaBroker, make: Make) -> None:
    with pytest.raises(UserError, match="has read the topic other, which is not among the source's topics"):
        make(kafka.topic(), (SplitState("other/0", 5, -1),))


def test_a_broker_that_is_away_is_a_fault_in_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kafka_client, "ASK_TIMEOUT_S", 5.0)
        with pytest.raises(Unavailable, match=f"Kafka at 127.0.0.1:{port} did not describe the topic t") as caught:
            discover(KafkaSource(servers=f"127.0.0.1:{port}", topics=("t",)), (), WHERE)
    assert cause_of(caught.value) is FailureCause.FAULT
    assert "\n" not in text_of(caught.value)
    assert "refused" in text_of(caught.value)


def test_a_broker_that_is_away_has_no_new_partitions_for_a_job_that_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        gone = f"127.0.0.1:{server.getsockname()[1]}"
    monkeypatch.setattr(kafka_client, "ASK_TIMEOUT_S", 0.2)
    assert discover(KafkaSource(gone, ("t",)), ("t/0",), WHERE) == ((), False)
    with pytest.raises(Unavailable):
        discover(KafkaSource(gone, ("t",), bounded=True), ("t/0",), WHERE)


def test_wrong_options_are_the_authors_and_passwords_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r'the options for Kafka are wrong: .*"no.such"'):
        discover(KafkaSource("h:9", ("t",), options={"no.such": "x"}), (), WHERE)
    options = {"sasl.password": "${KAFKA_WORD}", "security.protocol": "tell-me-all"}
    with pytest.raises(
        UserError, match=r"sasl\.password is .{KAFKA_WORD}, which is not set in the task manager's environment"
    ):
        discover(KafkaSource("h:9", ("t",), options=options), (), WHERE)
    monkeypatch.setenv("KAFKA_WORD", "tell-me-all")
    with pytest.raises(UserError, match="wrong") as caught:
        discover(KafkaSource("h:9", ("t",), options=options), (), WHERE)
    assert "tell-me-all" not in str(caught.value)


def test_without_the_package_a_job_names_the_package_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_client.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(UserError, match=r"pip install 'lockgate\[kafka\]'"):
        discover(KafkaSource("h:9", ("t",)), (), WHERE)
