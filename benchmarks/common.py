"""Command line, table and JSON file that all benchmarks share."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from lockgate_devtools.cluster.foreground import Stopped, stopped_by_signals

from lockgate.errors import UserError

TICKS = os.sysconf("SC_CLK_TCK")
"""Of processor time, in a second."""


class WrongResult(Exception):
    """The system gave a wrong answer: no measurement counts. `str()` says which."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table. `reached`: None where there is no goal."""

    name: str
    measured: str
    goal: str = ""
    reached: bool | None = None


@dataclass(frozen=True, slots=True)
class Measurement:
    """What a benchmark found. `values` is the JSON file's content."""

    rows: tuple[Row, ...]
    values: Mapping[str, Any]


def at_most(name: str, value: float, goal: float, unit: str) -> Row:
    """A row whose value should be `goal` or less."""
    return Row(name, f"{value:,.4g} {unit}".strip(), f"<= {goal:,g} {unit}".strip(), value <= goal)


def at_least(name: str, value: float, goal: float, unit: str) -> Row:
    """A row whose value should be `goal` or more."""
    text = f"{value:,.0f}" if value >= 1000 else f"{value:.3f}"
    return Row(name, f"{text} {unit}".strip(), f">= {goal:,g} {unit}".strip(), value >= goal)


def table(rows: Sequence[Row]) -> str:
    """The rows as aligned text."""
    cells = [("", "measured", "goal", "")]
    cells += [
        (row.name, row.measured, row.goal, {True: "reached", False: "MISSED", None: ""}[row.reached]) for row in rows
    ]
    widths = [max(len(line[column]) for line in cells) for column in range(4)]
    return "\n".join(
        f"{name:<{widths[0]}}  {measured:>{widths[1]}}  {goal:>{widths[2]}}  {note}".rstrip()
        for name, measured, goal, note in cells
    )


def parser(name: str, description: str) -> argparse.ArgumentParser:
    """A command line with `--json FILE`."""
    made = argparse.ArgumentParser(
        prog=f"python -m benchmarks.{name}",
        description=description,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    made.add_argument("--json", metavar="FILE", default="", help="write the result here, too")
    return made


def run(arguments: argparse.Namespace, measure: Callable[[argparse.Namespace], Measurement]) -> int:
    """Measures, prints, writes. Returns 0 whether the goals are reached or not, 1 when a result is wrong, 2 when the
    benchmark could not be carried out."""
    try:
        with stopped_by_signals():
            found = measure(arguments)
        print(f"\n{table(found.rows)}", flush=True)
        if arguments.json:
            content = {**found.values, "machine": _machine()}
            Path(arguments.json).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    except Stopped:
        return 130
    except WrongResult as error:
        print(f"wrong result: {error}", file=sys.stderr, flush=True)
        return 1
    except (UserError, OSError) as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return 2
    return 0


def say(line: str) -> None:
    """Progress."""
    print(line, flush=True)


def cache_folder() -> Path:
    """Where generated input is kept between runs: `$XDG_CACHE_HOME/lockgate` or `~/.cache/lockgate`."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "lockgate"


def rss_mib(pid: int | str = "self", field: str = "VmRSS") -> float:
    """Resident size of a process; field: VmHWM for the highest."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) / 1024
    return 0.0


def processor_s(*pids: int) -> float:
    """Processor time of these processes so far, without their children's."""
    stats = (Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split() for pid in pids)
    return sum(int(fields[11]) + int(fields[12]) for fields in stats) / TICKS


def mixed(ids: Any) -> Any:
    """Hashes (int64) of numbers, as well mixed as Spark's. ids: a numpy array."""
    found = ids.astype(np.uint64)
    for factor in (0xBF58476D1CE4E5B9, 0x94D049BB133111EB):
        found = (found ^ (found >> np.uint64(30))) * np.uint64(factor)
    return found.view(np.int64)


def _machine() -> dict[str, Any]:
    return {"cpus": os.cpu_count(), "python": platform.python_version(), "system": platform.platform(terse=True)}
