"""The job that a drill runs, and how its output is read."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from lockgate_proto.messages import (
    Aggregate,
    AggregateFunction,
    CheckpointOptions,
    Edge,
    ExponentialRestart,
    FileFormat,
    FileSink,
    GeneratorSource,
    JobGraph,
    KeyedAggregate,
    Operator,
    Partitioning,
    RestartStrategy,
    SqlSink,
    SqlTransform,
    Vertex,
)

from lockgate_devtools.drill.oracle import LedgerOracle, Total
from lockgate_devtools.equipment import sqlite_file

CHECKSUM_FACTOR = 1_000_000_007
_TABLE = "totals"


@dataclass(frozen=True)
class DrillPipeline:
    """generator -> SQL -> exchange by partition -> (transactional ledger | keyed totals -> SQL upsert).

    folder: for the outputs, on a disk that task managers and drill share; rows: per partition, 0 for no end; rate: rows
    per second and partition; is_forward: without exchange and totals: no record crosses from one slot to another.
    """

    folder: Path
    partitions: int
    rows: int
    rate: float
    parallelism: int
    checkpoint_interval_ms: int
    is_forward: bool = False

    @property
    def ledger(self) -> Path:
        """Folder of the committed Parquet files."""
        return self.folder / "ledger"

    @property
    def totals(self) -> Path:
        """The SQLite database of the keyed totals."""
        return self.folder / "totals.db"

    def graph(self) -> JobGraph:
        """The graph as submitted."""
        source = GeneratorSource(self.partitions, self.rows, self.rate)
        shape = SqlTransform(
            f"SELECT `partition`, sequence, CAST(`partition` AS BIGINT) * {CHECKSUM_FACTOR} + sequence AS checksum"
            " FROM input"
        )
        functions = (
            Aggregate("rows_seen", AggregateFunction.COUNT, ""),
            Aggregate("total", AggregateFunction.SUM, "sequence"),
            Aggregate("last", AggregateFunction.MAX, "sequence"),
        )
        ledger = FileSink(str(self.ledger), FileFormat.PARQUET)
        totals = SqlSink(sqlite_file.url_of(self.totals), _TABLE, ("partition",))
        vertices = [
            self._vertex("generate", ("rows", source), ("shape", shape)),
            self._vertex("ledger", ("ledger", ledger)),
        ]
        edges = [Edge("generate", "ledger", Partitioning.FORWARD)]
        if not self.is_forward:
            keyed = ("aggregate", KeyedAggregate(("partition",), functions))
            vertices.append(self._vertex("totals", keyed, ("upsert", totals)))
            edges = [Edge("generate", target, Partitioning.HASH, ("partition",)) for target in ("ledger", "totals")]
        return JobGraph(
            name="failover drill",
            vertices=tuple(vertices),
            edges=tuple(edges),
            checkpoints=CheckpointOptions(interval_ms=self.checkpoint_interval_ms),
            restart=RestartStrategy(ExponentialRestart(50, 2000, 2.0, 0.0, 5000)),
        )

    def read_ledger(self, oracle: LedgerOracle) -> int:
        """Passes every committed row to the oracle; returns the number of files. Raises OSError, pa.ArrowInvalid."""
        # staged files are in a folder below, which may disappear meanwhile
        files = sorted(self.ledger.glob("*.parquet"))
        for path in files:
            table = pq.read_table(path, columns=["partition", "sequence", "checksum"], partitioning=None)
            partition, sequence, checksum = (column.to_numpy().astype(np.int64) for column in table.columns)
            is_whole = checksum == partition * CHECKSUM_FACTOR + sequence
            oracle.add(np.where(is_whole, partition, -1), sequence)  # a damaged row was never in the input
        return len(files)

    def read_totals(self) -> dict[int, Total]:
        """The rows of the keyed aggregate's table, by partition. Raises sqlite3.Error."""
        with sqlite_file.opened(self.totals) as database:
            rows = database.execute(f'SELECT "partition", rows_seen, total, last FROM {_TABLE}').fetchall()
        if len({row[0] for row in rows}) < len(rows):
            raise sqlite3.IntegrityError(f"the table {_TABLE} has several rows of one partition")
        return {int(number): Total(int(count), int(total), int(last)) for number, count, total, last in rows}

    def _vertex(self, name: str, *operators: tuple[str, Any]) -> Vertex:
        chain = tuple(Operator(operator, operator, kind) for operator, kind in operators)
        return Vertex(id=name, name=name, parallelism=self.parallelism, operators=chain)
