"""The job of benchmarks.abs with more and more subtasks of each vertex, with checkpoints and without."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.abs_job import NONE, Setting, once
from benchmarks.common import Row
from benchmarks.job_run import JobRun
from lockgate.client import Client

Runs = Mapping[int, Mapping[Setting, Sequence[JobRun]]]
"""By the number of subtasks. Runs of both settings are in pairs."""


def scaled(client: Client, folder: Path, counts: Sequence[int], rows: int, rounds: int, interval_ms: int) -> Runs:
    """Rounds of all numbers of subtasks; in every other one the runs of a pair change places. rows: of each source."""
    settings = (NONE, Setting("exactly_once", interval_ms))
    runs: dict[int, dict[Setting, list[JobRun]]] = {subtasks: {NONE: [], settings[1]: []} for subtasks in counts}
    for number in range(rounds):
        for subtasks in counts:
            for setting in settings[:: -1 if number % 2 else 1]:
                key = f"scale-{subtasks}-{setting.key}-{number}"
                runs[subtasks][setting].append(once(client, setting, key, folder, rows, subtasks))
    return runs


def scale_values(runs: Runs, rows: int, interval_ms: int) -> dict[str, Any]:
    """For the JSON file. runtime: with checkpoints against without, the median over the pairs."""
    with_snapshots = Setting("exactly_once", interval_ms)
    pairs = {
        subtasks: [(plain.seconds, run.seconds) for plain, run in zip(own[NONE], own[with_snapshots], strict=True)]
        for subtasks, own in runs.items()
    }
    return {
        "interval_ms": interval_ms,
        "rows_of_each_source": rows,
        "seconds": {
            str(subtasks): {setting.key: [run.seconds for run in some] for setting, some in own.items()}
            for subtasks, own in runs.items()
        },
        "checkpoints": {
            str(subtasks): [run.checkpoints - 1 for run in own[with_snapshots]] for subtasks, own in runs.items()
        },
        "runtime": {
            str(subtasks): statistics.median(own / plain for plain, own in some) for subtasks, some in pairs.items()
        },
        "none_s": {str(subtasks): statistics.median(plain for plain, _ in some) for subtasks, some in pairs.items()},
        "snapshots_s": {str(subtasks): statistics.median(own for _, own in some) for subtasks, some in pairs.items()},
    }


def scale_rows(values: Mapping[str, Any]) -> list[Row]:
    """A line for each number of subtasks. values: see scale_values."""
    every = f"every {values['interval_ms'] / 1000:g} s"
    return [
        Row(
            f"{subtasks} subtasks of each vertex: without checkpoints, {every}",
            f"{plain_s:.2f} s, {values['snapshots_s'][subtasks]:.2f} s: {values['runtime'][subtasks]:.3f} times",
        )
        for subtasks, plain_s in values["none_s"].items()
    ]
