"""`python -m benchmarks.failover`: from SIGKILL to the first new record, for the leader and for a task manager.

For an adopted attempt (`reattach`) also to the next checkpoint, and what the kill has cost in work: none.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from typing import Any

from lockgate_devtools.cluster.from_settings import tls_options
from lockgate_devtools.drill import DrillOptions, Report, Tally, Target, drill
from lockgate_devtools.drill.by_target import Spread
from lockgate_devtools.drill.model import Mode
from lockgate_proto.messages import LeaderFailover

from benchmarks.common import Measurement, Row, WrongResult, at_least, at_most, parser, run, say

_STEPS = ("detected_ms", "granted_ms", "deployed_ms", "first_record_ms", "first_checkpoint_ms")


def measure(arguments: argparse.Namespace) -> Measurement:
    """Up to four drills, one after the other, each on a fresh cluster."""
    leader = _drill(Target.LEADER, arguments.times, arguments)
    reattach = LeaderFailover.LEADER_FAILOVER_REATTACH
    adopted = _drill(Target.LEADER, arguments.reattach_times, arguments, reattach)
    task_manager = _drill(Target.TASKMANAGER, arguments.taskmanager_times, arguments)
    replica = _drill(Target.TASKMANAGER, arguments.replica_times, arguments, standby_replicas=1)
    rows: list[Row] = []
    values: dict[str, Any] = {"seed": arguments.seed}
    for name, report, median_goal, p99_goal in (
        ("leader", leader, 250, 600),
        ("task manager", task_manager, 400, 1_000),
        ("task manager with a replica", replica, 250, 1_000),
    ):
        if report is None:
            continue
        found = summary(report)
        values["replica" if report is replica else name.replace(" ", "")] = found
        times = found["first_record_ms"]
        rows += [
            at_most(f"{name} killed, first new record, median", times["median"], median_goal, "ms"),
            at_most(f"{name} killed, first new record, p99", times["p99"], p99_goal, "ms"),
            Row(f"  worst of {len(report.kills)}", f"{times['worst']:.4g} ms"),
        ]
        rows += [
            Row(f"  {step.removesuffix('_ms').replace('_', ' ')}, median", f"{found[step]['median']:.4g} ms")
            for step in _STEPS
            if step != "first_record_ms" and found[step]
        ]
    if adopted is not None:
        values["reattach"] = summary(adopted)
        rows += _adopted_rows(adopted)
    return Measurement(tuple(rows), values)


def _adopted_rows(report: Report) -> list[Row]:
    found, count = summary(report), len(report.kills)
    adopted = sum(kill.mode is Mode.REATTACH for kill in report.kills)
    restarted = sum(kill.restarted_subtasks or 0 for kill in report.kills)
    again = [kill.records_read_again for kill in report.kills if kill.records_read_again is not None]
    ratios = [kill.throughput_ratio for kill in report.kills if kill.throughput_ratio is not None]
    rows = [
        Row("leader killed, attempt adopted", f"{adopted} of {count}"),
        at_most("leader killed, subtasks restarted", restarted, 0, ""),
        at_most(f"leader killed, records read again, known of {len(again)}", sum(again), 0, ""),
    ]
    if ratios:
        median = statistics.median(ratios)
        rows.append(at_least("leader killed, throughput in that second, median", median, 0.95, ""))
    steps = (
        ("adopted", "deployed_ms", None),
        ("first new record", "first_record_ms", None),
        ("next checkpoint", "first_checkpoint_ms", 1_000),
    )
    for name, step, goal in steps:
        if not found[step]:
            continue
        median, worst = found[step]["median"], found[step]["worst"]
        label = f"leader killed, {name}, median"
        rows.append(Row(label, f"{median:.4g} ms") if goal is None else at_most(label, median, goal, "ms"))
        rows.append(Row(f"leader killed, {name}, worst of {count}", f"{worst:.4g} ms"))
    return rows


def summary(report: Report) -> dict[str, Any]:
    """Median, p99, worst and every single value of each step; {} for a step that the target does not cause."""
    steps: dict[str, Any] = {}
    for step in _STEPS:
        times = [value for kill in report.kills if (value := getattr(kill, step)) is not None]
        spread = Spread.of(times)
        steps[step] = {}
        if spread is not None:
            median = statistics.median(times)
            steps[step] = {"median": median, "p99": spread.p99, "worst": spread.worst, "all": times}
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


def _drill(
    target: Target,
    times: int,
    arguments: argparse.Namespace,
    failover: LeaderFailover = LeaderFailover.LEADER_FAILOVER_RESTART,
    standby_replicas: int = 0,
) -> Report | None:
    if times == 0:
        return None
    options = DrillOptions(
        kill=target,
        times=times,
        every_s=arguments.every if target is Target.LEADER else arguments.taskmanager_every,
        failover=failover,
        standby_replicas=standby_replicas,
        cluster_options={"zookeepers": arguments.zookeepers, **tls_options(arguments.config)},
    )
    tally = Tally(arguments.seed)
    drill(options, tally, say)
    return exact(tally.report())


def main() -> int:
    """Command line."""
    options = parser("failover", "Kills the leader, then task managers (with spare slots), while a job runs.")
    options.add_argument("--times", type=int, default=20, help="leader kills")
    options.add_argument("--reattach-times", type=int, default=10, help="leader kills under a job that is adopted")
    options.add_argument("--taskmanager-times", type=int, default=10, help="task manager kills, 0 for none")
    options.add_argument("--replica-times", type=int, default=10, help="task manager kills with a standby replica")
    options.add_argument("--every", type=float, default=2.0, help="seconds between a whole cluster and the next kill")
    options.add_argument(
        "--taskmanager-every",
        type=float,
        default=15.0,
        help="the same for task managers: the one that is left has started after the kill before, and its JVM is cold",
    )
    options.add_argument("--zookeepers", type=int, choices=(1, 3), default=1, help="ZooKeeper servers")
    options.add_argument("--config", metavar="FILE", help="settings file, for [tls] and zookeeper.tls")
    options.add_argument("--seed", type=int, default=1, help="of the moments and victims")
    return run(options.parse_args(), measure)


if __name__ == "__main__":
    sys.exit(main())
