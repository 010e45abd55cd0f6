"""What the Kafka sink writes the Kafka source reads back equal, by commit and by restore; other types are refused."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from lockgate_proto.messages import KafkaSink as KafkaOptions
from lockgate_proto.messages import KafkaSource, KafkaWriteMode, SinkTransaction
from lockgate_taskmanager.spark.sinks.kafka import KafkaSink
from lockgate_taskmanager.spark.sinks.kafka_direct import DirectKafkaSink
from lockgate_taskmanager.spark.sinks.transaction import Sink, SinkContext
from lockgate_taskmanager.spark.sources.kafka import KafkaReader, discover
from lockgate_taskmanager.spark.sources.reading import Reading
from lockgate_taskmanager.state.backend import FileBackend
from lockgate_taskmanager.task.program import Exhausted, UserError

from tests.kafka_broker import KafkaBroker, Record
from tests.values import BINARY, FEW, INTERVAL, MAP_KEYS, SCALARS, array, nested

WHERE = "operator 'op'"
TEXT = next(kind for kind in SCALARS if pa.types.is_string(kind[0]))
OTHERS = [kind for kind, _ in [*SCALARS, INTERVAL] if not pa.types.is_string(kind)]
NOT_UTF8 = pa.array([b"\xff\xfe", b"", None]).view(pa.string())
EDGES = pa.table({"k": [b"", None, b"\x00"], "v": NOT_UTF8})


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    """A key and a value, text or bytes each."""
    count = draw(st.integers(1, 30))
    columns = {}
    for name in "kv":
        kind, values = draw(st.sampled_from((TEXT, BINARY)))
        columns[name] = array(draw(st.lists(st.none() | values, min_size=count, max_size=count)), kind)
    return pa.table(columns)


class Topic:
    """A topic, its ledger, and sinks that write there."""

    def __init__(self, broker: KafkaBroker, folder: Path) -> None:
        self._broker = broker
        self._backend = FileBackend(str(folder), "a")
        self.name, self._commits = broker.topic(), broker.topic(1)

    def sink(self, mode: KafkaWriteMode, schema: pa.Schema) -> Sink:
        options = KafkaOptions(self._broker.servers, self.name, "k", "v", mode, commits_topic=self._commits)
        kind = KafkaSink if mode is KafkaWriteMode.KAFKA_EXACTLY_ONCE else DirectKafkaSink
        sink = kind(SinkContext("job", "run", 1, "v", 0, "op", WHERE), options)
        sink.prepare(schema)
        return sink

    def persist(self, sink: Sink, checkpoint_id: int) -> list[SinkTransaction]:
        writer = self._backend.writer(checkpoint_id)
        return [pending.persist(writer) for pending in sink.seal(checkpoint_id)]

    def read(self) -> list[Record]:
        """By the source here, in small pieces."""
        kind = KafkaSource(self._broker.servers, (self.name,), bounded=True, options={"fetch.wait.max.ms": "10"})
        reader, found = KafkaReader(kind, WHERE), []
        reader.assign(*discover(kind, (), WHERE))
        while not isinstance(reading := reader.read(random.randint(1, 500), 0), Exhausted):
            if isinstance(reading, Reading):
                found += [(row["key"], row["value"]) for row in reading.content.to_pylist()]
        reader.close()
        return found


def records(table: pa.Table) -> list[Record]:
    """The rows' bytes."""
    return list(zip(*(table.column(name).cast(pa.binary()).to_pylist() for name in "kv"), strict=True))


def by_key(found: list[Record]) -> dict[bytes, list[bytes | None]]:
    """The values of each key, in their order."""
    values = defaultdict(list)
    for key, value in found:
        if key is not None:
            values[key].append(value)
    return values


@FEW
@example(EDGES, KafkaWriteMode.KAFKA_EXACTLY_ONCE)
@example(EDGES, KafkaWriteMode.KAFKA_AT_LEAST_ONCE)
@given(tables(), st.sampled_from(KafkaWriteMode))
def test_every_record_is_read_back_equal_and_in_its_key_s_order(
    kafka: KafkaBroker, tmp_path_factory: pytest.TempPathFactory, table: pa.Table, mode: KafkaWriteMode
) -> None:
    topic, middle = Topic(kafka, tmp_path_factory.mktemp("state")), table.num_rows // 2
    sink = topic.sink(mode, table.schema)
    sink.write(table.slice(0, middle))
    topic.persist(sink, 1)
    sink.commit(1)
    sink.write(table.slice(middle))
    pending = topic.persist(sink, 2)  # and the process dies
    topic.sink(mode, table.schema).restore(pending)
    found, wanted = topic.read(), records(table)
    assert Counter(found) == Counter(wanted)
    assert by_key(found) == by_key(wanted)


@FEW
@given(st.sampled_from("kv"), st.sampled_from(OTHERS) | nested([TEXT, BINARY], MAP_KEYS).map(lambda kind: kind[0]))
def test_other_types_are_refused_before_the_first_record(
    kafka: KafkaBroker, tmp_path_factory: pytest.TempPathFactory, name: str, kind: pa.DataType
) -> None:
    schema = pa.schema([(column, kind if column == name else pa.string()) for column in "kv"])
    is_taken = kind in (TEXT[0], BINARY[0])
    for mode in KafkaWriteMode:
        topic = Topic(kafka, tmp_path_factory.mktemp("state"))
        if is_taken:
            topic.sink(mode, schema)
        else:
            with pytest.raises(UserError, match=f"column '{name}' is .*, but Kafka takes STRING or BINARY: cast it"):
                topic.sink(mode, schema)
