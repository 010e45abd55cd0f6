"""`python -m benchmarks.failover`: from SIGKILL to the first new record, for the leader and for a task manager."""

from __future__ import annotations

import argparse
import statistics
import sys
from typing import Any

from lockgate_devtools.cluster.from_settings import tls_options
from lockgate_devtools.drill import DrillOptions, Report, Target, drill

from benchmarks.common import Measurement, Row, WrongResult, at_most, parser, run, say

_STEPS = ("detected_ms", "granted_ms", "deployed_ms", "first_record_ms", "first_checkpoint_ms")


def measure(arguments: argparse.Namespace) -> Measurement:
    """Two drills, one after the other, each on a fresh cluster."""
    leader = _drill(Target.LEADER, arguments.times, arguments)
    task_manager = _drill(Target.TASKMANAGER, arguments.taskmanager_times, arguments)
    rows: list[Row] = []
    values: dict[str, Any] = {"seed": arguments.seed}
    for name, report, median_goal, worst_goal in (
        ("leader", leader, 500, 1000),
        ("task manager", task_manager, 1000, 1000),
    ):
        if report is None:
            continue
        found = summary(report)
        values[name.replace(" ", "")] = found
        times = found["first_record_ms"]
        rows.append(at_most(f"{name} killed, first new record, median", times["median"], median_goal, "ms"))
        rows.append(
            at_most(f"{name} killed, first new record, worst of {len(report.kills)}", times["worst"], worst_goal, "ms")
        )
        rows += [
            Row(f"  {step.removesuffix('_ms').replace('_', ' ')}, median", f"{found[step]['median']:.4g} ms")
            for step in _STEPS
            if step != "first_record_ms" and found[step]
        ]
    return Measurement(tuple(rows), values)


def summary(report: Report) -> dict[str, Any]:
    """Median, worst and every single value of each step; {} for a step that the target does not cause."""
    steps: dict[str, Any] = {}
    for step in _STEPS:
        times = [value for kill in report.kills if (value := getattr(kill, step)) is not None]
        steps[step] = {"median": statistics.median(times), "worst": max(times), "all": times} if times else {}
    return {**steps, "records": report.to_json()["records"], "kills": len(report.kills)}


def exact(report: Report) -> Report:
    """The report, of a drill that has lost and duplicated nothing. Raises WrongResult."""
    if not report.passed:
        records = report.records
        raise WrongResult(
            f"{records.lost} of {records.expected} records lost, {records.duplicated} duplicated; "
            + "; ".join(report.problems)
        )
    return report


def _drill(target: Target, times: int, arguments: argparse.Namespace) -> Report | None:
    if times == 0:
        return None
    options = DrillOptions(
        kill=target,
        times=times,
        every_s=arguments.every,
        seed=arguments.seed,
        cluster_options={"zookeepers": arguments.zookeepers, **tls_options(arguments.config)},
    )
    return exact(drill(options, say))


def main() -> int:
    """Command line."""
    options = parser("failover", "Kills the leader, then task managers (with spare slots), while a job runs.")
    options.add_argument("--times", type=int, default=20, help="leader kills")
    options.add_argument("--taskmanager-times", type=int, default=10, help="task manager kills, 0 for none")
    options.add_argument("--every", type=float, default=2.0, help="seconds between a whole cluster and the next kill")
    options.add_argument("--zookeepers", type=int, choices=(1, 3), default=1, help="ZooKeeper servers")
    options.add_argument("--config", metavar="FILE", help="settings file, for [tls] and zookeeper.tls")
    options.add_argument("--seed", type=int, default=1, help="of the moments and victims")
    return run(options.parse_args(), measure)


if __name__ == "__main__":
    sys.exit(main())
