"""One job of a drill, from its submission to the check of its output, with kills in between."""

from __future__ import annotations

import contextlib
import dataclasses
import random
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from lockgate_common.clock import unix_us
from lockgate_proto.messages import JobState

from lockgate.client import ClientError
from lockgate_devtools.drill.arena import Arena, DrillError
from lockgate_devtools.drill.continuity import is_measured, measured, progress
from lockgate_devtools.drill.model import Kill, RecordCheck, Target
from lockgate_devtools.drill.observer import JobObserver
from lockgate_devtools.drill.oracle import LedgerOracle, check_totals
from lockgate_devtools.drill.pipeline import DrillPipeline
from lockgate_devtools.drill.text import describe_kill
from lockgate_devtools.drill.timeline import (
    Before,
    assemble,
    checkpoint_counts,
    has_committed,
    history_problems,
    is_survived,
)

_PARTITIONS = 4
_ROWS_PER_SECOND = 2000.0  # of each partition
_START_LIMIT_S = 60.0
_SURVIVAL_LIMIT_S = 60.0
_COMPLETE_LIMIT_S = 180.0  # a task manager that starts beside a busy job
_MEASURE_LIMIT_S = 5.0
# The input that a kill needs after it; otherwise the job could end before its effects are seen.
_LEAST_REST_S = 3.0
# The duration of a kill besides the pause before it, until the cluster is complete again, on an idle machine.
_AFTERMATH_S = {
    Target.LEADER: 3.0,
    Target.STANDBY: 3.0,
    Target.TASKMANAGER: 12.0,
    Target.ZOOKEEPER: 5.0,
    Target.LEADER_AND_TASKMANAGER: 15.0,
    Target.FROZEN_LEADER: 8.0,
    Target.FROZEN_TASKMANAGER: 12.0,
    Target.STORAGE: 6.0,
    Target.FULL_STORAGE: 6.0,
    Target.LINK_LEADER_ZOOKEEPER: 12.0,
    Target.LINK_LEADER_TASKMANAGER: 12.0,
    Target.LINK_TASKMANAGERS: 12.0,
    Target.ONE_WAY_LEADER_ZOOKEEPER: 12.0,
    Target.ONE_WAY_LEADER_TASKMANAGER: 12.0,
    Target.ONE_WAY_TASKMANAGERS: 12.0,
    Target.LEADER_CLOCK: 3.0,
    Target.TASKMANAGER_CLOCK: 3.0,
}

Say = Callable[[str], None]


@dataclass
class RoundResult:
    """The results of a round."""

    kills: list[Kill] = field(default_factory=list)
    records: RecordCheck = field(default_factory=lambda: RecordCheck(0, 0, 0))
    completed: int = 0
    aborted: int = 0
    problems: list[str] = field(default_factory=list)


