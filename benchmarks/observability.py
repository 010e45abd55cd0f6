"""`python -m benchmarks.observability`: what it costs the word count that everything looks on.

Two warm clusters take turns. One of them writes its logs as JSON, sends a trace of each checkpoint to an OTLP receiver,
has every page of metrics scraped once a second, and serves the job's page of the dashboard to an open reader.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import threading
from collections.abc import Iterator
from concurrent import futures
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from lockgate_devtools.cluster import LocalCluster
from lockgate_devtools.cluster.work_folder import WorkFolder

from benchmarks import corpus
from benchmarks.common import Measurement, Row, WrongResult, at_least, at_most, cache_folder, parser, run, say
from benchmarks.job_run import run_through
from benchmarks.metrics import Scraper, cluster_processor_s
from benchmarks.otlp_receiver import Receiver
from benchmarks.wordcount import graph
from lockgate.client import Client

_INTERVAL_MS = 1_000
_SCRAPES_A_SECOND = 1.0


class OpenPage:
    """Reads what the dashboard sends to the open page of a job."""

    def __init__(self, cluster: LocalCluster, scraper: Scraper) -> None:
        self.statuses = 0
        self._address = urlsplit(cluster.dashboard).netloc
        self._headers = scraper.headers

    @contextmanager
    def of(self, key: str) -> Iterator[None]:
        """While the block runs. The page opens as soon as the job is there."""
        over = threading.Event()
        with futures.ThreadPoolExecutor(1, "page") as pool:
            reading = pool.submit(self._read, key, over)
            try:
                yield
            finally:
                over.set()
            reading.result()

    def _read(self, key: str, over: threading.Event) -> None:
        while not over.is_set():
            connection = HTTPConnection(self._address, timeout=30)
            try:
                connection.request("GET", f"/api/v1/jobs/{key}/events", headers=self._headers)
                answer = connection.getresponse()
                while not over.is_set() and (line := answer.readline()):
                    self.statuses += line.startswith(b"event: status")
            finally:
                connection.close()
            over.wait(0.05)  # the job is not submitted yet


class Watched:
    """A cluster that is looked at, or not."""

    def __init__(self, folder: Path, receiver: Receiver | None, stack: ExitStack) -> None:
        coordinator: dict[str, Any] = {"heartbeat_timeout_ms": 60_000}
        environment = {}
        if receiver is not None:
            coordinator["otlp"] = receiver.endpoint
            environment["LOCKGATE_LOG_FORMAT"] = "json"
        self.cluster = stack.enter_context(
            LocalCluster(folder, slots=1, start_timeout_ms=600_000, coordinator=coordinator, environment=environment)
        )
        self.client = stack.enter_context(
            Client(self.cluster.coordinators, self.cluster.zookeeper, credentials=self.cluster.credentials())
        )
        self._scraper = Scraper(self.cluster) if receiver is not None else None
        self.page = OpenPage(self.cluster, self._scraper) if self._scraper is not None else None
        self.seconds: list[float] = []
        self.processor_s: list[float] = []

    def run(self, key: str, folder: Path, database: Path, is_measured: bool) -> None:
        """Runs the word count once."""
        before = cluster_processor_s(self.cluster)
        with ExitStack() as looking:
            if self._scraper is not None and self.page is not None:
                looking.enter_context(self._scraper.running(_SCRAPES_A_SECOND))
                looking.enter_context(self.page.of(key))
            took_s = run_through(self.client, key, graph(folder, database, _INTERVAL_MS)).seconds
        if is_measured:
            self.seconds.append(took_s)
            self.processor_s.append(cluster_processor_s(self.cluster) - before)


def measure(arguments: argparse.Namespace) -> Measurement:
    """Pairs of runs; neither cluster always comes first."""
    folder = corpus.ensure(cache_folder(), arguments.words, arguments.files)
    with WorkFolder("lockgate-observability-", say) as kept, ExitStack() as stack:
        receiver = Receiver()
        stack.callback(receiver.close)
        on = Watched(kept.path / "on", receiver, stack)
        off = Watched(kept.path / "off", None, stack)
        for number in range(-arguments.warm_up, arguments.runs):
            for watched in (on, off) if number % 2 else (off, on):
                key = f"{'on' if watched is on else 'off'}-{number + arguments.warm_up}"
                watched.run(key, folder, kept.path / f"{key}.db", number >= 0)
        assert on.page is not None
        if not receiver.spans or not on.page.statuses:
            raise WrongResult(f"{receiver.spans} spans were received, and {on.page.statuses} statuses by the page")
        return _measurement(arguments.words, on, off, receiver.spans, on.page.statuses)


def _measurement(words: int, on: Watched, off: Watched, spans: int, statuses: int) -> Measurement:
    throughput = statistics.median(alone / seen for seen, alone in zip(on.seconds, off.seconds, strict=True))
    used = statistics.median(seen / alone for seen, alone in zip(on.processor_s, off.processor_s, strict=True))
    return Measurement(
        (
            Row("word count, everything on", f"{words / statistics.median(on.seconds):,.0f} words/s"),
            Row("word count, everything off", f"{words / statistics.median(off.seconds):,.0f} words/s"),
            Row("spans received, statuses read by the page", f"{spans:,}, {statuses:,}"),
            at_least("throughput, on against off, median of the pairs", throughput, 0.99, ""),
            at_most("processor time, on against off, median of the pairs", used, 1.01, ""),
        ),
        {
            "words": words,
            "spans": spans,
            "statuses": statuses,
            "seconds": {"on": on.seconds, "off": off.seconds},
            "processor_s": {"on": on.processor_s, "off": off.processor_s},
        },
    )


def main() -> int:
    """Command line."""
    options = parser("observability", "What metrics, JSON logs, traces and an open page cost the word count together.")
    options.add_argument("--words", type=int, default=20_000_000, help="size of the input")
    options.add_argument("--files", type=int, default=40, help="files of the input")
    options.add_argument("--runs", type=int, default=16, help="measured pairs of runs")
    options.add_argument("--warm-up", type=int, default=2, help="pairs before them")
    return run(options.parse_args(), measure)


if __name__ == "__main__":
    sys.exit(main())
