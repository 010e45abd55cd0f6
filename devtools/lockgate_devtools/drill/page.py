"""A drill's report as one HTML page that needs no network. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from itertools import pairwise
from statistics import median

from lockgate_devtools.drill.by_target import Consequences, Spread, by_target
from lockgate_devtools.drill.model import Report

WATCHED_S = 6.0
"""Seconds before and after a kill that are drawn."""
_STEP_S = 0.5
_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 640, 200, 60, 24
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 76rem; padding: 0 1rem; color: #222 }
table { border-collapse: collapse } td, th { padding: .2rem .8rem; text-align: right; border-bottom: 1px solid #ddd }
td:first-child, th:first-child { text-align: left } .fail { color: #b00 } svg { width: 100%; height: auto }
.one { fill: none; stroke: #9ab; stroke-width: 1; opacity: .6 } .all { fill: none; stroke: #036; stroke-width: 2.5 }
.axis { stroke: #999 } .kill { stroke: #b00; stroke-dasharray: 4 3 } text { font-size: 11px; fill: #555 }
"""


def page(report: Report) -> str:
    """The page: the verdict, a table by target, and the throughput around the kills of each."""
    found = by_target(report.kills)
    records = report.records
    sentences = (*report.problems, *([f"stopped: {report.stopped}"] if report.stopped else []))
    problems = "".join(f'<p class="fail">{escape(sentence)}</p>' for sentence in sentences)
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Lockgate drill, seed {report.seed}</title>
<style>{_STYLE}</style></head><body>
<h1>Drill: <span class="{report.verdict}">{"FAIL" if report.failed else report.verdict}</span></h1>
<p>Seed {report.seed}: {len(report.kills)} kills; {records.expected:,} records expected, {records.lost:,} lost,
{records.duplicated:,} duplicated; {report.checkpoints_completed:,} checkpoints completed,
{report.checkpoints_aborted:,} aborted.</p>{problems}
{_table(found)}
{"".join(map(_section, found))}
</body></html>
"""


def _table(found: Sequence[Consequences]) -> str:
    head = "".join(
        f"<th>{name}</th>"
        for name in (
            *("target", "kills", "adopted", "in part", "first record p50", "p90", "p99", "worst"),
            *("first checkpoint p50", "p90", "p99", "worst", "subtasks restarted", "records read again"),
        )
    )
    rows = "".join(
        f"<tr><td>{escape(row.target.value)}</td><td>{len(row.kills)}</td><td>{row.adopted}</td><td>{row.in_part}</td>"
        f"{_cells(row.interruption)}{_cells(row.commit)}"
        f"<td>{row.restarted_subtasks:,}</td><td>{row.records_read_again:,}</td></tr>"
        for row in found
    )
    return f"<table><tr>{head}</tr>{rows}</table><p>Times in milliseconds since the kill.</p>"


def _cells(spread: Spread | None) -> str:
    if spread is None:
        return "<td>-</td>" * 4
    return "".join(f"<td>{value:,.0f}</td>" for value in (spread.p50, spread.p90, spread.p99, spread.worst))


def _section(row: Consequences) -> str:
    lines = [rates(kill.progress) for kill in row.kills]
    lines = [line for line in lines if line]
    if not lines:
        return ""
    text = "records read for the first time in a second, around each kill; the dark line is their median"
    return f"<h2>{escape(row.target.value)}</h2><p>{text}</p>{_chart(lines)}"


def rates(progress: Sequence[tuple[float, int]]) -> dict[float, float]:
    """Records a second by the middle of each step, between two samples taken to be even; steps without both are left
    out.

    progress: seconds since the kill, and the records read by then, in order.
    """
    ends = [step * _STEP_S for step in range(round(-WATCHED_S / _STEP_S), round(WATCHED_S / _STEP_S) + 1)]
    read = [_read_by(progress, end) for end in ends]
    pairs = zip(ends, read, read[1:], strict=False)
    return {
        start + _STEP_S / 2: (behind - first) / _STEP_S
        for start, first, behind in pairs
        if first is not None and behind is not None
    }


def _read_by(progress: Sequence[tuple[float, int]], at_s: float) -> float | None:
    for (before_s, before), (after_s, after) in pairwise(progress):
        if before_s <= at_s <= after_s:
            share = (at_s - before_s) / (after_s - before_s) if after_s > before_s else 0.0
            return before + share * (after - before)
    return None


def _chart(lines: Sequence[dict[float, float]]) -> str:
    most = max((rate for line in lines for rate in line.values()), default=0.0) or 1.0

    def x(at_s: float) -> float:
        return _LEFT + (at_s + WATCHED_S) / (2 * WATCHED_S) * (_WIDTH - _LEFT)

    def y(rate: float) -> float:
        return (_HEIGHT - _BOTTOM) * (1 - rate / most) + 4

    def path(line: dict[float, float], name: str) -> str:
        points = " ".join(f"{x(at_s):.1f},{y(rate):.1f}" for at_s, rate in sorted(line.items()))
        return f'<polyline class="{name}" points="{points}"/>'

    moments = sorted({at_s for line in lines for at_s in line})
    middle = {at_s: median(line[at_s] for line in lines if at_s in line) for at_s in moments}
    floor = y(0)
    parts = [
        f'<line class="axis" x1="{_LEFT}" y1="{floor}" x2="{_WIDTH}" y2="{floor}"/>',
        f'<line class="kill" x1="{x(0)}" y1="0" x2="{x(0)}" y2="{floor}"/>',
        f'<text x="0" y="14">{most:,.0f}/s</text><text x="0" y="{floor}">0</text>',
        *(f'<text x="{x(at_s) - 8}" y="{_HEIGHT - 4}">{at_s:+d} s</text>' for at_s in _ticks()),
        *(path(line, "one") for line in lines),
        path(middle, "all"),
    ]
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">{"".join(parts)}</svg>'


def _ticks() -> Iterator[int]:
    yield from range(-int(WATCHED_S) + 1, int(WATCHED_S), 2)
