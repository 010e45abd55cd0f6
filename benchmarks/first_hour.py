"""`python -m benchmarks.first_hour`: each command of a newcomer's first hour, as the README gives them, with its time.

Clones this repository into an empty folder and runs everything there, in its own environment, on real processes. Ends
at the first command that fails, with what it has printed.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from lockgate_devtools.cluster.work_folder import WorkFolder

from benchmarks.common import Measurement, Row, parser, run, say
from lockgate.errors import UserError

_LIMIT_S = 900.0
_READY = "lockgate cluster ready"
_ADOPTED = "nothing is restarted"


class Newcomer:
    """Types one command after the other in the clone's folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.times: dict[str, float] = {}
        known = {name: value for name, value in os.environ.items() if not name.startswith("LOCKGATE_")}
        self._environment = {**known, "PATH": f"{folder / '.venv' / 'bin'}:{os.environ['PATH']}"}

    def types(self, command: str, name: str = "") -> str:
        """What it prints."""
        with self.timed(name or command):
            done = subprocess.run(
                ["bash", "-c", command],
                cwd=self.folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=_LIMIT_S,
                check=False,
            )
        if done.returncode != 0:
            raise UserError(f"`{command}` has ended with {done.returncode}:\n{done.stdout}")
        return done.stdout

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """The time of what happens inside, in seconds, under this name."""
        began = time.monotonic()
        yield
        self.times[name] = time.monotonic() - began
        say(f"{self.times[name]:7.1f} s  {name}")

    @contextmanager
    def leaves_running(self, command: str) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
        """In another terminal, with the file of what it has printed; ended by Ctrl-C."""
        output = self.folder / f".{command.split()[1]}.txt"
        with output.open("wb") as file:
            process = subprocess.Popen(
                command.split(), cwd=self.folder, env=self._environment, stdout=file, stderr=subprocess.STDOUT
            )
        try:
            yield process, output
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(_LIMIT_S)


def measure(_arguments: argparse.Namespace) -> Measurement:
    """From `git clone` to Ctrl-C."""
    source = Path(__file__).resolve().parents[1]
    with WorkFolder("lockgate-first-hour-", say) as work:
        newcomer = Newcomer(work.path / "lockgate")
        with newcomer.timed("git clone"):
            subprocess.run(["git", "clone", "--quiet", source, newcomer.folder], check=True)
        newcomer.types("make setup")
        newcomer.types("make demo")
        newcomer.types("lockgate run examples/wordcount.py --rows 100")
        with newcomer.leaves_running("lockgate cluster") as (cluster, output):
            with newcomer.timed("lockgate cluster, until it is ready"):
                _until(lambda: _READY in output.read_text(), f"the ready line in {output}")
            _tour(newcomer, output)
            with newcomer.timed("Ctrl-C for the cluster"):
                cluster.send_signal(signal.SIGINT)
                cluster.wait(_LIMIT_S)
    rows = [Row(name, f"{seconds:.1f} s") for name, seconds in newcomer.times.items()]
    return Measurement(
        (*rows, Row("all of it", f"{sum(newcomer.times.values()):.0f} s")), {"seconds": dict(newcomer.times)}
    )


def _tour(newcomer: Newcomer, output: Path) -> None:
    newcomer.types("lockgate status")
    key = _found(r"job (\S+) is running", newcomer.types("lockgate submit examples/ledger.py"))
    leader = int(_found(r"pid (\d+)", newcomer.types("lockgate leader")))
    with newcomer.leaves_running(f"lockgate watch {key}") as (_, seen):
        _until(lambda: "checkpoint completed" in seen.read_text(), "a checkpoint")
        with newcomer.timed("kill -9 the leader, until `lockgate watch` shows that nothing is restarted"):
            os.kill(leader, signal.SIGKILL)
            _until(lambda: _ADOPTED in seen.read_text(), "the next leader")
    for command in ("job", "logs", "checkpoints --history", "savepoint"):
        newcomer.types(f"lockgate {command} {key}", f"lockgate {command} KEY")
    newcomer.types(f"lockgate rescale {key} totals=1", "lockgate rescale KEY totals=1")
    pointer = newcomer.types(f"lockgate stop {key}", "lockgate stop KEY").split()[-1]
    newcomer.types(
        f"lockgate submit examples/ledger.py --from {pointer}", "lockgate submit examples/ledger.py --from POINTER"
    )
    with newcomer.timed("GET /api/v1/jobs at the dashboard"):
        dashboard = _found(r"dashboard=(\S+)", output.read_text())
        with urllib.request.urlopen(f"{dashboard}/api/v1/jobs") as answer:
            if key not in answer.read().decode():
                raise UserError(f"{dashboard}/api/v1/jobs does not know the job")
    newcomer.types("lockgate submit examples/wordcount.py --wait")
    newcomer.types("lockgate jobs")


def _found(pattern: str, printed: str) -> str:
    found = re.search(pattern, printed)
    if found is None:
        raise UserError(f"no {pattern!r} in:\n{printed}")
    return found.group(1)


def _until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _LIMIT_S
    while not condition():
        if time.monotonic() > deadline:
            raise UserError(f"{what} did not come within {_LIMIT_S:.0f} s")
        time.sleep(0.02)


def main() -> int:
    """The exit code."""
    return run(parser("first_hour", "Each command of a newcomer's first hour, with its time.").parse_args(), measure)


if __name__ == "__main__":
    sys.exit(main())
