"""`python -m benchmarks.incremental`: what a snapshot writes, over the share of the keys that have changed.

The same state in four forms, in this process, with the stores and files of a job: values of a process function in full
snapshots, in incremental ones, and in incremental ones with differences; and an operator's object that names the parts
that it has changed. The last snapshot of each is restored and compared.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from benchmarks import diffs, object_state
from benchmarks.common import Measurement, Row, parser, run, say
from lockgate.errors import UserError

SHARES = (0.1, 1.0, 10.0, 50.0, 100.0)
FORMS = ("full", "incremental", "differences", "operator's own")
_MIB = 1 << 20

Found = Mapping[tuple[str, float], list[int]]
"""Bytes that each snapshot after the first has written, by form and percent of the keys."""


def measure(arguments: argparse.Namespace) -> Measurement:
    """Every form with every share."""
    found = {}
    for percent in SHARES:
        for form in FORMS:
            say(f"{percent:g} % changed, {form} ...")
            with tempfile.TemporaryDirectory(prefix="lockgate-incremental-", dir=arguments.folder or None) as name:
                found[form, percent] = written_bytes(form, percent, arguments, Path(name).resolve())
    if arguments.plot:
        plot(found, arguments.mib, Path(arguments.plot))
    return _measurement(arguments, found)


def written_bytes(form: str, percent: float, arguments: argparse.Namespace, folder: Path) -> list[int]:
    """By each snapshot after the first. Raises WrongResult."""
    if form == "operator's own":
        given = {"mib": arguments.mib, "parts": arguments.keys, "changed": percent, "snapshots": arguments.snapshots}
        return object_state.measured(argparse.Namespace(**given), folder).written_bytes
    chosen = {
        "keys": arguments.keys,
        "size": arguments.mib * _MIB // arguments.keys,
        "edits": arguments.edits,
        "snapshots": arguments.snapshots,
        # no full one in between but those that the store takes because an increment would save nothing
        "full_every": 1 if form == "full" else arguments.snapshots + 1,
    }
    return diffs.Bench(folder, argparse.Namespace(**chosen), percent, form == "differences").run().written_bytes


def plot(found: Found, mib: int, file: Path) -> None:
    """A picture of the means over the share, one line for each form. Raises UserError without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UserError("--plot needs matplotlib: pip install matplotlib") from error
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    for form in FORMS:
        points = sorted(
            (percent, statistics.fmean(some) / _MIB) for (name, percent), some in found.items() if name == form
        )
        axes.plot(*zip(*points, strict=True), marker="o", label=form)
    axes.set(xscale="log", yscale="log", xlabel="keys changed between snapshots, in %", ylabel="written, in MiB")
    axes.set_title(f"Bytes written by a snapshot of {mib} MiB")
    axes.legend()
    figure.savefig(file, dpi=120, metadata={"Date": None} if file.suffix == ".svg" else None)


def _measurement(arguments: argparse.Namespace, found: Found) -> Measurement:
    rows = []
    for percent in SHARES:
        for form in FORMS:
            some = found[form, percent]
            mean = statistics.fmean(some) / _MIB
            text = f"{mean:,.3g} MiB, {100 * mean / arguments.mib:,.3g} %"
            rows.append(Row(f"{percent:g} % of the keys changed, {form}", text))
    values = {form: {f"{percent:g}": found[form, percent] for percent in SHARES} for form in FORMS}
    chosen = {name: getattr(arguments, name) for name in ("mib", "keys", "edits", "snapshots")}
    return Measurement(tuple(rows), {**chosen, "written_bytes": values})


def main() -> int:
    """Command line."""
    options = parser("incremental", "What a snapshot writes, over the share of the keys that have changed.")
    options.add_argument("--mib", type=int, default=40, help="size of the state")
    options.add_argument("--keys", type=int, default=4_096, help="keys, or parts of an object, of the same size each")
    options.add_argument("--edits", type=int, default=20, help="bytes of a value that change each time")
    options.add_argument("--snapshots", type=int, default=9, help="measured snapshots, after the first")
    options.add_argument("--folder", default="", help="where to work; a temporary folder when left out")
    options.add_argument("--plot", metavar="FILE", default="", help="a picture, too: .png or .svg; needs matplotlib")
    return run(options.parse_args(), measure)


if __name__ == "__main__":
    sys.exit(main())
