"""`python -m benchmarks.metrics`: what it costs the word count that every page of metrics is scraped each second.

A scrape every 15 s, as in the configuration that Prometheus comes with, costs far less than what two runs of the same
job differ by. So the pages are scraped far more often, and what is lost is divided by how much more often.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse, RemoteDisconnected
from pathlib import Path

from lockgate_common.security import default_tokens_file
from lockgate_common.token_book import issue
from lockgate_devtools.cluster import LocalCluster
from lockgate_devtools.cluster.work_folder import WorkFolder
from lockgate_devtools.drill.observer import JobObserver
from lockgate_proto.messages import (
    Aggregate,
    AggregateFunction,
    CheckpointOptions,
    ConsoleSink,
    Edge,
    GeneratorSource,
    JobGraph,
    KeyedAggregate,
    Operator,
    Partitioning,
    Vertex,
)

from benchmarks import corpus
from benchmarks.common import (
    TICKS,
    Measurement,
    Row,
    at_least,
    at_most,
    cache_folder,
    parser,
    processor_s,
    run,
    say,
)
from benchmarks.job_run import run_through
from benchmarks.wordcount import graph
from lockgate.client import Client
from lockgate.errors import UserError

_INTERVAL_MS = 1_000
_BURSTS = 5
_LIMIT_S = 300.0


class Scraper:
    """Reads every page of a cluster with its own token, over connections that it keeps, as Prometheus does."""

    def __init__(self, cluster: LocalCluster) -> None:
        tokens = default_tokens_file(cluster.secret_file)
        token = issue(tokens, cluster.credentials().secret, "scraper", ("read",), 0)
        self.headers = {"Authorization": f"Bearer {token}"}
        self._connections = [HTTPConnection(address, timeout=30) for address in cluster.metrics.values()]

    @contextmanager
    def running(self, a_second: float) -> Iterator[None]:
        """So often while the block runs. Raises what went wrong with it, or that it could not be so often."""
        over = threading.Event()
        with ThreadPoolExecutor(1, "scraper") as pool:
            began = time.monotonic()
            scraping = pool.submit(self._run, over, a_second)
            try:
                yield
            finally:
                over.set()
            done, due = scraping.result(), (time.monotonic() - began) * a_second
        if done < 0.9 * due - 1:
            raise UserError(
                f"{done} scrapes instead of {due:.0f}; --a-second {a_second:g} is more than this machine can"
            )

    def _run(self, over: threading.Event, a_second: float) -> int:
        """Scrapes at fixed moments, so that one that took long is made up for. Returns how many."""
        began, done = time.monotonic(), 0
        while not over.wait(max(0.0, began + (done + 1) / a_second - time.monotonic())):
            self.scrape()
            done += 1
        return done

    def scrape(self) -> None:
        """Reads every page once."""
        for connection in self._connections:
            answer = self._answer(connection)
            answer.read()
            if answer.status != 200:
                raise UserError(f"a page of metrics was answered with {answer.status} {answer.reason}")

    def _answer(self, connection: HTTPConnection) -> HTTPResponse:
        """Over a new connection if the server has closed this one, as servers do with those that were silent."""
        try:
            return self._ask(connection)
        except (RemoteDisconnected, BrokenPipeError, ConnectionResetError):
            connection.close()  # the next request opens it
            return self._ask(connection)

    def _ask(self, connection: HTTPConnection) -> HTTPResponse:
        connection.request("GET", "/metrics", headers=self.headers)
        return connection.getresponse()


def measure(arguments: argparse.Namespace) -> Measurement:
    """Pairs of runs on one warm cluster; neither kind always comes first."""
    folder = corpus.ensure(cache_folder(), arguments.words, arguments.files)
    seconds: dict[bool, list[float]] = {True: [], False: []}
    processor_s: dict[bool, list[float]] = {True: [], False: []}
    with (
        WorkFolder("lockgate-metrics-", say) as kept,
        LocalCluster(
            kept.path / "cluster", slots=1, start_timeout_ms=600_000, coordinator={"heartbeat_timeout_ms": 60_000}
        ) as cluster,
        Client(cluster.coordinators, cluster.zookeeper, credentials=cluster.credentials()) as client,
    ):
        scraper = Scraper(cluster)
        scrape_s = _scrape_s(cluster, client, scraper, arguments.scrapes)
        say(f"one scrape of all {len(cluster.metrics)} pages: {scrape_s * 1e3:.1f} ms of processor time")
        for number in range(-arguments.warm_up, arguments.runs):
            for is_scraped in (True, False) if number % 2 else (False, True):
                key = f"{'scraped' if is_scraped else 'alone'}-{number + arguments.warm_up}"
                job = graph(folder, kept.path / f"{key}.db", _INTERVAL_MS)
                before = cluster_processor_s(cluster)
                if is_scraped:
                    with scraper.running(arguments.a_second):
                        took_s = run_through(client, key, job).seconds
                else:
                    took_s = run_through(client, key, job).seconds
                if number >= 0:
                    seconds[is_scraped].append(took_s)
                    processor_s[is_scraped].append(cluster_processor_s(cluster) - before)
    return _measurement(arguments.words, arguments.a_second, seconds, processor_s, scrape_s)


def _scrape_s(cluster: LocalCluster, client: Client, scraper: Scraper, times: int) -> float:
    """Processor time of one scrape of all pages while a job runs: scrapes in a row, and as long a time without any."""
    client.submit("steady", _steady())
    observer = JobObserver(client, "steady")
    try:
        if not observer.wait_for(
            lambda: bool(observer.status and observer.status.checkpoints_completed >= 2), _LIMIT_S
        ):
            raise UserError(f"the job has not completed two checkpoints within {_LIMIT_S:g} s: {observer.status}")
    finally:
        observer.close()
    pids = [pid for name, pid in cluster.pids().items() if not name.startswith("zookeeper")]
    costs = []
    for _ in range(_BURSTS):
        before, began = processor_s(*pids), time.monotonic()
        for _ in range(times):
            scraper.scrape()
        between, took_s = processor_s(*pids), time.monotonic() - began
        time.sleep(took_s)
        costs.append((2 * between - before - processor_s(*pids)) / times)
    client.cancel("steady")
    return statistics.median(costs)


def _steady() -> JobGraph:
    """Counts a few records a second, with a checkpoint each second."""
    count = KeyedAggregate(("partition",), (Aggregate("n", AggregateFunction.COUNT, ""),))
    source = GeneratorSource(rows_per_second=1_000)
    return JobGraph(
        name="steady",
        vertices=(
            Vertex("rows", "rows", 2, 0, (Operator("generate", "", source),)),
            Vertex("counts", "counts", 2, 0, (Operator("count", "", count), Operator("print", "", ConsoleSink()))),
        ),
        edges=(Edge("rows", "counts", Partitioning.HASH, ("partition",)),),
        checkpoints=CheckpointOptions(interval_ms=_INTERVAL_MS),
    )


def cluster_processor_s(cluster: LocalCluster) -> float:
    """Processor time of coordinators and task managers so far, with their JVMs and Python workers."""
    mine = {pid for name, pid in cluster.pids().items() if not name.startswith("zookeeper")}
    total = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            pid, session = int(stat.parent.name), int(fields[3])  # each process of a local cluster leads a session
        except (OSError, ValueError, IndexError):
            continue
        if session in mine or pid in mine:
            total += sum(map(int, fields[11:15]))
    return total / TICKS


def _measurement(
    words: int, a_second: float, seconds: dict[bool, list[float]], processor_s: dict[bool, list[float]], scrape_s: float
) -> Measurement:
    rates = {kind: words / statistics.median(times) for kind, times in seconds.items()}
    pairs = [alone / scraped for scraped, alone in zip(seconds[True], seconds[False], strict=True)]
    used = [scraped / alone for scraped, alone in zip(processor_s[True], processor_s[False], strict=True)]

    def per(interval_s: float, ratio: float) -> float:
        """The ratio with a scrape in that many seconds."""
        return 1 + (ratio - 1) / (a_second * interval_s)

    throughput, processors = statistics.median(pairs), statistics.median(used)
    return Measurement(
        (
            Row(f"word count, every page scraped {a_second:g} times a second", f"{rates[True]:,.0f} words/s"),
            Row("word count, not scraped", f"{rates[False]:,.0f} words/s"),
            Row("throughput, scraped against not, median of the pairs", f"{throughput:.3f}"),
            Row("processor time, scraped against not, median of the pairs", f"{processors:.3f}"),
            Row("throughput with one scrape a second", f"{per(1, throughput):.3f}"),
            at_least("throughput with one scrape every 15 s", per(15, throughput), 0.99, ""),
            at_most("processor time with one scrape every 15 s", per(15, processors), 1.01, ""),
            Row("one scrape of every page, processor time", f"{scrape_s * 1e3:.1f} ms"),
        ),
        {
            "words": words,
            "scrapes_per_second": a_second,
            "seconds": {"scraped": seconds[True], "alone": seconds[False]},
            "processor_s": {"scraped": processor_s[True], "alone": processor_s[False]},
            "processor_s_per_scrape": scrape_s,
        },
    )


def main() -> int:
    """Command line."""
    options = parser("metrics", "What it costs that every page of metrics is scraped each second.")
    options.add_argument("--words", type=int, default=20_000_000, help="size of the input")
    options.add_argument("--files", type=int, default=40, help="files of the input")
    options.add_argument("--runs", type=int, default=16, help="measured pairs of runs")
    options.add_argument("--a-second", type=float, default=10.0, help="scrapes of every page")
    options.add_argument("--scrapes", type=int, default=100, help="in a row, to measure one of them")
    options.add_argument("--warm-up", type=int, default=2, help="pairs before them")
    return run(options.parse_args(), measure)


if __name__ == "__main__":
    sys.exit(main())
