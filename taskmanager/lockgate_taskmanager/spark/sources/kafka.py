"""Records of Kafka topics. A split is a partition, named `topic/partition`; offsets are Kafka's.

Progress is stored in snapshots only: nothing is committed to a consumer group. When an offset no longer exists, the job
fails with a sentence; nothing is skipped. An offset may move past positions without records: transaction markers, and
records removed by compaction.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Collection, Sequence
from typing import Any

import pyarrow as pa
from lockgate_common.backlog import Backlog
from lockgate_proto.messages import KafkaSource, KafkaStart, SplitRange, SplitState
from lockgate_proto.splits import UNBOUNDED, ending

from lockgate_taskmanager.spark.kafka_client import Kafka
from lockgate_taskmanager.spark.leaf import Form, LeafSpec
from lockgate_taskmanager.spark.limits import UNLIMITED, Limits
from lockgate_taskmanager.spark.sources.reading import UNASSIGNED_WAIT_MS, Reading
from lockgate_taskmanager.task.program import Exhausted, Idle, Unavailable, UserError

LOG = logging.getLogger(__name__)
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
    ]
)
_CHUNK = 1_000  # records
_WAIT_S = 0.02
_QUIET_MS = 20
_MOST_MS = (2**63 - 1) // 1000
_RECORD_BYTES = 50  # besides key and value


class _Partition:
    """A split with its received records that are not emitted yet."""

    def __init__(self, split: SplitState) -> None:
        self.state = split
        self.held: list[Any] = []  # messages
        self.next = split.offset  # after `held`
        self.is_at_end = False  # the last poll found no more records
        self.end_then: int | None = None  # Kafka's end of it at that time, see Kafka.known_end

    def take(self) -> list[Any]:
        """Emits the held records; moves the offset."""
        found, self.held = self.held, []
        end = self.state.end
        offset = self.next if end == UNBOUNDED else min(self.next, end)
        self.state = SplitState(split=self.state.split, offset=offset, end=end)
        return found


class KafkaReader:
    """Reads partitions. Connects at the first read."""

    def __init__(self, source: KafkaSource, where: str, by_split: bool = False, limits: Limits = UNLIMITED) -> None:
        """where: the operator's name in messages."""
        self._source, self._limits = source, limits
        self._where = where
        self._by_split = by_split
        self._partitions: dict[str, _Partition] = {}
        self._live: deque[str] = deque()  # with held records, next one first
        self._unassigned: list[str] = []  # not assigned to the consumer yet
        self._ended: list[str] = []  # ended splits that no batch has reported yet
        self._complete = False
        self._kafka: Kafka | None = None
        self._consumer: Any = None
        self._held_bytes = 0

    @property
    def complete(self) -> bool:
        return self._complete

    def spec(self) -> LeafSpec | None:
        return LeafSpec(Form.TABLE, table=SCHEMA)

    def assign(self, splits: Sequence[SplitState], complete: bool) -> None:
        """Raises UserError for a split of a topic that is not among the source's."""
        for split in splits:
            if split.split in self._partitions:
                continue  # assigned twice: it continues at its offset
            topic, _ = split_parts(split.split)
            if topic not in self._source.topics:
                raise UserError(
                    f"{self._where}: the snapshot has read the topic {topic}, which is not among the source's topics"
                    f" ({', '.join(self._source.topics)}); give the source the topics it had, or another uid()"
                )
            self._partitions[split.split] = _Partition(split)
            if split.offset != split.end:
                self._live.append(split.split)
                self._unassigned.append(split.split)
        self._complete = self._complete or complete

    def splits(self) -> tuple[SplitState, ...]:
        return tuple(partition.state for partition in self._partitions.values())

    def read(self, budget_bytes: int, now_ms: int) -> Reading | Idle | Exhausted:  # noqa: ARG002
        """Records that have arrived; waits at most 20 ms for more."""
        if self._live:
            self._receive(budget_bytes)
            reading = self._next_split(budget_bytes) if self._by_split else self._everything(budget_bytes)
            if reading is not None:
                return reading
        if self._live or not self._complete:
            return Idle(_QUIET_MS if self._live else UNASSIGNED_WAIT_MS)
        return Exhausted()

    def backlog(self, now_ms: int) -> Collection[str]:  # noqa: ARG002
        """A partition has nothing waiting if the last poll reached its end."""
        return {name for name in self._live if self._has_more(name)}

    def unread(self, now_ms: int) -> Backlog:  # noqa: ARG002
        """Up to the ends that came with the last fetched records. Kafka's offsets also count markers of transactions
        and records removed by compaction. Unknown until every partition has been fetched from.
        """
        waiting = [self._waiting(self._partitions[name]) for name in self._live]
        known = [count for count in waiting if count is not None]
        return Backlog(records=sum(known)) if len(known) == len(waiting) else Backlog()

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _everything(self, budget_bytes: int) -> Reading | None:
        before = {name: self._partitions[name].state.offset for name in self._live}
        messages = [message for name in before for message in self._taken(name)]
        self._ended.clear()
        size, self._held_bytes = self._held_bytes, 0
        if not messages:
            return None
        ranges = tuple(self._moved(name, offset) for name, offset in before.items())
        return Reading(
            _table(messages), len(messages), size, size >= budget_bytes, ranges=ranges, may_pause=self._may_pause
        )

    def _moved(self, name: str, start: int) -> SplitRange:
        return SplitRange(name, start, self._partitions[name].state.offset)

    def _next_split(self, budget_bytes: int) -> Reading | None:
        """The records of one split; the splits take turns."""
        is_full = self._held_bytes >= budget_bytes
        for _ in range(len(self._live)):
            name = self._live[0]
            self._live.rotate(-1)
            start = self._partitions[name].state.offset
            messages = self._taken(name)
            if messages:
                size = sum(map(_size, messages))
                self._held_bytes -= size
                going_on = name if name in self._live else ""
                return Reading(
                    _table(messages),
                    len(messages),
                    size,
                    is_full,
                    going_on,
                    self._take_ends(),
                    (self._moved(name, start),),
                    may_pause=self._may_pause,
                )
        if self._ended:  # without records, but event time needs it
            return Reading(SCHEMA.empty_table(), 0, 0, full=False, ended=self._take_ends())
        return None

    @property
    def _may_pause(self) -> bool:
        """Asked after each batch: among thousands of partitions the first one with more is enough."""
        return bool(self._live) and not any(map(self._has_more, self._live))

    def _has_more(self, name: str) -> bool:
        partition = self._partitions[name]
        return bool(partition.held) or not partition.is_at_end

    def _taken(self, name: str) -> list[Any]:
        """The held records of a split; a split that has ended loses its turn."""
        partition = self._partitions[name]
        messages = partition.take()
        if partition.state.offset == partition.state.end:
            self._live.remove(name)
            self._ended.append(name)
            self._consumer.pause([self._of(name)])
        return messages

    def _waiting(self, partition: _Partition) -> int | None:
        """Offsets of a partition that were not emitted yet; None while its end is not known."""
        state = partition.state
        if state.end != UNBOUNDED:
            return state.end - state.offset
        if self._consumer is None or state.split in self._unassigned:
            return None
        end = self._end_of(state.split)
        if partition.is_at_end and end in (None, partition.end_then):
            end = partition.next  # what follows belongs to transactions that are still open
        return None if end is None else max(0, end - state.offset)

    def _end_of(self, name: str) -> int | None:
        return self._kafka_at().known_end(self._consumer, *split_parts(name))

    def _take_ends(self) -> tuple[str, ...]:
        ended, self._ended = tuple(self._ended), []
        return ended

    def _receive(self, budget_bytes: int) -> None:
        """Receives records until the budget is reached."""
        self._connect()
        wait_s = 0.0 if self._held_bytes else _WAIT_S
        while self._held_bytes < budget_bytes:
            with self._kafka_at().explained("cannot be read"):
                found = self._consumer.consume(_CHUNK, wait_s)
            for message in found:
                self._put(message)
            if len(found) < _CHUNK:
                return
            wait_s = 0.0

    def _put(self, message: Any) -> None:
        error = message.error()
        if error is None:
            partition = self._partitions[f"{message.topic()}/{message.partition()}"]
            offset = message.offset()
            partition.next, partition.is_at_end = offset + 1, False
            if partition.state.end == UNBOUNDED or offset < partition.state.end:
                partition.held.append(message)
                self._held_bytes += _size(message)
            return
        errors = self._kafka_at().errors
        if error.code() == errors._PARTITION_EOF:
            partition = self._partitions[f"{message.topic()}/{message.partition()}"]
            partition.next, partition.is_at_end = max(partition.next, message.offset()), True
            partition.end_then = self._end_of(partition.state.split)
        elif error.code() == errors._AUTO_OFFSET_RESET:
            raise self._lost(f"{message.topic()}/{message.partition()}")
        else:
            self._kafka_at().judge(error)

    def _lost(self, name: str) -> UserError:
        try:
            bounds = self._kafka_at().bounds(self._consumer, *split_parts(name))
        except Unavailable:
            bounds = None
        return _lost(self._where, name, self._partitions[name].next, bounds)

    def _connect(self) -> None:
        """Makes the consumer, and assigns new splits to it."""
        if self._consumer is None:
            self._consumer = self._kafka_at().consumer()
        if self._unassigned:
            fresh = [self._of(name) for name in self._unassigned]
            with self._kafka_at().explained("cannot be read"):
                self._consumer.incremental_assign(fresh)
            self._unassigned.clear()

    def _kafka_at(self) -> Kafka:
        if self._kafka is None:
            self._kafka = Kafka(self._source.servers, self._source.options, self._where, self._limits)
        return self._kafka

    def _of(self, name: str) -> Any:
        topic, number = split_parts(name)
        return self._kafka_at().partition(topic, number, self._partitions[name].state.offset)


