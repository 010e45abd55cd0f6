"""A picture of what benchmarks.abs has found: a chart for each part that its JSON file has."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lockgate.errors import UserError


def plot(values: Mapping[str, Any], file: Path) -> None:
    """values: as in the JSON file. Raises UserError without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UserError("--plot needs matplotlib: pip install matplotlib") from error
    charts = [_intervals]
    charts += [_scale] if "scale" in values else []
    charts += [_nodes, _simulated_intervals] if "simulated" in values else []
    columns = min(2, len(charts))
    lines = -(-len(charts) // columns)
    figure = Figure(figsize=(5.5 * columns, 4 * lines), layout="constrained")
    places = figure.subplots(lines, columns, squeeze=False).flat
    for axes in places[len(charts) :]:
        axes.remove()
    for axes, draw in zip(places, charts, strict=False):
        draw(axes, values)
        axes.legend()
    figure.savefig(file, dpi=120, metadata={"Date": None} if file.suffix == ".svg" else None)


def _intervals(axes: Any, values: Mapping[str, Any]) -> None:
    for mode, points in by_mode(values["rows_per_s"]).items():
        axes.plot(*zip(*points, strict=True), marker="o", label=mode)
    axes.axhline(values["rows_per_s"]["none"] / 1e6, linestyle=":", color="grey", label="no checkpoints")
    axes.set(
        title="measured, 2 subtasks of each vertex", xlabel="checkpoint interval (s)", ylabel="million rows a second"
    )
    axes.set_ylim(bottom=0)


def by_mode(rows_per_s: Mapping[str, float]) -> dict[str, list[tuple[float, float]]]:
    """Points of a line for each mode: seconds and millions of rows a second. rows_per_s: by the setting's key."""
    found: dict[str, list[tuple[float, float]]] = {}
    for key, rate in rows_per_s.items():
        mode, _, interval_ms = key.rpartition("-")
        if mode:
            found.setdefault(mode.replace("_", " "), []).append((int(interval_ms) / 1000, rate / 1e6))
    return found


def _scale(axes: Any, values: Mapping[str, Any]) -> None:
    scale = values["scale"]
    counts = _doubling(axes, scale["none_s"])
    axes.plot(counts, list(scale["none_s"].values()), marker="o", label="no checkpoints")
    label = f"exactly once, every {scale['interval_ms'] / 1000:g} s"
    axes.plot(counts, list(scale["snapshots_s"].values()), marker="o", label=label)
    rows = f"{scale['rows_of_each_source'] / 1e6:g} million rows each"
    axes.set(title=f"measured, {rows}", xlabel="subtasks of each vertex", ylabel="runtime (s)")
    axes.set_ylim(bottom=0)


def _nodes(axes: Any, values: Mapping[str, Any]) -> None:
    found = values["simulated"]
    for mode, some in found["by_nodes"].items():
        axes.plot(
            _doubling(axes, some), [100 * added for added in some.values()], marker="o", label=mode.replace("_", " ")
        )
    title = f"SIMULATED, snapshots every {found['interval_ms'] / 1000:g} s"
    axes.set(title=title, xlabel="nodes", ylabel="runtime added by snapshots (%)")
    axes.set_ylim(bottom=0)


def _doubling(axes: Any, values: Mapping[str, Any]) -> list[int]:
    """The numbers that the values are for, each marked on an axis on which twice as many are as far away everywhere."""
    numbers = [int(number) for number in values]
    axes.set_xscale("log", base=2)
    axes.set_xticks(numbers, list(values))
    axes.minorticks_off()
    return numbers


def _simulated_intervals(axes: Any, values: Mapping[str, Any]) -> None:
    found = values["simulated"]
    for mode, some in found["by_interval_ms"].items():
        points = [(int(interval_ms) / 1000, 100 * added) for interval_ms, added in some.items()]
        axes.plot(*zip(*points, strict=True), marker="o", label=mode.replace("_", " "))
    title = f"SIMULATED, {found['nodes_of_intervals']} nodes"
    axes.set(title=title, xlabel="snapshot interval (s)", ylabel="runtime added by snapshots (%)")
    axes.set_ylim(bottom=0)
