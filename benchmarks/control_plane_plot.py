"""A picture of what a leader's work costs over the number of subtasks.

`python -m benchmarks.control_plane_plot PICTURE BEFORE AFTER` draws two JSON files of control_plane, before and after a
change, into one.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lockgate.errors import UserError

_WORK = {
    "checkpoint": "a checkpoint, with its commits",
    "reattach": "adoption by a new leader",
    "deployed": "restart by a new leader",
}


def plot(runs: Sequence[Mapping[str, Any]], file: Path, before: Sequence[Mapping[str, Any]] = ()) -> None:
    """Left: milliseconds that pass; right: of the leader's processor. before: dotted. Raises UserError without
    matplotlib.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UserError("--plot needs matplotlib: pip install matplotlib") from error
    figure = Figure(figsize=(9, 4), layout="constrained")
    kinds = {"_ms": "time", "_leader_ms": "the leader's processor time"}
    for axes, (field, title) in zip(figure.subplots(1, 2, sharey=True), kinds.items(), strict=True):
        for number, (work, label) in enumerate(_WORK.items()):
            for found, style in ((runs, "-"), (before, ":")):
                counts = [run["subtasks"] for run in found]
                values = [run[work + field] for run in found]
                name = label if found is runs else f"{label}, before"
                axes.plot(
                    counts, values, marker="o", color=f"C{number}", linestyle=style, label=name if found else None
                )
        axes.set(title=title, xlabel="subtasks", xscale="log", yscale="log")
    figure.axes[0].set_ylabel("ms")
    figure.axes[1].legend()
    figure.savefig(file, dpi=120)


def main(arguments: Sequence[str]) -> int:
    """Command line."""
    picture, *files = arguments
    before, after = (json.loads(Path(file).read_text(encoding="utf-8"))["runs"] for file in files)
    plot(after, Path(picture), before)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
