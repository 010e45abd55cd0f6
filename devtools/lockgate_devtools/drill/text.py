"""A drill's report as text. Pure."""

from __future__ import annotations

import statistics

from lockgate_devtools.drill.by_target import Consequences, by_target
from lockgate_devtools.drill.model import Kill, Mode, Report

_STEPS = (
    ("detected", "detected_ms"),
    ("granted", "granted_ms"),
    ("deployed", "deployed_ms"),
    ("first record", "first_record_ms"),
    ("first checkpoint", "first_checkpoint_ms"),
)


def describe_kill(kill: Kill) -> str:
    """One line: the consequences, in ms since the kill."""
    parts = [f"{name} {value:.0f} ms" for name, field in _STEPS if (value := getattr(kill, field)) is not None]
    if kill.mode is Mode.REATTACH:
        parts.append("nothing was restarted")
    if kill.restarted_subtasks:
        others = " and the others ran on" if kill.mode is not None and kill.mode.is_in_part else ""
        parts.append(f"{kill.restarted_subtasks} subtasks restarted{others}")
    if kill.records_read_again:
        parts.append(f"{kill.records_read_again} records read again")
    if kill.throughput_ratio is not None:
        parts.append(f"throughput in that second {kill.throughput_ratio:.0%}")
    return ", ".join(parts) or "nothing followed"


def render(report: Report) -> str:
    """A table of the kills, medians, records, and the verdict."""
    header = f"{'kill':>4}  {'target':<28}{'pid':>8}" + "".join(f"{name:>18}" for name, _ in _STEPS)
    lines = ["", "milliseconds since each kill:", header]
    for number, kill in enumerate(report.kills, 1):
        lines.append(f"{number:>4}  {kill.target.value:<28}{kill.pid:>8}" + _cells(kill))
    if adopted := sum(kill.mode is Mode.REATTACH for kill in report.kills):
        lines.append(f"after {adopted} of {len(report.kills)} kills the new leader adopted what ran: nothing restarted")
    if in_part := sum(kill.mode is not None and kill.mode.is_in_part for kill in report.kills):
        lines.append(f"after {in_part} of {len(report.kills)} kills only a part of the job restarted")
    if len({kill.target for kill in report.kills}) > 1:
        lines += _by_target(report)
    elif len(report.kills) > 1:
        lines += [_summary(report, "median", statistics.median), _summary(report, "worst", max)]
    records = report.records
    lines += [
        "",
        f"records:     {records.expected} expected, {records.lost} lost, {records.duplicated} duplicated",
        f"checkpoints: {report.checkpoints_completed} completed, {report.checkpoints_aborted} aborted",
        *(f"problem:     {problem}" for problem in report.problems),
        *([f"stopped:     {report.stopped}"] if report.stopped else []),
        f"seed:        {report.seed}",
        f"verdict:     {'FAIL' if report.failed else report.verdict}",
    ]
    return "\n".join(lines)


def _by_target(report: Report) -> list[str]:
    """To the first record, and to the first checkpoint: p50, p90, p99 and the worst."""
    head = f"{'target':<28}{'kills':>6}{'adopted':>9}{'in part':>9}"
    head += f"{'first record p50/p90/p99/worst':>40}{'first checkpoint':>32}"
    return ["", head, *(_row(row) for row in by_target(report.kills))]


def _row(row: Consequences) -> str:
    first, commit = (
        f"{spread.p50:.0f} / {spread.p90:.0f} / {spread.p99:.0f} / {spread.worst:.0f}" if spread else "-"
        for spread in (row.interruption, row.commit)
    )
    return f"{row.target.value:<28}{len(row.kills):>6}{row.adopted:>9}{row.in_part:>9}{first:>40}{commit:>32}"


def _cells(kill: Kill) -> str:
    return "".join(_cell(getattr(kill, field)) for _, field in _STEPS)


def _cell(value: float | None) -> str:
    return f"{'-':>18}" if value is None else f"{value:>18.1f}"


def _summary(report: Report, name: str, combine: object) -> str:
    assert callable(combine)
    columns = [[value for kill in report.kills if (value := getattr(kill, field)) is not None] for _, field in _STEPS]
    return f"{'':>4}  {name:<28}{'':>8}" + "".join(_cell(combine(column) if column else None) for column in columns)