def split_parts(name: str) -> tuple[str, int]:
    """Topic and number of a partition."""
    topic, _, number = name.rpartition("/")
    return topic, int(number)


def discover(
    source: KafkaSource, known: Collection[str], where: str, limits: Limits = UNLIMITED
) -> tuple[tuple[SplitState, ...], bool]:
    """The partitions beyond `known`; True when none will ever be added. Raises UserError, Unavailable.

    Partitions that are added while the job runs are read from their beginning, wherever the first ones started. A
    cluster that is down then has none to add: readers wait for it, so this is no reason to restart.
    """
    kafka = Kafka(source.servers, source.options, where, limits)
    consumer = kafka.consumer()
    try:
        return _partitions(kafka, consumer, source, frozenset(known), where), source.bounded
    except Unavailable as error:
        if source.bounded or not known:
            raise
        LOG.info("cannot look for new partitions now: %s", error)
        return (), False
    finally:
        consumer.close()


def reopened(
    source: KafkaSource, splits: Sequence[SplitState], where: str, limits: Limits = UNLIMITED
) -> tuple[SplitState, ...]:
    """Partitions that another run has begun, with their ends of now. Raises UserError, Unavailable."""
    if not source.bounded:
        return tuple(ending(split, UNBOUNDED) for split in splits)
    kafka = Kafka(source.servers, source.options, where, limits)
    consumer = kafka.consumer()
    found = []
    try:
        for split in splits:
            topic, number = split_parts(split.split)
            if topic in source.topics:  # another one is refused when it is assigned
                first, end = kafka.bounds(consumer, topic, number)
                if end < split.offset:
                    raise _lost(where, split.split, split.offset, (first, end))
                split = ending(split, end)
            found.append(split)
    finally:
        consumer.close()
    return tuple(found)


