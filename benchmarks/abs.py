"""`python -m benchmarks.abs`: what checkpoints cost by their interval, and what they would cost with the world stopped.

The evaluation of the paper on Asynchronous Barrier Snapshotting (arXiv 1506.08603, section 6): six operators, three
of the ways between them a shuffle by key, state by key; throughput against that of the same job without snapshots.
`--scale` runs it with more subtasks, `--simulate` puts measured costs into a model of more nodes.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lockgate_devtools.cluster import LocalCluster
from lockgate_devtools.cluster.work_folder import WorkFolder

from benchmarks.abs_costs import LEADER_SUBTASK_MS, Observed, checkpoint_figures, costs_of, observed
from benchmarks.abs_job import MODES, NONE, Setting, graph, once
from benchmarks.abs_plot import plot
from benchmarks.abs_projection import PAPERS_INTERVAL_MS, inputs, leader_subtask_ms, projected, projection_rows
from benchmarks.abs_scale import scale_rows, scale_values, scaled
from benchmarks.common import Measurement, Row, at_most, parser, run, say
from benchmarks.job_run import JobRun
from lockgate.client import Client

SUBTASKS = 2
GOAL = 0.03
INTERVALS_MS = (500, 1000, 2000, 5000)
SETTINGS = (NONE, *(Setting(mode, interval) for mode in MODES for interval in INTERVALS_MS))


def measure(arguments: argparse.Namespace) -> Measurement:
    """All parts that are asked for, on one warm cluster."""
    subtask_ms = LEADER_SUBTASK_MS
    if arguments.control_plane:
        subtask_ms = leader_subtask_ms(json.loads(Path(arguments.control_plane).read_text(encoding="utf-8")))
    slots = -(-max((SUBTASKS, *arguments.scale)) // 2)
    with WorkFolder("lockgate-abs-", say) as kept:
        say(f"starting a cluster: 2 task managers with {slots} slots each ...")
        with (
            LocalCluster(kept.path / "cluster", slots=slots) as cluster,
            Client(cluster.coordinators, cluster.zookeeper, credentials=cluster.credentials()) as client,
        ):
            for number in range(arguments.warm_up):
                once(client, NONE, f"warm-{number}", kept.path, arguments.rows)
            seen = _seen(client, kept.path, arguments.rows) if arguments.simulate else None  # it may fail: first
            runs = _intervals(client, kept.path, arguments)
            values = interval_values(runs, arguments.rows)
            if arguments.scale:
                rows, every_ms = arguments.scale_rows, arguments.scale_interval_ms
                found = scaled(client, kept.path, arguments.scale, rows, arguments.rounds, every_ms)
                values["scale"] = scale_values(found, rows, every_ms)
    lines = _interval_rows(runs, values)
    lines += scale_rows(values["scale"]) if arguments.scale else []
    if seen is not None:
        values["model"] = _model(*seen, values, subtask_ms)
        values["simulated"] = projected(values, arguments.simulate, PAPERS_INTERVAL_MS)
        lines += projection_rows(values)
    if arguments.plot:
        plot(values, Path(arguments.plot))
    return Measurement(tuple(lines), values)


def _intervals(client: Client, folder: Path, arguments: argparse.Namespace) -> dict[Setting, list[JobRun]]:
    """Rounds of all settings; each round begins with another one."""
    settings = [
        setting for setting in SETTINGS if setting is NONE or not arguments.only or setting.key in arguments.only
    ]
    runs: dict[Setting, list[JobRun]] = {setting: [] for setting in settings}
    for number in range(arguments.rounds):
        shift = number * (len(settings) // 2) % len(settings)  # a JVM gets faster from run to run
        for setting in (*settings[shift:], *settings[:shift]):
            runs[setting].append(once(client, setting, f"{setting.key}-{number}", folder, arguments.rows))
    return runs


def _seen(client: Client, folder: Path, rows: int) -> tuple[Observed, float]:
    """A run with a checkpoint each second, and the seconds of a job with one record for each source."""
    found = observed(client, "observed", graph(Setting("exactly_once", 1000), folder / "observed.db", rows, SUBTASKS))
    return found, once(client, NONE, "empty", folder, 1).seconds


def _model(found: Observed, empty_s: float, values: Mapping[str, Any], subtask_ms: float) -> dict[str, Any]:
    """What the model needs. found, empty_s: as from `_seen`."""
    node_s = max(0.0, statistics.median(values["seconds"][NONE.key]) - empty_s)
    vertices = [vertex.id for vertex in graph(NONE, Path("sums.db"), 1, SUBTASKS).vertices]
    parts = costs_of(found, vertices, node_s, values["rows_of_each_source"], subtask_ms)
    return inputs(parts, empty_s, checkpoint_figures(found))


def costs(runs: Mapping[Setting, Sequence[JobRun]]) -> dict[Setting, float]:
    """The share of throughput that each setting takes: median over the rounds, each against its own run without."""
    return {
        setting: 1
        - statistics.median(plain.seconds / item.seconds for plain, item in zip(runs[NONE], own, strict=True))
        for setting, own in runs.items()
        if setting is not NONE
    }


def interval_values(runs: Mapping[Setting, Sequence[JobRun]], rows: int) -> dict[str, Any]:
    """For the JSON file. Rates of settings are those without checkpoints, less what the setting costs."""
    plain = SUBTASKS * rows / statistics.median(run.seconds for run in runs[NONE])
    found = costs(runs)
    rates = {NONE: plain, **{setting: plain * (1 - cost) for setting, cost in found.items()}}
    return {
        "rows_of_each_source": rows,
        "rows_per_s": {setting.key: rate for setting, rate in rates.items()},
        "cost": {setting.key: cost for setting, cost in found.items()},
        "seconds": {setting.key: [item.seconds for item in own] for setting, own in runs.items()},
        "checkpoints": {setting.key: [item.checkpoints - 1 for item in own] for setting, own in runs.items()},
    }


def _interval_rows(runs: Mapping[Setting, Sequence[JobRun]], values: Mapping[str, Any]) -> list[Row]:
    lines = [Row("without checkpoints", f"{values['rows_per_s'][NONE.key]:,.0f} rows/s")]
    for setting, cost in costs(runs).items():
        taken = statistics.median(values["checkpoints"][setting.key])  # without the last one, which ends every job
        name = f"{setting.text} ({taken:g} taken): throughput given up"
        lines.append(Row(f"{setting.text}", f"{values['rows_per_s'][setting.key]:,.0f} rows/s"))
        is_goal = setting == Setting("exactly_once", 1000)
        lines.append(at_most(name, 100 * cost, 100 * GOAL, "%") if is_goal else Row(name, f"{100 * cost:.3g} %"))
    return lines


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
    options.add_argument("--scale", type=int, nargs="+", default=[], metavar="N", help="subtasks of each vertex, too")
    options.add_argument("--scale-rows", type=int, default=10_000_000, help="of each source with --scale")
    options.add_argument("--scale-interval-ms", type=int, default=1_000, help="of its checkpoints")
    options.add_argument("--simulate", type=int, nargs="+", default=[], metavar="NODES", help="in a model, too")
    options.add_argument(
        "--control-plane", metavar="FILE", default="", help="JSON file of control_plane, for the model"
    )
    options.add_argument("--plot", metavar="FILE", default="", help="a picture, too: .png or .svg; needs matplotlib")
    arguments = options.parse_args()
    if min((1, *arguments.scale, *arguments.simulate)) < 1:
        options.error("--scale and --simulate take numbers from 1 on")
    return run(arguments, measure)


if __name__ == "__main__":
    raise SystemExit(main())
