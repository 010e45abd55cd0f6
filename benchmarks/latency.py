"""`python -m benchmarks.latency`: from the moment a record is due to its result, beside plain Structured Streaming."""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lockgate_devtools.cluster import LocalCluster
from lockgate_devtools.cluster.work_folder import WorkFolder
from lockgate_proto.messages import JobGraph, JobState

from benchmarks.common import Measurement, Row, WrongResult, at_most, parser, run, say
from benchmarks.job_run import NEVER_MS
from benchmarks.latency_figures import COLD_S, KEYS, WARM_S, Seen, latencies, missing
from benchmarks.latency_plot import plot
from benchmarks.latency_results import Printed, printed
from lockgate import Job, count, tumbling
from lockgate.client import TERMINAL, Client
from lockgate.errors import UserError

CASES = ("stateless", "keyed", "window", "keyed_python")
RATES = (100, 1_000, 10_000, 100_000)
CHECKPOINTS = {"each_second": 1000, "none": NEVER_MS}
PEER = "Structured Streaming"
WINDOW_MS = 200
RESULTS_PER_S = 1000  # of the stateless case at most: the rest is filtered out, so that the sink is not measured
GOALS = {"p50_ms": 50.0, "p99_ms": 100.0}
COLD_GOAL_MS = 1000.0
_MOST_ROWS = 10_000  # of a batch, that the sink prints
_DRAIN_S = 60.0
_PEER_QUIET_S = 5.0  # longer than a batch of the peer that has not fallen behind
_LOOK_EVERY_S = 0.1


