"""The drill itself: a job, kills, and a report of the outcome."""

from __future__ import annotations

import json
import math
import os
import random
import secrets
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lockgate_common.amounts import counted
from lockgate_proto.messages import LeaderFailover, TaskManagerFailover

from lockgate.client import Client
from lockgate.errors import UserError
from lockgate_devtools.cluster import LocalCluster
from lockgate_devtools.cluster.files import prepare_directory
from lockgate_devtools.cluster.foreground import Stopped, stopped_by_signals
from lockgate_devtools.cluster.sockets import is_known as can_cut_links
from lockgate_devtools.cluster.work_folder import WorkFolder
from lockgate_devtools.drill.arena import Arena, DrillError
from lockgate_devtools.drill.by_target import by_target
from lockgate_devtools.drill.model import Report, Target
from lockgate_devtools.drill.page import WATCHED_S, page
from lockgate_devtools.drill.processes import ProcessArena
from lockgate_devtools.drill.round import Round
from lockgate_devtools.drill.schedule import Repeated, Schedule, Shuffled
from lockgate_devtools.drill.tally import Tally
from lockgate_devtools.drill.tampering import prepare
from lockgate_devtools.drill.text import render

_LONGEST_PAUSE_S = 86_400
_LONGEST_MINUTES = 10_080  # a week
_MOST_ROUNDS = 3  # in addition to one for each kill

_COORDINATOR = {"heartbeat_ms": 200}  # heartbeats have the counters from which the throughput around a kill is known

Say = Callable[[str], None]


@dataclass(frozen=True)
class DrillOptions:
    """The options of a drill.

    kill, times: the target and the number of kills, unless minutes is set: for that long, everything is struck in turn.
    every_s: seconds between the recovery of the cluster and the next kill; seed: None draws one; cluster: addresses or
    directory of a running cluster, empty for the drill's own in a temporary folder; cluster_options: fields of
    ClusterOptions for the own one; failover, parts, standby_replicas: of the job; is_forward: see DrillPipeline;
    directory: for cluster, ledger and logs (kept); None for a temporary one. html_file: a page with the report.
    """

    kill: Target = Target.LEADER
    times: int = 3
    every_s: float = 5.0
    seed: int | None = None
    minutes: float = 0.0
    json_file: str = ""
    html_file: str = ""
    cluster: str = ""
    directory: str = ""
    checkpoint_interval_ms: int = 1000
    failover: LeaderFailover = LeaderFailover.LEADER_FAILOVER_UNSPECIFIED
    parts: TaskManagerFailover = TaskManagerFailover.TASK_MANAGER_FAILOVER_UNSPECIFIED
    standby_replicas: int = 0
    is_forward: bool = False
    cluster_options: Mapping[str, Any] = field(default_factory=dict)

    def check(self) -> None:
        """Raises DrillError naming the option that cannot work."""
        if self.times < 1:
            raise DrillError("--times must be 1 or more")
        if not 0 <= self.every_s <= _LONGEST_PAUSE_S:
            raise DrillError(f"--every must be 0 to {_LONGEST_PAUSE_S} seconds")
        if not 0 <= self.minutes <= _LONGEST_MINUTES:
            raise DrillError(f"--minutes must be more than 0 and at most {_LONGEST_MINUTES}")
        if self.cluster and self.cluster_options:
            raise DrillError(
                "--slots, --storage, --zookeepers, --spark-master and --spark-option are for the drill's own cluster: "
                "omit them, or --cluster"
            )
        if self.minutes and self.cluster:
            raise DrillError("--chaos damages more than processes, so it runs on a cluster of its own: omit --cluster")
        if self.minutes and "://" in str(self.cluster_options.get("storage", "")):
            raise DrillError("--chaos takes the storage away, which must be a folder: omit --storage")
        for name, option in ((self.json_file, "--json"), (self.html_file, "--html")):
            file = Path(name)
            if name and (file.is_dir() or not os.access(file if file.exists() else file.parent, os.W_OK)):
                raise DrillError(f"cannot write {file}: its folder must exist and be writable; see {option}")

    def schedule(self, choice: random.Random) -> Schedule:
        """What is struck."""
        if not self.minutes:
            return Repeated(self.kill, self.times)
        everything = [target for target in Target if not target.is_link or can_cut_links()]
        return Shuffled(self.minutes * 60, choice, everything)

    @property
    def most_rounds(self) -> int:
        """More mean that the cluster does not recover."""
        return _MOST_ROUNDS + (math.ceil(self.minutes * 4) if self.minutes else self.times)


