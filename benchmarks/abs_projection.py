"""`python -m benchmarks.abs_projection MEASURED`: the model of abs_simulated.py, beside what it was measured with.

MEASURED is the JSON file of `python -m benchmarks.abs --simulate ...`, which calls the same. Everything here but the
rows "model against measured" is simulated.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.abs_job import MODES, NONE
from benchmarks.abs_plot import plot
from benchmarks.abs_simulated import Costs, Snapshots, simulated, slowdown
from benchmarks.common import Measurement, Row, parser, run, say
from lockgate.errors import UserError

TOLERANCE = 0.05
"""How far the model may be off where it can be compared: in the time with snapshots against that without."""

PAPERS_INTERVAL_MS = 3_000
PAPERS_NODES = 10  # of its experiment with intervals
INTERVALS_MS = (500, 1000, 2000, 3000, 5000)
_SECONDS = 60.0  # of a simulated run


def inputs(costs: Costs, empty_s: float, observed: Mapping[str, float]) -> dict[str, Any]:
    """What the model needs and is compared with, for the JSON file. empty_s: of the job with one record a source."""
    return {"costs": asdict(costs), "empty_s": empty_s, "observed": dict(observed)}


def costs_from(values: Mapping[str, Any]) -> Costs:
    """See `inputs`. Raises UserError."""
    try:
        found: dict[str, Any] = values["model"]["costs"]
        given: dict[str, Any] = {name: tuple(item) if isinstance(item, list) else item for name, item in found.items()}
        return Costs(**given)
    except (KeyError, TypeError) as error:
        raise UserError("this file has no costs for the model: measure with benchmarks.abs --simulate") from error


def projected(values: Mapping[str, Any], nodes: Sequence[int], interval_ms: int) -> dict[str, Any]:
    """What snapshots add to the runtime, as a share of that without. values: the JSON file of benchmarks.abs."""
    costs = costs_from(values)
    say(f"simulating {', '.join(map(str, nodes))} nodes ...")
    return {
        "interval_ms": interval_ms,
        "by_nodes": {
            mode: {str(number): _added(costs, number, mode, interval_ms) for number in nodes} for mode in MODES
        },
        "nodes_of_intervals": PAPERS_NODES,
        "by_interval_ms": {
            mode: {str(every): _added(costs, PAPERS_NODES, mode, every) for every in INTERVALS_MS} for mode in MODES
        },
        "compared": compared(values, costs),
        "checkpoint": checkpoint_figures(costs, values["rows_of_each_source"]),
    }


def _added(costs: Costs, nodes: int, mode: str, interval_ms: int) -> float:
    return slowdown(costs, nodes, Snapshots(interval_ms, mode == "stop_the_world"), _SECONDS)


def compared(values: Mapping[str, Any], costs: Costs) -> list[dict[str, Any]]:
    """Runtimes with snapshots against those without, measured and of the model, where both are there: for 2 subtasks
    of each vertex, and with --scale for 1. The model's have the time of the empty job, as measured ones have.
    """
    rows, seconds = values["rows_of_each_source"], values["seconds"]
    found = [
        _comparison(values, costs, 2, key, rows, _ratio(some, seconds[NONE.key]))
        for key, some in seconds.items()
        if key != NONE.key
    ]
    if (scale := values.get("scale")) is not None:
        key = f"exactly_once-{scale['interval_ms']}"
        found += [
            _comparison(values, costs, int(subtasks), key, scale["rows_of_each_source"], ratio)
            for subtasks, ratio in scale["runtime"].items()
            if int(subtasks) <= 2
        ]
    return found


def checkpoint_figures(costs: Costs, rows: int) -> dict[str, float]:
    """The same figures as `observed` in the JSON file, of the model: with 2 subtasks of each vertex, each second."""
    outcomes = [simulated(costs, 2, rows, Snapshots(1000, False), seed) for seed in range(5)]
    durations = [took_ms for outcome in outcomes for took_ms in outcome.durations_ms]
    alignments = [took_ms for outcome in outcomes for took_ms in outcome.alignments_ms]
    if not durations:
        return {}
    return {"checkpoint_ms": statistics.median(durations), "alignment_ms": statistics.median(alignments)}


def _ratio(some: Sequence[float], plain: Sequence[float]) -> float:
    return statistics.median(own / before for own, before in zip(some, plain, strict=True))


def _comparison(
    values: Mapping[str, Any], costs: Costs, nodes: int, key: str, rows: int, measured: float
) -> dict[str, Any]:
    mode, _, interval_ms = key.rpartition("-")
    snapshots = Snapshots(int(interval_ms), mode == "stop_the_world")
    empty_s = values["model"]["empty_s"]
    plain, own = (
        [empty_s + simulated(costs, nodes, rows, chosen, seed).seconds for seed in range(5)]
        for chosen in (None, snapshots)
    )
    return {"subtasks": nodes, "setting": key, "measured": measured, "model": _ratio(own, plain)}


def projection_rows(values: Mapping[str, Any]) -> list[Row]:
    """Lines of the table; each says that it is simulated. values: the JSON file with what `projected` has found."""
    found, seen = values["simulated"], values["model"]["observed"]
    names = {"checkpoint_ms": "a checkpoint", "alignment_ms": "its longest alignment"}
    lines = [
        Row(f"model against measured, 2 subtasks, every 1 s: {names[name]}", f"{took_ms:.0f} and {seen[name]:.0f} ms")
        for name, took_ms in found["checkpoint"].items()
    ]
    for item in found["compared"]:
        off = abs(item["model"] - item["measured"])
        lines.append(
            Row(
                f"model against measured, {item['subtasks']} subtasks, {item['setting']}: runtime",
                f"{item['model']:.3f} and {item['measured']:.3f} times",
                f"within {TOLERANCE:g}",
                off <= TOLERANCE,
            )
        )
    every = f"every {found['interval_ms'] / 1000:g} s"
    for mode, some in found["by_nodes"].items():
        for nodes, added in some.items():
            lines.append(_simulated(f"{nodes} nodes, {mode.replace('_', ' ')}, {every}", added))
    for mode, some in found["by_interval_ms"].items():
        for interval_ms, added in some.items():
            name = f"{found['nodes_of_intervals']} nodes, {mode.replace('_', ' ')}, every {int(interval_ms) / 1000:g} s"
            lines.append(_simulated(name, added))
    return lines


def _simulated(name: str, added: float) -> Row:
    return Row(f"simulated, {name}: runtime", f"{1 + added:.3f} times")


def leader_subtask_ms(control_plane: Mapping[str, Any]) -> float:
    """What a subtask adds to a checkpoint. control_plane: its JSON file. Raises UserError without two sizes."""
    runs = sorted(control_plane.get("runs", ()), key=lambda item: item["subtasks"])
    if len(runs) < 2:
        raise UserError("measure benchmarks.control_plane with several --subtasks: the model needs the difference")
    few, many = runs[0], runs[-1]
    slope: float = (many["checkpoint_ms"] - few["checkpoint_ms"]) / (many["subtasks"] - few["subtasks"])
    return max(0.0, slope)


def _again(arguments: argparse.Namespace) -> Measurement:
    """The model with the costs of an earlier measurement."""
    try:
        values = json.loads(Path(arguments.measured).read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{arguments.measured} is not a JSON file: {error}") from error
    values["simulated"] = projected(values, arguments.nodes, arguments.interval_ms)
    if arguments.plot:
        plot(values, Path(arguments.plot))
    return Measurement(tuple(projection_rows(values)), values)


def main() -> int:
    """Command line."""
    options = parser("abs_projection", "Simulates the job of benchmarks.abs on more nodes, with costs measured before.")
    options.add_argument("measured", metavar="MEASURED", help="JSON file of benchmarks.abs --simulate")
    options.add_argument("--nodes", type=int, nargs="+", default=[5, 10, 20, 40], help="as in the paper")
    options.add_argument("--interval-ms", type=int, default=PAPERS_INTERVAL_MS, help="as in the paper")
    options.add_argument("--plot", metavar="FILE", default="", help="a picture, too: .png or .svg; needs matplotlib")
    return run(options.parse_args(), _again)


if __name__ == "__main__":
    raise SystemExit(main())
