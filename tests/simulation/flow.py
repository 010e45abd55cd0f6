"""What a simulated dataflow computes: the functions of its vertices, and a naive model of what comes out of it.

The model knows neither subtasks nor channels nor barriers: it follows one record after the other through the graph.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache

import pyarrow as pa
from lockgate_proto.key_groups import key_group_range
from lockgate_proto.loops import is_feedback, loop_of
from lockgate_proto.messages import (
    FileSink,
    FileSource,
    GeneratorSource,
    JobGraph,
    KafkaSource,
    KeyedAggregate,
    SplitState,
    SqlSink,
    SqlTransform,
    Vertex,
)
from lockgate_taskmanager.state.layout import HASH

Record = tuple[int, int, int]  # (partition, sequence, rounds that it still makes in each loop that it comes to)
Offsets = Mapping[tuple[str, str], int]  # (source vertex, split) to how far it was read
Counts = dict[int, tuple[int, int]]  # key to (count, sum of sequences)

KEYS = 48
KEY_GROUPS = 16  # few, so that jobs of some dozen records have keys in all of them
ROUNDS = 3
GROWTH_MS = 20  # in which a growing partition gets a record
_SOURCES = 100  # the partitions of source i count from i times that
_SCHEMA = pa.schema([*((name, pa.int32()) for name in ("partition", "sequence", "rounds")), (HASH, pa.int64())])

SAME = "SELECT * FROM input"
SOME = "SELECT * FROM input WHERE sequence % 3 <> 0"
RANDOM = "SELECT * FROM input ORDER BY rand()"
TWICE = "SELECT * FROM input UNION ALL SELECT * FROM input"
TRANSFORMS: dict[str, Callable[[Record], tuple[Record, ...]]] = {
    SAME: lambda record: (record,),
    SOME: lambda record: (record,) if record[1] % 3 else (),
    TWICE: lambda record: (record, record),
}
"""SQL text of a transform and what it makes of a record."""


def table_of(records: list[Record]) -> pa.Table:
    """Records as they travel, with the hash of their key."""
    columns = zip(*records, strict=True) if records else ((), (), ())
    hashes = pa.array([hash_of(key_of(record)) for record in records], pa.int64())
    return pa.Table.from_arrays([*(pa.array(column, pa.int32()) for column in columns), hashes], schema=_SCHEMA)


def records_of(table: pa.Table) -> list[Record]:
    """And back."""
    return list(zip(*(column.to_pylist() for column in table.drop_columns([HASH]).columns), strict=True))


def key_of(record: Record) -> int:
    """The key by which records are partitioned and counted."""
    return (record[0] * 31 + record[1] * 7) % KEYS


def hash_of(key: int) -> int:
    """The hash of a key."""
    return key * 53


def key_group_of(key: int) -> int:
    """The key group that a key is in."""
    return hash_of(key) % KEY_GROUPS


@cache
def owner_of(key: int, parallelism: int) -> int:
    """The subtask that has the key, by the key group that it is in."""
    group = key_group_of(key)
    return next(number for number in range(parallelism) if group in key_group_range(number, parallelism, KEY_GROUPS))


def counts_of(records: Iterable[Record]) -> Counts:
    """What a counting vertex makes of records."""
    count: Counter[int] = Counter()
    total: Counter[int] = Counter()
    for record in records:
        count[key_of(record)] += 1
        total[key_of(record)] += record[1]
    return {key: (count[key], total[key]) for key in count}


def added(counts: Counts, other: Counts) -> Counts:
    """Counts and sums of two sets of records together."""
    sums = dict(counts)
    for key, (count, total) in other.items():
        before = sums.get(key, (0, 0))
        sums[key] = (before[0] + count, before[1] + total)
    return sums


def input_of(vertex: Vertex) -> tuple[int, int] | None:
    """(partitions, rows of each) of a source; None for any other vertex."""
    kind = vertex.operators[0].kind
    if isinstance(kind, GeneratorSource):
        return kind.partitions, kind.rows_per_partition
    if isinstance(kind, FileSource):
        partitions, rows = kind.path.split("x")
        return int(partitions), int(rows)
    if isinstance(kind, KafkaSource):
        partitions, rows = kind.servers.partition(":")[0].split("x")
        return int(partitions), int(rows)
    return None


def splits_of(vertex: Vertex) -> tuple[SplitState, ...]:
    """What a task manager finds when it lists the splits of a source. Files are of different sizes."""
    partitions, rows = input_of(vertex) or (0, 0)
    smaller = rows // 4 if isinstance(vertex.operators[0].kind, FileSource) else 0
    return tuple(SplitState(str(number), 0, rows - number % 3 * smaller) for number in range(partitions))


def partitions_at(vertex: Vertex, known: Container[str], now_ms: float) -> tuple[SplitState, ...]:
    """What it finds of a source that begins at the end of its partitions, which grow. The last is added later."""
    splits = splits_of(vertex)
    if any(split.split in known for split in splits):
        return tuple(split for split in splits if split.split not in known)
    return tuple(replace(split, offset=min(split.end, int(now_ms / GROWTH_MS))) for split in splits[:-1])


@dataclass(frozen=True)
class Seen:
    """Which records have come to which vertices that keep something of them: ledgers and counts."""

    at: Mapping[str, Counter[Record]]

    def counts(self, vertex: str) -> Counts:
        """What a counting vertex has then."""
        return counts_of(self.at[vertex].elements())


class Model:
    """Of one graph."""

    def __init__(self, graph: JobGraph) -> None:
        self.graph = graph
        self.vertices = {vertex.id: vertex for vertex in graph.vertices}
        sources = [vertex.id for vertex in graph.vertices if input_of(vertex) is not None]
        self.first_partition = {name: number * _SOURCES for number, name in enumerate(sources)}
        kinds = {vertex.id: {type(operator.kind) for operator in vertex.operators} for vertex in graph.vertices}
        self.ledgers = [name for name, found in kinds.items() if FileSink in found]
        self.counting = [name for name, found in kinds.items() if KeyedAggregate in found]
        self.tables = [name for name, found in kinds.items() if SqlSink in found]
        self.starts: dict[tuple[str, str], int] = {}  # (source vertex, split) to where it begins, if not at 0
        self._keeping = {*self.ledgers, *self.counting}
        self._ways = {vertex.id: self._outgoing(vertex.id) for vertex in graph.vertices}
        self._visits: dict[tuple[str, Record], tuple[tuple[str, Record], ...]] = {}

    def _outgoing(self, name: str) -> list[tuple[int, bool, bool]]:
        """(number of the edge, whether it is a back edge, whether only what makes no more rounds takes it)."""
        inside = loop_of(self.graph, name)
        edges = [(number, edge) for number, edge in enumerate(self.graph.edges) if edge.source == name]
        turns = any(is_feedback(edge) for _, edge in edges)
        return [(number, is_feedback(edge), turns and edge.target not in inside) for number, edge in edges]

    def record(self, source: str, split: str, sequence: int) -> Record:
        """One record of the input."""
        partition = self.first_partition[source] + int(split)
        return partition, sequence, (partition + sequence) % (ROUNDS + 1)

    def made_of(self, name: str, record: Record) -> tuple[Record, ...]:
        """What the operators of a vertex put out for a record."""
        kind = self.vertices[name].operators[0].kind
        return TRANSFORMS[kind.query](record) if isinstance(kind, SqlTransform) else (record,)

    def ways(self, name: str, record: Record) -> Iterator[tuple[int, Record]]:
        """(edge, record as it goes over it) for each edge that a record which a vertex puts out takes."""
        partition, sequence, rounds = record
        for number, is_back, is_exit in self._ways[name]:
            if is_back and rounds:
                yield number, (partition, sequence, rounds - 1)
            elif not (is_back or (is_exit and rounds)):
                yield number, record

    def visits(self, name: str, record: Record) -> tuple[tuple[str, Record], ...]:
        """Everything that comes of a record which is about to be processed in a vertex, where something is kept."""
        known = self._visits.get((name, record))
        if known is None:
            here = ((name, record),) if name in self._keeping else ()
            known = here + tuple(
                visit
                for made in self.made_of(name, record)
                for number, moved in self.ways(name, made)
                for visit in self.visits(self.graph.edges[number].target, moved)
            )
            self._visits[name, record] = known
        return known

    def seen(self, arrivals: Iterable[tuple[str, Record]]) -> Seen:
        """What comes of records that are about to be processed in some vertices."""
        found: defaultdict[str, Counter[Record]] = defaultdict(Counter)
        for name, record in arrivals:
            for vertex, item in self.visits(name, record):
                found[vertex][item] += 1
        return Seen({name: found[name] for name in self._keeping})

    def below(self, offsets: Offsets) -> Seen:
        """What comes of the input below some offsets: a snapshot with these must have seen that, and nothing else."""
        return self.seen(
            (source, self.record(source, split, sequence))
            for (source, split), offset in offsets.items()
            for sequence in range(self.starts.get((source, split), 0), offset)
        )

    def everything(self) -> Seen:
        """What comes of the whole input."""
        ends = {(vertex.id, split.split): split.end for vertex in self.graph.vertices for split in splits_of(vertex)}
        return self.below(ends)