def run_drill(options: DrillOptions | None = None, say: Say | None = None, **changes: Any) -> int:
    """Runs a drill, prints its report, writes the files. An early end keeps what was found before.

    Returns the exit code: 0 on a pass, 1 on a fail; otherwise 2 when it could not run or be completed (one line
    `error: ...` on stderr), 130 when it was interrupted. Keyword arguments are fields of DrillOptions.
    """
    chosen = options or DrillOptions(**changes)
    tell = say or (lambda line: print(line, flush=True))
    tally = Tally(secrets.randbelow(2**32) if chosen.seed is None else chosen.seed)
    code, stopped = 0, "an unexpected error"
    try:
        with stopped_by_signals():
            drill(chosen, tally, tell)
    except Stopped:
        code, stopped = 130, "it was interrupted"
    except (UserError, OSError) as error:
        code, stopped = _fail(error), str(error)
    finally:  # also after an unforeseen error
        report = tally.report(stopped)
        if tally.rounds:
            code = _publish(chosen, report, tell) or code
    return 1 if report.failed and tally.rounds else code


def _publish(options: DrillOptions, report: Report, tell: Say) -> int:
    """Returns an exit code: 2 when the report could not be shown, or a file not written."""

    def show() -> None:
        tell(render(report))

    def write_json() -> None:
        if options.json_file:
            found = {**report.to_json(), "by_target": [row.to_json() for row in by_target(report.kills)]}
            Path(options.json_file).write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")

    def write_page() -> None:
        if options.html_file:
            Path(options.html_file).write_text(page(report), encoding="utf-8")

    code = 0
    for publish in (show, write_json, write_page):  # each of them may fail
        try:
            publish()
        except OSError as error:
            code = _fail(error)
    return code


def _fail(error: Exception) -> int:
    print(f"error: {error}", file=sys.stderr, flush=True)
    return 2


def _remove(file: Path) -> None:
    """Removes a report of an earlier drill, which must not pass for the one of this drill. Raises OSError."""
    if not file.is_file():  # there is none, or it is a device
        return
    if not file.is_symlink() and os.access(file.parent, os.W_OK):
        file.unlink()
    else:
        file.write_text("", encoding="utf-8")


def drill(options: DrillOptions, tally: Tally, say: Say) -> None:
    """Runs a drill. tally: gets the results. Raises UserError when it cannot run."""
    options.check()
    for name in (options.json_file, options.html_file):
        if name:
            _remove(Path(name))
    with ExitStack() as stack:
        work = None if options.directory else stack.enter_context(WorkFolder("lockgate-drill-", say))
        folder = work.path if work else Path(options.directory).absolute()
        prepare_directory(folder)
        what = (
            f"attack everything for {options.minutes:g} minutes"
            if options.minutes
            else f"kill the {options.kill.value} {options.times} times"
        )
        say(f"drill: {what}, every {options.every_s:g} s, seed {tally.seed}")
        cluster = None
        if options.cluster:
            client = stack.enter_context(Client.connect(options.cluster))
        else:
            say("starting a cluster ...")
            started = time.monotonic()
            settings = {"coordinator": _COORDINATOR, **options.cluster_options}
            if options.minutes:
                settings |= {"relayed": can_cut_links(), "environment": prepare(folder / "cluster")}
            cluster = stack.enter_context(LocalCluster(folder / "cluster", **settings))
            say(f"cluster ready after {time.monotonic() - started:.1f} s: {', '.join(cluster.coordinators)}")
            client = stack.enter_context(
                Client(cluster.coordinators, cluster.zookeeper, credentials=cluster.credentials())
            )
        try:
            drill_in(options, tally, ProcessArena(client, cluster, folder), say)
        finally:
            if work and tally.has_failed:
                work.keep()


def drill_in(options: DrillOptions, tally: Tally, arena: Arena, say: Say) -> None:
    """Drills in an existing arena: rounds until every kill is done or a round finds a fault. Raises UserError."""
    status = arena.survey(Target.STORAGE if options.minutes else options.kill)
    say(f"{counted(len(status.coordinators), 'coordinator')}, {counted(len(status.task_managers), 'task manager')}")
    choice = random.Random(tally.seed)
    key = f"drill-{secrets.token_hex(4)}"
    schedule, began = options.schedule(choice), time.monotonic()
    while not tally.has_failed and (targets := schedule.next_round(tally.kills, time.monotonic() - began)):
        if len(tally.rounds) == options.most_rounds:
            raise DrillError("the cluster takes too long to recover; see its logs")
        round_ = Round(
            f"{key}-{len(tally.rounds) + 1}",
            arena,
            say,
            choice,
            targets,
            options.every_s,
            options.checkpoint_interval_ms,
            {
                "leader_failover": options.failover,
                "task_manager_failover": options.parts,
                "standby_replicas": options.standby_replicas,
            },
            WATCHED_S if options.minutes and options.html_file else 0.0,
            is_chaos=options.minutes > 0,
            is_forward=options.is_forward,
        )
        first = tally.kills + 1
        tally.rounds.append(round_.result)
        round_.run(first)
    tally.is_over = True
