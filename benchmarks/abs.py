"""`python -m benchmarks.abs`: what checkpoints cost by their interval, and what they would cost with the world stopped.

The evaluation of the paper on Asynchronous Barrier Snapshotting (arXiv 1506.08603, section 6): six operators, three
of the ways between them a shuffle by key, state by key; throughput against that of the same job without snapshots.
"""

from __future__ import annotations

import argparse
import sqlite3
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from lockgate_devtools.cluster import LocalCluster
from lockgate_devtools.cluster.work_folder import WorkFolder
from lockgate_proto.messages import JobGraph

from benchmarks.common import Measurement, Row, WrongResult, at_most, parser, run, say
from benchmarks.job_run import NEVER_MS, JobRun, run_through
from lockgate import Job, count, sum_
from lockgate.client import Client
from lockgate.errors import UserError

PARTITIONS = 2
KEYS = 10_000
GOAL = 0.03
INTERVALS_MS = (500, 1000, 2000, 5000)

Mode = Literal["exactly_once", "stop_the_world"]


@dataclass(frozen=True, slots=True)
class Setting:
    """How checkpoints are taken; interval_ms is NEVER_MS for none."""

    mode: Mode
    interval_ms: int

    @property
    def key(self) -> str:
        """For job keys and the JSON file."""
        return "none" if self.interval_ms == NEVER_MS else f"{self.mode}-{self.interval_ms}"


NONE = Setting("exactly_once", NEVER_MS)
MODES: tuple[Mode, ...] = ("exactly_once", "stop_the_world")
SETTINGS = (NONE, *(Setting(mode, interval) for mode in MODES for interval in INTERVALS_MS))


def graph(setting: Setting, database: Path, rows: int) -> JobGraph:
    """generate ~> map ~> filter ~> aggregate (its partials before the shuffle), upsert; each ~> a shuffle by key."""
    job = Job(setting.key, parallelism=2, checkpoint_mode=setting.mode, checkpoint_interval_ms=setting.interval_ms)
    made = job.generate(rows, partitions=PARTITIONS)
    keyed = made.key_by("sequence").select("partition", "sequence", f"pmod(hash(sequence), {KEYS}) AS key")
    kept = keyed.key_by("partition", "sequence").filter("sequence >= 0")
    kept.key_by("key").aggregate(n=count(), total=sum_("sequence")).write_sql(f"sqlite:///{database}", "sums")
    return job.graph()


def check(database: Path, rows: int) -> None:
    """Raises WrongResult unless every row was counted once."""
    with sqlite3.connect(database) as connection:
        found = connection.execute("SELECT count(*), sum(n), sum(total) FROM sums").fetchone()
    wanted = (PARTITIONS * rows, PARTITIONS * rows * (rows - 1) // 2)
    if found[1:] != wanted:
        raise WrongResult(f"{database.stem}: {found[1:]} rows and sum, not {wanted}")


def measure(arguments: argparse.Namespace) -> Measurement:
    """Rounds of all settings on one warm cluster; each round begins with another one."""
    settings = [
        setting for setting in SETTINGS if setting is NONE or not arguments.only or setting.key in arguments.only
    ]
    runs: dict[Setting, list[JobRun]] = {setting: [] for setting in settings}
    with WorkFolder("lockgate-abs-", say) as kept:
        say("starting a cluster: 2 task managers with 1 slot each ...")
        with (
            LocalCluster(kept.path / "cluster", slots=1) as cluster,
            Client(cluster.coordinators, cluster.zookeeper, credentials=cluster.credentials()) as client,
        ):
            for number in range(arguments.warm_up):
                _once(client, NONE, f"warm-{number}", kept.path, arguments.rows)
            for number in range(arguments.rounds):
                shift = number * (len(settings) // 2) % len(settings)  # a JVM gets faster from run to run
                for setting in (*settings[shift:], *settings[:shift]):
                    key = f"{setting.key}-{number}"
                    runs[setting].append(_once(client, setting, key, kept.path, arguments.rows))
    if arguments.plot:
        plot(costs(runs), Path(arguments.plot))
    return _measurement(runs, arguments.rows)


def _once(client: Client, setting: Setting, key: str, folder: Path, rows: int) -> JobRun:
    database = folder / f"{key}.db"
    done = run_through(client, key, graph(setting, database, rows))
    check(database, rows)
    return done


def costs(runs: Mapping[Setting, Sequence[JobRun]]) -> dict[Setting, float]:
    """The share of throughput that each setting takes: median over the rounds, each against its own run without."""
    return {
        setting: 1
        - statistics.median(plain.seconds / item.seconds for plain, item in zip(runs[NONE], own, strict=True))
        for setting, own in runs.items()
        if setting is not NONE
    }


def plot(found: Mapping[Setting, float], file: Path) -> None:
    """A picture of the costs over the interval, one line for each mode. Raises UserError without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UserError("--plot needs matplotlib: pip install matplotlib") from error
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for mode in MODES:
        points = [(key.interval_ms / 1000, 100 * cost) for key, cost in found.items() if key.mode == mode]
        axes.plot(*zip(*points, strict=True), marker="o", label=mode.replace("_", " "))
    axes.axhline(100 * GOAL, linestyle=":", color="grey", label="goal at 1 s")
    axes.set(xlabel="checkpoint interval (s)", ylabel="throughput given up (%)", xscale="log")
    axes.set_xticks([interval / 1000 for interval in INTERVALS_MS], [f"{number / 1000:g}" for number in INTERVALS_MS])
    axes.minorticks_off()
    axes.legend()
    figure.savefig(file, dpi=120)


def _measurement(runs: Mapping[Setting, Sequence[JobRun]], rows: int) -> Measurement:
    found = costs(runs)
    plain = PARTITIONS * rows / statistics.median(run.seconds for run in runs[NONE])
    lines = [Row("without checkpoints", f"{plain:,.0f} rows/s")]
    for setting, cost in found.items():
        taken = statistics.median(run.checkpoints - 1 for run in runs[setting])  # the last one ends every job
        name = f"{setting.mode.replace('_', ' ')}, every {setting.interval_ms / 1000:g} s ({taken:g} taken)"
        is_goal = setting == Setting("exactly_once", 1000)
        lines.append(at_most(name, 100 * cost, 100 * GOAL, "%") if is_goal else Row(name, f"{100 * cost:.3g} %"))
    return Measurement(
        tuple(lines),
        {
            "rows": PARTITIONS * rows,
            "rows_per_s_without_checkpoints": plain,
            "cost": {setting.key: cost for setting, cost in found.items()},
            "seconds": {setting.key: [item.seconds for item in own] for setting, own in runs.items()},
            "checkpoints": {setting.key: [item.checkpoints - 1 for item in own] for setting, own in runs.items()},
        },
    )


def main() -> int:
    """Command line."""
    options = parser("abs", "The cost of checkpoints by their interval, against none, and with the world stopped.")
    options.add_argument("--rows", type=int, default=20_000_000, help="of each of the 2 sources")
    options.add_argument("--rounds", type=int, default=3, help="measured runs of each setting; the median counts")
    options.add_argument("--warm-up", type=int, default=3, help="runs before them")
    options.add_argument(
        "--only",
        nargs="+",
        metavar="SETTING",
        choices=[setting.key for setting in SETTINGS],
        help="against none; see --json",
    )
    options.add_argument("--plot", metavar="FILE", default="", help="a picture, too: .png or .svg; needs matplotlib")
    return run(options.parse_args(), measure)


if __name__ == "__main__":
    raise SystemExit(main())
