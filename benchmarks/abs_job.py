"""The job of benchmarks.abs: the topology of the paper on Asynchronous Barrier Snapshotting, and one run of it."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from lockgate_proto.messages import JobGraph

from benchmarks.common import WrongResult
from benchmarks.job_run import NEVER_MS, JobRun, run_through
from lockgate import Job, count, sum_
from lockgate.client import Client

KEYS = 10_000

Mode = Literal["exactly_once", "stop_the_world"]
MODES: tuple[Mode, ...] = ("exactly_once", "stop_the_world")


@dataclass(frozen=True, slots=True)
class Setting:
    """How checkpoints are taken; interval_ms is NEVER_MS for none."""

    mode: Mode
    interval_ms: int

    @property
    def key(self) -> str:
        """For job keys and the JSON file."""
        return "none" if self.interval_ms == NEVER_MS else f"{self.mode}-{self.interval_ms}"

    @property
    def text(self) -> str:
        """For the table."""
        return f"{self.mode.replace('_', ' ')}, every {self.interval_ms / 1000:g} s"


NONE = Setting("exactly_once", NEVER_MS)


def graph(setting: Setting, database: Path, rows: int, subtasks: int) -> JobGraph:
    """generate ~> map ~> filter ~> aggregate (its partials before the shuffle), upsert; each ~> a shuffle by key.

    rows: of each source; subtasks: of each vertex.
    """
    job = Job(
        setting.key,
        parallelism=subtasks,
        checkpoint_mode=setting.mode,
        checkpoint_interval_ms=setting.interval_ms,
    )
    made = job.generate(rows, partitions=subtasks)
    keyed = made.key_by("sequence").select("partition", "sequence", f"pmod(hash(sequence), {KEYS}) AS key")
    kept = keyed.key_by("partition", "sequence").filter("sequence >= 0")
    kept.key_by("key").aggregate(n=count(), total=sum_("sequence")).write_sql(f"sqlite:///{database}", "sums")
    return job.graph()


def check(database: Path, rows: int, subtasks: int) -> None:
    """Raises WrongResult unless every row was counted once."""
    with sqlite3.connect(database) as connection:
        found = connection.execute("SELECT count(*), sum(n), sum(total) FROM sums").fetchone()
    wanted = (subtasks * rows, subtasks * rows * (rows - 1) // 2)
    if found[1:] != wanted:
        raise WrongResult(f"{database.stem}: {found[1:]} rows and sum, not {wanted}")


def once(client: Client, setting: Setting, key: str, folder: Path, rows: int, subtasks: int = 2) -> JobRun:
    """One run, checked. Raises WrongResult, and UserError when it does not run through."""
    database = folder / f"{key}.db"
    done = run_through(client, key, graph(setting, database, rows, subtasks))
    check(database, rows, subtasks)
    return done