class Round:
    """Strikes at one target after the other while its job runs.

    The input is bounded, so that the expected output is known in advance; if a slow machine needs more time than
    planned, the round ends with fewer kills and the drill starts another one.
    """

    def __init__(
        self,
        key: str,
        arena: Arena,
        say: Say,
        choice: random.Random,
        targets: Sequence[Target],
        every_s: float,
        checkpoint_interval_ms: int,
        job_options: Mapping[str, Any],
        watched_s: float = 0.0,
        *,
        is_chaos: bool = False,
        is_forward: bool = False,
    ) -> None:
        """job_options: fields of its graph. is_forward: see DrillPipeline.

        watched_s: the progress of the job is kept for this long before and after a kill. is_chaos: among the targets
        are some that are frozen, or whose clock is off, until the next one.

        `result`: each finding from the moment when it is known.
        """
        self.result = RoundResult()
        self._watched_s = watched_s
        self._is_chaos = is_chaos
        self._is_forward = is_forward
        self._key = key
        self._arena = arena
        self._say = say
        self._random = choice
        self._targets = targets
        self._every_s = every_s
        self._interval_ms = checkpoint_interval_ms
        self._job_options = job_options

    def run(self, first: int) -> RoundResult:
        """first: number of the first kill, for the output. Returns `result`.

        Raises DrillError when the job does not start, and ClientError.
        """
        account = self.result
        each_s = [self._every_s + max(_AFTERMATH_S[target], self._watched_s) for target in self._targets]
        seconds = sum(each_s) + _LEAST_REST_S + 1
        pipeline = DrillPipeline(
            self._arena.make_folder(self._key),
            partitions=_PARTITIONS,
            rows=int(seconds * _ROWS_PER_SECOND),
            rate=_ROWS_PER_SECOND,
            parallelism=2,
            checkpoint_interval_ms=self._interval_ms,
            is_forward=self._is_forward,
        )
        self._arena.client.submit(self._key, dataclasses.replace(pipeline.graph(), **self._job_options))
        observer = JobObserver(self._arena.client, self._key, sets_clocks_off=self._is_chaos)
        try:
            self._wait_for_start(observer)
            end = time.monotonic() + seconds - _LEAST_REST_S
            self._say(f"job {self._key} runs; {pipeline.partitions * pipeline.rows} records remaining")
            for number, target in enumerate(self._targets, first):
                if not self._one_kill(number, target, observer, account, end):
                    break
            # what was frozen wakes up while the job runs
            if self._is_chaos and not self._arena.wait_complete(_COMPLETE_LIMIT_S):
                account.problems.append(f"after the last kill the cluster was not complete for {_COMPLETE_LIMIT_S:g} s")
            self._wait_for_end(observer, account, seconds)
            self._check_output(pipeline, observer, account)
            return account
        finally:
            observer.close()
            if not observer.has_ended:
                with contextlib.suppress(ClientError):  # earlier errors are more important
                    self._arena.client.cancel(self._key)

    def _wait_for_start(self, observer: JobObserver) -> None:
        if not observer.wait_for(lambda: checkpoint_counts(observer.events)[0] > 0, _START_LIMIT_S):
            raise DrillError(f"the job completed no checkpoint within {_START_LIMIT_S:g} s: {_story(observer)}")

    def _one_kill(self, number: int, target: Target, observer: JobObserver, account: RoundResult, end: float) -> bool:
        """False when this round is over: too little input is left, or an error occurred."""
        if not self._arena.wait_complete(_COMPLETE_LIMIT_S):
            account.problems.append(f"before kill {number} the cluster was not complete after {_COMPLETE_LIMIT_S:g} s")
            return False
        observer.wait_for(lambda: _state(observer) == JobState.RUNNING, _SURVIVAL_LIMIT_S)
        observer.wait_for(lambda: False, self._every_s + self._random.uniform(0, self._interval_ms / 1000))
        if time.monotonic() > end or _state(observer) in (JobState.FINISHING, JobState.FINISHED):
            return False
        if _state(observer) != JobState.RUNNING:
            account.problems.append(f"before kill {number} the job was not running: {_story(observer)}")
            return False
        return self._kill_one(number, target, observer, account)

    def _kill_one(self, number: int, target: Target, observer: JobObserver, account: RoundResult) -> bool:
        status = self._arena.client.job(self._key)
        victim = self._arena.victim(target, status, self._random)
        self._say(f"kill {number}: {victim.text}" + (f", pid {victim.pid}" if victim.pid else ""))
        before = Before(self._arena.kill(victim), status.token, status.attempt)
        over_us = unix_us()  # of a link

        def seen() -> Kill:
            found = assemble(target, victim.pid, before, observer.events)
            return measured(found, before, observer.samples)

        def is_over() -> bool:
            return has_committed(observer.events, over_us) and is_survived(seen())

        survived = observer.wait_for(is_over, _SURVIVAL_LIMIT_S)
        if not survived and _state(observer) == JobState.FINISHED:
            self._say("  too late: no input was left to continue with; this kill does not count")
            return False
        if survived:
            observer.wait_for(lambda: is_measured(seen()), _MEASURE_LIMIT_S)
        if survived and self._watched_s:
            observer.wait_for(lambda: False, self._watched_s - (unix_us() - before.unix_us) / 1_000_000)
        around = progress(before, observer.samples, self._watched_s) if self._watched_s else ()
        account.kills.append(dataclasses.replace(seen(), progress=around))
        self._say("  " + describe_kill(account.kills[-1]))
        if not survived:
            account.problems.append(
                f"kill {number} was not survived within {_SURVIVAL_LIMIT_S:g} s: {_story(observer)}"
            )
        return survived

    def _wait_for_end(self, observer: JobObserver, account: RoundResult, seconds: float) -> None:
        if not account.problems:
            self._say("waiting for the end of the input ...")
        observer.wait_for(lambda: observer.has_ended, seconds + _SURVIVAL_LIMIT_S)
        if _state(observer) != JobState.FINISHED:
            account.problems.append(f"the job has not finished: {_story(observer)}")

    def _check_output(self, pipeline: DrillPipeline, observer: JobObserver, account: RoundResult) -> None:
        rows = [pipeline.rows] * pipeline.partitions
        oracle = LedgerOracle(rows)
        try:
            pipeline = dataclasses.replace(pipeline, folder=self._arena.fetch(pipeline.folder))
            pipeline.read_ledger(oracle)
            if not pipeline.is_forward:
                account.problems += check_totals(rows, pipeline.read_totals())
        except (OSError, pa.ArrowException, sqlite3.Error) as error:
            account.problems.append(f"the job's output cannot be read: {error}")
        account.records = oracle.check()
        account.problems += history_problems(observer.events)
        account.completed, account.aborted = checkpoint_counts(observer.events)


def _state(observer: JobObserver) -> JobState:
    return JobState.JOB_STATE_UNSPECIFIED if observer.status is None else observer.status.state


def _story(observer: JobObserver) -> str:
    status = observer.status
    if status is None:
        return "no status was received"
    return " ".join(part for part in (status.state.name, status.error or status.message) if part)