def _lost(where: str, name: str, offset: int, bounds: tuple[int, int] | None) -> UserError:
    """bounds: first offset of the partition, and the one behind its last, if known."""
    topic, number = split_parts(name)
    there = ""
    if bounds is not None:
        first, end = bounds
        there = f"; it has {first} to {end - 1} now" if first < end else f"; it is empty now, and ends at {end}"
    return UserError(
        f"{where}: partition {number} of the topic {topic} no longer has offset {offset}{there}. Records"
        " were removed before the job read them, or the topic was recreated. Nothing is skipped: keep records"
        " longer (retention.ms, retention.bytes), and start a new job for the remaining records"
    )


def _partitions(
    kafka: Kafka, consumer: Any, source: KafkaSource, seen: Collection[str], where: str
) -> tuple[SplitState, ...]:
    is_from_end = source.starting is KafkaStart.KAFKA_LATEST and not seen
    found: list[SplitState] = []
    for topic in source.topics:
        numbers = kafka.partitions(consumer, topic)
        if not numbers:
            raise _missing(topic, seen, where)
        for number in numbers:
            name = f"{topic}/{number}"
            if name not in seen:
                first, end = kafka.bounds(consumer, topic, number)
                found.append(SplitState(name, end if is_from_end else first, end if source.bounded else UNBOUNDED))
    return tuple(found)


def _missing(topic: str, seen: Collection[str], where: str) -> UserError | Unavailable:
    if any(split_parts(name)[0] == topic for name in seen):
        return Unavailable(f"{where}: Kafka no longer has a topic {topic}")
    return UserError(f"{where}: Kafka has no topic {topic}; create it first")


def _size(message: Any) -> int:
    return len(message.value() or b"") + len(message.key() or b"") + _RECORD_BYTES


def _table(messages: Sequence[Any]) -> pa.Table:
    stamps = [message.timestamp() for message in messages]
    columns = [
        pa.array([message.key() for message in messages], pa.binary()),
        pa.array([message.value() for message in messages], pa.binary()),
        pa.array([message.topic() for message in messages], pa.string()),
        pa.array([message.partition() for message in messages], pa.int32()),
        pa.array([message.offset() for message in messages], pa.int64()),
        # kind 0: the record has no time. One that no TIMESTAMP can have is in another unit, such as nanoseconds
        pa.array([ms * 1000 if kind and -_MOST_MS <= ms <= _MOST_MS else None for kind, ms in stamps], SCHEMA[-1].type),
    ]
    return pa.table(columns, schema=SCHEMA)