@dataclass(frozen=True, slots=True)
class Load:
    """Of one run: `rate` lines a second for `seconds`."""

    rate: int
    seconds: float

    @property
    def sample(self) -> int:
        """Of so many records the stateless case lets one through."""
        return max(1, self.rate // RESULTS_PER_S)


def graph(case: str, port: int, load: Load, interval_ms: int, parallelism: int) -> JobGraph:
    """Lines from a socket through the operators of the case to a sink that shows its rows at once."""
    job = Job(case, parallelism=parallelism, checkpoint_interval_ms=interval_ms)
    records = job.read_socket("127.0.0.1", port).select(
        "CAST(split(value, ' ')[0] AS BIGINT) AS id",
        "timestamp_millis(CAST(split(value, ' ')[1] AS BIGINT)) AS at",
    )
    if case == "stateless":
        records.filter(f"id % {load.sample} = 0").select("id").print(_MOST_ROWS)
        return job.graph()
    records = records.select(f"pmod(id, {KEYS}) AS key", "at")
    if case == "window":
        timed = records.event_time("at", out_of_order=0).key_by("key").window(tumbling(WINDOW_MS))
        timed.aggregate(n=count()).print(_MOST_ROWS)
        return job.graph()
    counted = records.key_by("key").aggregate(n=count())
    if case == "keyed_python":
        counted = counted.map(_unchanged, schema="key BIGINT, n BIGINT")
    counted.print(_MOST_ROWS)
    return job.graph()


def _unchanged(record: dict[str, Any]) -> dict[str, Any]:
    """The Python stage."""
    return record


@contextlib.contextmanager
def lines_at(load: Load) -> Iterator[tuple[int, Callable[[], str]]]:
    """The port of a server of lines, and a function that returns its next word: the start, then the number sent."""
    command = [sys.executable, "-m", "benchmarks.latency_load", str(load.rate), str(load.seconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        output = process.stdout

        def word() -> str:
            if not (found := output.readline().strip()):
                raise UserError("nothing has connected to the source of lines; see the logs of what should have")
            return found

        try:
            yield int(word()), word
        finally:
            process.kill()


class Runs:
    """Runs the cases, one after another, on one warm cluster."""

    def __init__(self, folder: Path, cluster: LocalCluster, client: Client, parallelism: int) -> None:
        self._folder, self._cluster, self._client = folder, cluster, client
        self._parallelism = parallelism
        self._number = 0

    def ours(self, case: str, load: Load, checkpoints: str) -> list[dict[str, Any]]:
        """Entries for the JSON file, one for each phase of the run. Raises WrongResult, UserError."""
        self._number += 1
        key = f"{case}-{load.rate}-{checkpoints}-{self._number}".replace("_", "-")
        logs = sorted((self._cluster.directory / "logs").glob("taskmanager-*.log"))
        with Printed(logs) as results, lines_at(load) as (port, word):
            self._client.submit(key, graph(case, port, load, CHECKPOINTS[checkpoints], self._parallelism))
            start = float(word())
            is_over = self._wait(key, load)
            sent = int(word()) if is_over else 0
        if is_over and (lost := missing(case, results.seen, sent, load.sample)):
            raise WrongResult(f"{key}: {lost} results are missing or duplicates")
        return entries(case, load, results.seen, start, {"peer": None, "checkpoints": checkpoints, "drained": is_over})

    def _wait(self, key: str, load: Load) -> bool:
        """Whether the job has processed all records in time; otherwise it is cancelled."""
        deadline = time.monotonic() + load.seconds + _DRAIN_S
        is_over = True
        while (status := self._client.job(key)).state not in TERMINAL:
            if is_over and time.monotonic() > deadline:
                is_over = False
                self._client.cancel(key)
            time.sleep(_LOOK_EVERY_S)
        if is_over and (status.state is not JobState.FINISHED or status.restarts):
            raise UserError(f"the job {key} did not run through: {status.state.name} {status.error}")
        return is_over

    def peer(self, case: str, load: Load) -> list[dict[str, Any]]:
        """The same from Structured Streaming, in a process that is started for it."""
        self._number += 1
        folder = self._folder / f"peer-{self._number}"
        output = self._folder / f"peer-{self._number}.txt"
        with lines_at(load) as (port, word), output.open("wb") as file:
            arguments = [case, port, load.sample, WINDOW_MS, folder]
            command = [sys.executable, "-m", "benchmarks.latency_peer", *map(str, arguments)]
            with subprocess.Popen(command, stdout=file, stderr=subprocess.DEVNULL, start_new_session=True) as process:
                try:
                    start = float(word())
                    self._drained(process, output, load)
                finally:
                    process.kill()
        return entries(case, load, printed(output), start, {"peer": PEER, "checkpoints": "each batch"})

    @staticmethod
    def _drained(process: subprocess.Popen[bytes], output: Path, load: Load) -> None:
        """Waits until all is sent, something has been printed, and nothing new has been for a while."""
        deadline = time.monotonic() + load.seconds + _DRAIN_S
        enough = time.monotonic() + load.seconds
        changed, size = time.monotonic(), 0
        while (now := time.monotonic()) < deadline and (now < enough or not size or now - changed < _PEER_QUIET_S):
            if process.poll() is not None:
                raise UserError(f"{PEER} ended early, with exit code {process.returncode}")
            if (found := output.stat().st_size) != size:
                changed, size = now, found
            time.sleep(_LOOK_EVERY_S)


def entries(case: str, load: Load, seen: Seen, start: float, more: dict[str, Any]) -> list[dict[str, Any]]:
    """What a run has found: an entry from WARM_S on, and one for the first COLD_S."""
    found = latencies(case, seen, start, load.rate)
    phases = {"warm": found.phase(WARM_S, load.seconds), "cold": found.phase(0, COLD_S)}
    made = [
        {"case": case, "rate": load.rate, **figures, **more, "phase": p} for p, figures in phases.items() if figures
    ]
    for entry in made:
        say(f"  {_title(entry)}: {_text(entry)}")
    return made


def measure(arguments: argparse.Namespace) -> Measurement:
    """Every case at every rate: with checkpoints, without, and the peer."""
    found: list[dict[str, Any]] = []
    with WorkFolder("lockgate-latency-", say) as kept:
        say("starting a cluster: 2 task managers with 1 slot each ...")
        options = {"target_batch_ms": arguments.target_batch_ms} if arguments.target_batch_ms else {}
        with (
            LocalCluster(kept.path / "cluster", slots=1, taskmanager=options) as cluster,
            Client(cluster.coordinators, cluster.zookeeper, credentials=cluster.credentials()) as client,
        ):
            time.sleep(arguments.idle)
            runs = Runs(kept.path, cluster, client, arguments.parallelism)
            for case in arguments.cases:
                for rate in arguments.rates:
                    load = Load(rate, arguments.seconds)
                    for checkpoints in arguments.checkpoints:
                        found += runs.ours(case, load, checkpoints)
                    if not arguments.no_peer:
                        found += runs.peer(case, load)
    if arguments.plot:
        plot(found, Path(arguments.plot))
    return Measurement(rows(found), {"cases": found})


def rows(found: Sequence[dict[str, Any]]) -> tuple[Row, ...]:
    """The table; the goals are for the keyed aggregate with a Python stage, 1,000 records/s."""
    made = []
    for entry in found:
        is_goal = (entry["case"], entry["rate"], entry["peer"]) == ("keyed_python", 1000, None)
        if is_goal and entry["phase"] == "cold":
            made.append(at_most(f"{_title(entry)}: p99", entry["p99_ms"], COLD_GOAL_MS, "ms"))
        elif is_goal:
            made += [at_most(f"{_title(entry)}: {name[:3]}", entry[name], goal, "ms") for name, goal in GOALS.items()]
        else:
            made.append(Row(_title(entry), _text(entry)))
    return tuple(made)


def _title(entry: dict[str, Any]) -> str:
    phase = f"from {WARM_S:g} s on" if entry["phase"] == "warm" else f"first {COLD_S:g} s"
    whose = entry["peer"] or f"checkpoints {entry['checkpoints'].replace('_', ' ')}"
    return f"{entry['case']}, {entry['rate']:,}/s, {whose}, {phase}"


def _text(entry: dict[str, Any]) -> str:
    figures = (f"{entry[name]:,.0f}" for name in ("p50_ms", "p90_ms", "p99_ms", "p999_ms"))
    return " / ".join(figures) + " ms"


def main() -> int:
    """Command line."""
    options = parser("latency", "Latency of records, p50 / p90 / p99 / p99.9, beside Structured Streaming.")
    options.add_argument("--cases", nargs="+", choices=CASES, default=CASES)
    options.add_argument("--rates", nargs="+", type=int, default=RATES, help="records a second")
    options.add_argument("--seconds", type=float, default=20, help=f"of each run; more than {WARM_S:g}")
    options.add_argument("--checkpoints", nargs="+", choices=CHECKPOINTS, default=tuple(CHECKPOINTS))
    options.add_argument("--parallelism", type=int, default=1, help="of the job")
    options.add_argument("--target-batch-ms", type=int, default=0, help="the task managers' setting; 0: its default")
    options.add_argument("--idle", type=float, default=0, help="seconds of the cluster before its first job")
    options.add_argument("--no-peer", action="store_true", help=f"without {PEER}")
    options.add_argument("--plot", metavar="FILE", default="", help="a picture, too: .png or .svg; needs matplotlib")
    return run(options.parse_args(), measure)


if __name__ == "__main__":
    raise SystemExit(main())
