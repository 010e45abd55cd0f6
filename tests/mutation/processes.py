"""Runs of pytest, each in a fork of this process: what takes long to import is imported once.

A fork has the memory of one thread only, so this process never has a second one of Python's.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import pickle
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import Phase, settings

from tests import mutated
from tests.mutation.verdict import Evidence
from tests.mutation.witness import Witness

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 900  # a bound, not an expectation: other work may share the machine
LOOK_EVERY_S = 0.02
ENDED = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
PROFILE = "mutation"
# Nothing of a test: pytest rewrites those as it imports them.
HEAVY = (
    "hypothesis.stateful",
    "pandas",
    "pyarrow.parquet",
    "pyspark.sql",
    "sqlalchemy",
    "lockgate_coordinator.runtime.process",
    "lockgate_ha.zookeeper",
    "lockgate",
    "lockgate.client",
    "lockgate_taskmanager.runtime.task_manager",
    "lockgate_taskmanager.spark.engine",
)


class CannotRun(Exception):
    """pytest did not get as far as a verdict."""


@dataclass(frozen=True)
class Run:
    """plugin: of the mutant, None for the code as it is."""

    tests: tuple[str, ...]
    plugin: str | None


class Processes:
    """Use it as a context: leaving ends what runs."""

    def __init__(self, jobs: int) -> None:
        """jobs: so many run at a time."""
        self._jobs = jobs
        self._started: dict[int, tuple[int, float]] = {}  # process id to the number of the run, and when
        self._folder = Path(tempfile.mkdtemp(prefix="lockgate-mutation-"))
        for name in HEAVY:
            importlib.import_module(name)
        settings.register_profile(PROFILE, phases=[Phase.explicit, Phase.generate])  # small examples are not read
        assert threading.active_count() == 1, threading.enumerate()
        gc.freeze()

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        for pid in self._started:
            _end(pid)
        shutil.rmtree(self._folder, ignore_errors=True)

    def evidence(self, runs: Sequence[Run]) -> Iterator[Evidence]:
        """In the order of the runs. Raises CannotRun."""
        waiting = list(enumerate(runs))
        ended: dict[int, Evidence] = {}
        for number in range(len(runs)):
            while number not in ended:
                while waiting and len(self._started) < self._jobs:
                    following, run = waiting.pop(0)
                    self._started[self._fork(following, run)] = following, time.monotonic()
                ended.update(self._reap(runs))
            yield ended.pop(number)

    def _fork(self, number: int, run: Run) -> int:
        folder = self._folder / str(number)
        folder.mkdir()
        pid = os.fork()
        if pid:
            return pid
        code = 1
        try:
            os.setpgid(0, 0)  # no session: the system would give it a share of its own, whatever `nice` says
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            code = _child(folder, run)
        finally:
            os._exit(code)

    def _reap(self, runs: Sequence[Run]) -> dict[int, Evidence]:
        """By the number of the run, those that have ended; waits a little when none has."""
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            self._refuse_slow(runs)
            time.sleep(LOOK_EVERY_S)
            return {}
        number, began = self._started.pop(pid)
        _end(pid)  # what its tests have left behind, a JVM perhaps
        folder, run = self._folder / str(number), runs[number]
        try:
            passed, failures = pickle.loads((folder / "evidence").read_bytes())
        except FileNotFoundError:
            output = (folder / "output").read_text("utf-8", "replace")
            code = os.waitstatus_to_exitcode(status)
            raise CannotRun(f"pytest ended with {code} for {run.plugin}:\n{output[-6000:]}") from None
        shutil.rmtree(folder, ignore_errors=True)
        return {number: Evidence(passed, failures, time.monotonic() - began)}

    def _refuse_slow(self, runs: Sequence[Run]) -> None:
        for number, began in self._started.values():
            if time.monotonic() - began > TIMEOUT_S:
                what = runs[number].plugin or "the sound code"
                raise CannotRun(f"the tests of {what} did not end in {TIMEOUT_S} s")


def _child(folder: Path, run: Run) -> int:
    """In the fork: runs pytest and leaves the evidence in the folder. The exit code."""
    output = os.open(folder / "output", os.O_WRONLY | os.O_CREAT, 0o600)
    for descriptor in (1, 2):
        os.dup2(output, descriptor)
    os.chdir(ROOT)
    witness = Witness(run.tests, stops_early=run.plugin is not None)
    options = ["-q", "--no-header", "-p", "no:cacheprovider", f"--basetemp={folder / 'tmp'}"]
    options += ["--hypothesis-seed=0"]
    if run.plugin is not None:
        os.environ[mutated.VARIABLE] = run.plugin
        options += [f"--hypothesis-profile={PROFILE}", "-p", f"tests.mutation.{run.plugin}"]
    code = pytest.main([*options, *run.tests], plugins=[witness])
    if code in ENDED:
        part = folder / "evidence.part"
        part.write_bytes(pickle.dumps((witness.passed, witness.failures)))
        part.rename(folder / "evidence")
    return int(code)


def _end(pid: int) -> None:
    """Of a fork and of all that it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)
