"""`python -m benchmarks.unaligned`: how long checkpoints take in an overloaded pipeline, aligned and unaligned."""

from __future__ import annotations

import argparse
import statistics
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.dataset as pads
from lockgate_devtools.cluster import LocalCluster
from lockgate_devtools.cluster.work_folder import WorkFolder
from lockgate_proto.messages import CheckpointKind, CompletedCheckpoint, JobGraph, JobState

from benchmarks.common import Measurement, Row, WrongResult, at_most, parser, run, say
from lockgate import Job
from lockgate.client import TERMINAL, Client
from lockgate.errors import UserError

PARTITIONS = 2
PAD_BYTES = 1000
GOAL = 0.2
_LOOK_EVERY_S = 0.1
_LIMIT_S = 240.0

Mode = Literal["exactly_once", "unaligned"]


def graph(mode: Mode, folder: Path, rows: int | None, rate: float, row_us: float, **options: Any) -> JobGraph:
    """2 sources that make `rate` rows a second each, of 1 KB, and 2 subtasks that need `row_us` for each row.

    rows: of each source, None for no end.
    """

    def slow(df: Any) -> Any:
        def wait(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                time.sleep(batch.num_rows * row_us / 1e6)
                yield batch.select(["partition", "sequence"])

        return df.mapInArrow(wait, "partition INT, sequence BIGINT")

    given = {"parallelism": 2, "checkpoint_interval_ms": 1000, "retained_checkpoints": 500, **options}
    job = Job("overloaded", checkpoint_mode=mode, **given)
    made = job.generate(rows, rate=rate, partitions=PARTITIONS)
    padded = made.sql(f"SELECT partition, sequence, repeat('x', {PAD_BYTES}) AS pad FROM input")
    padded.rebalance().transform(slow).write_parquet(folder)
    return job.graph()


def wrong_rows(folder: Path, rows: Sequence[int]) -> tuple[int, int]:
    """How many rows are missing from the committed files of a finished job, and how many are duplicates.

    rows: of each partition.
    """
    table = pads.dataset(folder, format="parquet").to_table(["partition", "sequence"])
    found = Counter(zip(table["partition"].to_pylist(), table["sequence"].to_pylist(), strict=True))
    wanted = Counter((partition, number) for partition, end in enumerate(rows) for number in range(end))
    return (wanted - found).total(), (found - wanted).total()


def watch(client: Client, key: str) -> list[CompletedCheckpoint]:
    """Follows a job to its end; its checkpoints but for the terminal one, oldest first. Raises UserError."""
    seen: dict[int, CompletedCheckpoint] = {}
    deadline = time.monotonic() + _LIMIT_S
    while (status := client.job(key)).state not in TERMINAL:
        if time.monotonic() > deadline:
            raise UserError(f"the job {key} is {status.state.name} after {_LIMIT_S:g} s: {status.message}")
        seen |= {
            checkpoint.checkpoint_id: checkpoint
            for checkpoint in client.checkpoints(key)
            if checkpoint.kind is CheckpointKind.CHECKPOINT
        }
        time.sleep(_LOOK_EVERY_S)
    if status.state is not JobState.FINISHED:
        raise UserError(f"the job {key} has ended as {status.state.name}: {status.error}")
    last = status.last_checkpoint.checkpoint_id if status.last_checkpoint is not None else 0
    return [checkpoint for number, checkpoint in sorted(seen.items()) if number != last]


def measure(arguments: argparse.Namespace) -> Measurement:
    """The same job in both modes on one warm cluster."""
    found: dict[Mode, list[CompletedCheckpoint]] = {}
    modes: tuple[Mode, Mode] = ("exactly_once", "unaligned")
    with WorkFolder("lockgate-unaligned-", say) as kept:
        say("starting a cluster: 2 task managers with 1 slot each ...")
        with (
            LocalCluster(kept.path / "cluster", slots=1) as cluster,
            Client(cluster.coordinators, cluster.zookeeper, credentials=cluster.credentials()) as client,
        ):
            for mode in modes:
                folder = kept.path / mode
                client.submit(mode, graph(mode, folder, arguments.rows, arguments.rate, arguments.row_us))
                found[mode] = _under_load(watch(client, mode), arguments.from_s, arguments.to_s)
                missing, extra = wrong_rows(folder, [arguments.rows] * PARTITIONS)
                if missing or extra:
                    raise WrongResult(f"{mode}: {missing} rows are missing, {extra} are duplicates")
                say(f"  {mode}: {', '.join(f'{checkpoint.duration_ms} ms' for checkpoint in found[mode])}")
    return _measurement(found["exactly_once"], found["unaligned"])


def _under_load(checkpoints: list[CompletedCheckpoint], from_s: float, to_s: float) -> list[CompletedCheckpoint]:
    """Those triggered while every queue is full: not at the beginning, and not when the sources are done."""
    first_ms = checkpoints[0].triggered_unix_ms if checkpoints else 0
    chosen = [
        checkpoint
        for checkpoint in checkpoints
        if from_s * 1000 <= checkpoint.triggered_unix_ms - first_ms <= to_s * 1000
    ]
    if not chosen:
        raise UserError("no checkpoint completed while the pipeline was overloaded; give it more --rows")
    return chosen


def _measurement(aligned: list[CompletedCheckpoint], unaligned: list[CompletedCheckpoint]) -> Measurement:
    aligned_ms, unaligned_ms = (statistics.median(mode.duration_ms for mode in found) for found in (aligned, unaligned))
    in_flight = statistics.median(checkpoint.channel_state_bytes for checkpoint in unaligned)
    return Measurement(
        (
            Row("checkpoint, aligned", f"{aligned_ms:,.0f} ms"),
            Row("checkpoint, unaligned", f"{unaligned_ms:,.0f} ms"),
            at_most("unaligned against aligned", unaligned_ms / aligned_ms, GOAL, ""),
            Row("in flight, in an unaligned checkpoint", f"{in_flight / 2**20:,.1f} MiB"),
        ),
        {
            "aligned_ms": [checkpoint.duration_ms for checkpoint in aligned],
            "unaligned_ms": [checkpoint.duration_ms for checkpoint in unaligned],
            "ratio": unaligned_ms / aligned_ms,
            "channel_state_bytes": [checkpoint.channel_state_bytes for checkpoint in unaligned],
        },
    )


def main() -> int:
    """Command line."""
    options = parser("unaligned", "Checkpoint time of one overloaded pipeline, aligned and unaligned.")
    options.add_argument("--rows", type=int, default=120_000, help="of each of the 2 sources")
    options.add_argument("--rate", type=float, default=15_000, help="rows a second that each source would make")
    options.add_argument("--row-us", type=float, default=250, help="microseconds that a row takes")
    options.add_argument("--from-s", type=float, default=4, help="checkpoints count from this long after the first one")
    options.add_argument("--to-s", type=float, default=14, help="and up to this long")
    return run(options.parse_args(), measure)


if __name__ == "__main__":
    raise SystemExit(main())
