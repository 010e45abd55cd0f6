"""A picture of latencies: one chart for each case, a line for each kind of run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lockgate.errors import UserError


def plot(found: Sequence[dict[str, Any]], file: Path) -> None:
    """p50 (solid) and p99 (dotted) from the tenth second on, over the rate. Raises UserError without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UserError("--plot needs matplotlib: pip install matplotlib") from error
    cases = list(dict.fromkeys(entry["case"] for entry in found))
    figure = Figure(figsize=(4 * len(cases), 4), layout="constrained")
    for axes, case in zip(figure.subplots(1, len(cases), squeeze=False, sharey=True)[0], cases, strict=True):
        lines: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for entry in found:
            if (entry["case"], entry["phase"]) == (case, "warm"):
                lines[entry["peer"] or f"Lockgate, checkpoints {entry['checkpoints'].replace('_', ' ')}"].append(entry)
        for number, (name, entries) in enumerate(lines.items()):
            rates = [entry["rate"] for entry in entries]
            color = f"C{number}"
            axes.plot(rates, [entry["p50_ms"] for entry in entries], marker="o", color=color, label=name)
            axes.plot(rates, [entry["p99_ms"] for entry in entries], marker="o", color=color, linestyle=":")
        axes.set(title=case.replace("_", " + "), xlabel="records a second", xscale="log", yscale="log")
    figure.axes[0].set_ylabel("latency: p50, and p99 (dotted), in ms")
    figure.axes[0].legend()
    figure.savefig(file, dpi=120)
