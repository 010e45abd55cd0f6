"""`python -m benchmarks.control_plane`: one leader, many task managers, no Spark.

A cluster of two coordinators with ZooKeeper, and task managers that are played (played_task_managers.py) over real
gRPC, each on its own connection. Measures submission to all subtasks running, checkpoints, the leader killed twice
(grant to attempt adopted, then grant to all running again, after a restart), what heartbeats cost the leader without
watchers of the job and with some, how much it sends to each watcher, and its memory.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from lockgate_devtools.cluster.cluster import LocalCluster
from lockgate_devtools.cluster.options import ClusterOptions
from lockgate_devtools.cluster.work_folder import WorkFolder
from lockgate_devtools.drill.observer import JobObserver
from lockgate_proto import messages as m

from benchmarks.common import Measurement, Row, at_most, parser, processor_s, rss_mib, run, say
from benchmarks.control_plane_plot import plot
from benchmarks.counted_watches import CountedWatch, counted_watches
from lockgate.client import Client
from lockgate.errors import UserError

_KEY = "wide"
_VERTICES = 2
_LIMIT_S = 600.0
_QUIET_S = 10.0
_MOST_GROWTH = 12  # for ten times the subtasks


def measure(arguments: argparse.Namespace) -> Measurement:
    """Each number of subtasks on a cluster of its own."""
    found = [_one_job(count, arguments) for count in arguments.subtasks]
    if arguments.plot:
        plot([measurement.values for measurement in found], Path(arguments.plot))
    rows = tuple(row for measurement in found for row in measurement.rows)
    rows += growth_rows({int(measurement.values["subtasks"]): measurement.values for measurement in found})
    return found[0] if len(found) == 1 else Measurement(rows, {"runs": [measurement.values for measurement in found]})


def _one_job(subtasks: int, arguments: argparse.Namespace) -> Measurement:
    """One cluster, one job."""
    slots = subtasks // _VERTICES
    fleet = min(arguments.task_managers or max(1, subtasks // 10), slots)
    each = -(-slots // fleet)
    coordinator = {"max_task_managers": fleet + 10, "max_client_streams": fleet + 100, "heartbeat_timeout_ms": 30_000}
    options = ClusterOptions(taskmanagers=0, coordinator=coordinator)
    with (
        WorkFolder("lockgate-control-plane-", say) as work,
        LocalCluster(work.path / "cluster", options) as cluster,
        played(cluster, fleet, each, arguments.processes),
        Client(cluster.coordinators, credentials=cluster.credentials(), patience_ms=120_000) as client,
    ):
        values = _measure(cluster, client, slots, fleet, each, arguments)
    count = slots * _VERTICES
    values = {"subtasks": count, "task_managers": fleet, **values}
    goal = count == 10_000
    name = f"{count:,} subtasks, {fleet:,} task managers"
    return Measurement(
        (
            Row(f"{name}: submitted to all running", f"{values['submitted_ms']:,.0f} ms"),
            _row("grant to all running", values["deployed_ms"], 3_000 if goal else None, "ms"),
            _own_row(values["deployed_leader_ms"]),
            _row("grant to attempt adopted", values["reattach_ms"], 2_000 if goal else None, "ms"),
            _own_row(values["reattach_leader_ms"]),
            _row("one checkpoint, triggered to completed", values["checkpoint_ms"], 1_000 if goal else None, "ms"),
            _own_row(values["checkpoint_leader_ms"]),
            Row("the leader's processor share, heartbeats only", f"{values['heartbeat_share']:.3f}"),
            *_watched_rows(arguments.watchers, values),
            _row("memory of the leader", values["rss_mib"], 500 if goal else None, "MiB"),
        ),
        values,
    )


def growth_rows(by_subtasks: Mapping[int, Mapping[str, float]]) -> tuple[Row, ...]:
    """How many times as much each column is with 10,000 subtasks as with 1,000; none unless both were measured."""
    few, many = by_subtasks.get(1_000), by_subtasks.get(10_000)
    if few is None or many is None:
        return ()
    return tuple(
        at_most(f"10,000 subtasks to 1,000: {column}", many[column] / few[column], _MOST_GROWTH, "times")
        for column in many
        if column not in ("subtasks", "task_managers") and few[column] > 0
    )


def _row(name: str, value: float, goal: float | None, unit: str) -> Row:
    return Row(name, f"{value:,.0f} {unit}") if goal is None else at_most(name, value, goal, unit)


def _own_row(value: float) -> Row:
    """What does not depend on other programs on the machine."""
    return Row("  the leader's processor time for that, with all that follows", f"{value:,.0f} ms")


def _measure(
    cluster: LocalCluster, client: Client, slots: int, fleet: int, each: int, arguments: argparse.Namespace
) -> dict[str, float]:
    checkpoints = arguments.checkpoints
    _wait("the task managers to register", lambda: len(client.cluster().task_managers) >= fleet)
    say(f"{fleet:,} task managers with {each} slots each have registered")
    begun_us = time.time_ns() // 1_000
    client.submit(_KEY, graph_of(slots))
    observer = JobObserver(client, _KEY)
    try:
        submitted_ms = (_event_us(observer, m.JobEventKind.ATTEMPT_DEPLOYED, begun_us) - begun_us) / 1_000
        say(f"all {slots * _VERTICES:,} subtasks run after {submitted_ms:,.0f} ms")
        share = _share(cluster)
        watched = _watched(cluster, arguments.watchers, "watched", changes=True)
        watched |= _watched(cluster, arguments.watchers, "watched_whole", changes=False)
        begun, begun_s = time.monotonic(), processor_s(_leader_pid(cluster))
        taken = _checkpoints(client, checkpoints)
        time.sleep(_QUIET_S)  # the commits of the last one
        took_s = processor_s(_leader_pid(cluster)) - begun_s - share * (time.monotonic() - begun)
        own_ms = 1_000 * took_s / checkpoints
        say(f"checkpoints took {', '.join(f'{ms:,}' for ms in taken)} ms, of the leader's time {own_ms:,.0f} ms each")
        reattach_ms, reattach_own_ms, grant_ms = _killed(cluster, observer, m.JobEventKind.ATTEMPT_ADOPTED)
        say(f"leader killed: granted after {grant_ms:,.0f} ms, attempt adopted {reattach_ms:,.0f} ms after that")
        _checkpoints(client, 1)
        deployed_ms, deployed_own_ms, grant_ms = _killed(cluster, observer, m.JobEventKind.ATTEMPT_DEPLOYED)
        say(f"leader killed: granted after {grant_ms:,.0f} ms, all running {deployed_ms:,.0f} ms after that")
        _checkpoints(client, 1)
        return {
            "submitted_ms": submitted_ms,
            "deployed_ms": deployed_ms,
            "deployed_leader_ms": deployed_own_ms,
            "checkpoint_ms": statistics.median(taken),
            "checkpoint_leader_ms": own_ms,
            "reattach_ms": reattach_ms,
            "reattach_leader_ms": reattach_own_ms,
            "heartbeat_share": share,
            **watched,
            "rss_mib": rss_mib(_leader_pid(cluster), "VmHWM"),
        }
    finally:
        observer.close()


@contextmanager
def played(cluster: LocalCluster, fleet: int, each: int, processes: int) -> Iterator[None]:
    """The task managers, spread over a few processes."""
    names = [f"played-{number:05}" for number in range(fleet)]
    started = []
    try:
        for number in range(processes):
            process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.played_task_managers"], stdin=subprocess.PIPE, text=True
            )
            started.append(process)
            assert process.stdin is not None
            json.dump(
                {
                    "coordinators": list(cluster.coordinators),
                    "secret_file": str(cluster.directory / "secret"),
                    "names": names[number::processes],
                    "slots": each,
                    "adopted": 1,
                },
                process.stdin,
            )
            process.stdin.close()
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def graph_of(parallelism: int) -> m.JobGraph:
    """Two vertices with that many subtasks each, for played task managers."""
    source = m.Operator("rows", "", m.GeneratorSource(parallelism, 0, 1.0))
    count = m.Operator("count", "", m.KeyedAggregate(("partition",), (m.Aggregate("n", m.AggregateFunction.COUNT),)))
    return m.JobGraph(
        name=_KEY,
        vertices=(
            m.Vertex("source", "source", parallelism, parallelism, (source,)),
            m.Vertex("count", "count", parallelism, parallelism, (count, m.Operator("out", "", m.ConsoleSink()))),
        ),
        edges=(m.Edge("source", "count", m.Partitioning.HASH, ("partition",)),),
        checkpoints=m.CheckpointOptions(interval_ms=600_000, timeout_ms=120_000),
        leader_failover=m.LeaderFailover.LEADER_FAILOVER_REATTACH,
    )


def _checkpoints(client: Client, count: int) -> list[int]:
    """Milliseconds of savepoints, taken one after the other."""
    return [client.savepoint(_KEY, 120_000).duration_ms for _ in range(count)]


def _event_us(observer: JobObserver, kind: m.JobEventKind, since_us: int) -> int:
    """The time of the first event of this kind since then."""

    def found() -> list[int]:
        return [event.unix_us for event in observer.events if event.kind is kind and event.unix_us >= since_us]

    if not observer.wait_for(lambda: bool(found()), _LIMIT_S):
        raise UserError(f"{kind.name} did not come within {_LIMIT_S:g} s: {observer.status}")
    return found()[0]


def _killed(cluster: LocalCluster, observer: JobObserver, kind: m.JobEventKind) -> tuple[float, float, float]:
    """Milliseconds from the new grant to the first event of this kind, of the new leader's processor until then, and
    from the kill to the grant."""
    number = cluster.leader_number()
    if number is None:
        raise UserError("there is no leader")
    cluster.wait_ready("coordinator", 1 - number)
    next_pid = cluster.pids()[f"coordinator-{1 - number}"]
    killed_us, before_s = time.time_ns() // 1_000, processor_s(next_pid)
    pid = cluster.kill("coordinator", number)
    event_us = _event_us(observer, kind, killed_us)
    own_ms = 1_000 * (processor_s(next_pid) - before_s)
    granted_us = _event_us(observer, m.JobEventKind.LEADER_GRANTED, killed_us)
    cluster.wait_ready("coordinator", number, other_than=pid)
    return (event_us - granted_us) / 1_000, own_ms, (granted_us - killed_us) / 1_000


def _leader_pid(cluster: LocalCluster) -> int:
    leader = cluster.leader(10.0)
    if leader is None:
        raise UserError("there is no leader")
    return leader.pid


def _share(cluster: LocalCluster) -> float:
    """The share of one core that the leader takes while nothing but heartbeats happens."""
    pid = _leader_pid(cluster)
    before, begun = processor_s(pid), time.monotonic()
    time.sleep(_QUIET_S)
    return (processor_s(pid) - before) / (time.monotonic() - begun)


def _watched_rows(watchers: int, values: Mapping[str, float]) -> tuple[Row, ...]:
    """What watchers cost."""
    kinds = {"watched": f"{watchers} watchers of changes", "watched_whole": f"{watchers} watchers of whole statuses"}
    return tuple(
        Row(
            f"  the same with {kind}",
            f"{values[f'{name}_share']:.3f}, each {values[f'{name}_kib']:,.1f} KiB/s in {values[f'{name}_rate']:.1f}",
        )
        for name, kind in kinds.items()
    )


def _watched(cluster: LocalCluster, watchers: int, name: str, *, changes: bool) -> dict[str, float]:
    """The leader's share with so many watchers, and KiB that it sends to each of them in a second."""
    leader = cluster.leader(10.0)
    if leader is None:
        raise UserError("there is no leader")
    request = m.WatchRequest(_KEY, changes)
    with counted_watches(watchers, leader.address, cluster.credentials(), request) as watches:
        if not all(watch.wait(_LIMIT_S) for watch in watches):
            raise UserError(f"waited {_LIMIT_S:g} s for the first status of a watch")
        bytes_before, before, begun = _read(watches, "bytes_read"), _read(watches, "messages"), time.monotonic()
        share = _share(cluster)
        each = 1 / ((time.monotonic() - begun) * max(1, watchers))
        kib = (_read(watches, "bytes_read") - bytes_before) / 1024 * each
        rate = (_read(watches, "messages") - before) * each
    say(f"{name}, {watchers} watchers: the leader's share {share:.3f}, to each {kib:,.1f} KiB/s in {rate:.1f} messages")
    return {f"{name}_share": share, f"{name}_kib": kib, f"{name}_rate": rate}


def _read(watches: Sequence[CountedWatch], what: str) -> int:
    """What all have read so far."""
    return sum(getattr(watch, what) for watch in watches)


def _wait(what: str, done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _LIMIT_S
    while not done():
        if time.monotonic() > deadline:
            raise UserError(f"waited {_LIMIT_S:g} s for {what}")
        time.sleep(0.1)


def main() -> int:
    """Command line."""
    options = parser("control_plane", "One leader drives many task managers, played over real gRPC, without Spark.")
    options.add_argument("--subtasks", type=int, nargs="+", default=[1_000], help="of the job; several: one by one")
    options.add_argument("--task-managers", type=int, default=0, help="0: one for ten subtasks")
    options.add_argument("--processes", type=int, default=2, help="that play the task managers")
    options.add_argument("--checkpoints", type=int, default=5, help="how many to take")
    options.add_argument("--watchers", type=int, default=5, help="of the job, where that is measured")
    options.add_argument("--plot", metavar="FILE", default="", help="a picture, too: .png or .svg; needs matplotlib")
    return run(options.parse_args(), measure)


if __name__ == "__main__":
    sys.exit(main())
