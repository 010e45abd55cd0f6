"""Runs one example on a cluster, injects failures, and checks the result."""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import Future, wait
from dataclasses import dataclass, field

from lockgate_devtools.drill.model import Target
from lockgate_devtools.drill.observer import JobObserver
from lockgate_devtools.drill.processes import ProcessArena
from lockgate_devtools.drill.text import describe_kill
from lockgate_devtools.drill.timeline import Before, assemble, checkpoint_counts, is_survived
from lockgate_proto.messages import JobGraph, JobState, JobStatus

from examples.frame.example import Example, Place, Scene, Step, Wrong
from examples.frame.stage import Say, Stage
from lockgate.client import ClientError
from lockgate.errors import UserError

_LIMIT_S = 240.0
_SURVIVAL_LIMIT_S = 60.0
_EARLIEST, _LATEST = 0.25, 0.5  # share of the input that is read when a kill strikes
_STEP_IS_UNDER_WAY_S = 0.5  # a kill beside a step strikes within so long after the step's start


def run(name: str, example: Example, stage: Stage, kill: Target | None, seed: int, say: Say) -> list[str]:
    """Runs it there. Returns sentences on what is wrong: none on success. Raises UserError when it cannot run."""
    key, folder = stage.enter(name, example)
    place = Place(folder / "input", folder / "output", seed)
    for item in (place.input, place.output):
        item.mkdir(parents=True)
    with example.beside():
        return _perform(key, example, place, stage, kill, say) or _judge(example, place, say)


def _perform(key: str, example: Example, place: Place, stage: Stage, kill: Target | None, say: Say) -> list[str]:
    records = example.make_input(place)
    say(f"{key}: {example.line}")
    say(f"seed {place.seed}, {records:,} records")
    arena = stage.arena()
    graph = example.pipeline(place).graph()
    performance = _Performance(key, graph, records, arena, place, random.Random(place.seed), say)
    performance.play(example.steps, kill)
    return performance.problems


def _judge(example: Example, place: Place, say: Say) -> list[str]:
    """The example's own verdict; what it tells of a result that is right goes to the screen."""
    try:
        problems = example.check(place)
        summary = "" if problems else example.summary(place)
    except Exception as error:  # whatever an example's author reads the result with
        return [f"the result cannot be read: {type(error).__name__}: {error}"]
    if summary:
        say(f"  {summary}")
    return problems


@dataclass
class _Performance:
    """One run of a job, and of the jobs that continue its work: from the first submission to the last end."""

    key: str
    graph: JobGraph
    records: int
    arena: ProcessArena
    place: Place
    choice: random.Random
    say: Say
    problems: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        fed = {edge.target for edge in self.graph.edges}
        self._sources = {vertex.operators[0].id for vertex in self.graph.vertices if vertex.id not in fed}

    def play(self, steps: tuple[Step, ...], kill: Target | None) -> None:
        """Submits, does the steps, kills, and waits for the end."""
        self.arena.client.submit(self.key, self.graph)
        observer = JobObserver(self.arena.client, self.key)
        try:
            struck = self.choice.randrange(len(steps)) if steps and kill else -1
            if kill and not steps:
                self._wait_for(observer, self.choice.uniform(_EARLIEST, _LATEST), "the kill")
                self._strike(observer, kill, _last_status(observer))
            for number, step in enumerate(steps):
                self._wait_for(observer, step.at, step.text)
                successor = self._carry_out(step, observer, kill if number == struck else None)
                if successor is not None:
                    observer = self._turn_to(successor, observer)
            self._wait_for_end(observer)
        finally:
            observer.close()

    def _turn_to(self, successor: str, observer: JobObserver) -> JobObserver:
        """From now on the other job is watched."""
        observer.close()
        self.key = successor
        return JobObserver(self.arena.client, successor)

    def _wait_for(self, observer: JobObserver, share: float, what: str) -> None:
        """Waits until this much is read and there is a snapshot. Raises UserError when the job ended before that."""

        def ready() -> bool:
            snapshots = checkpoint_counts(observer.events)[0]
            return _is_running(observer) and snapshots > 0 and self._read(observer.status) >= share

        if not observer.wait_for(ready, _LIMIT_S):
            raise UserError(f"{self.key}: there was no middle for {what}: {_story(observer)}")

    def _read(self, status: JobStatus | None) -> float:
        operators = status.operators if status is not None else ()
        return sum(operator.records_out for operator in operators if operator.operator_id in self._sources) / max(
            1, self.records
        )

    def _carry_out(self, step: Step, observer: JobObserver, kill: Target | None) -> str | None:
        """Returns the key of the job that continues from here, if that is another one."""
        before = _last_status(observer)
        self.say(f"{self._read(before):.0%} read: {step.text}")
        started = time.monotonic()
        done = _begun(step, Scene(self.arena.client, self.key, self.place, self.say))
        if kill is not None:
            wait([done], self.choice.uniform(0, _STEP_IS_UNDER_WAY_S))
            self._strike(observer, kill, before)
        try:
            successor = done.result(_LIMIT_S)
        except TimeoutError:
            raise UserError(f"{step.text}: not done after {_LIMIT_S:g} s") from None
        except ClientError as error:
            raise UserError(f"{step.text}: {error}") from error
        except Wrong as error:
            self.problems.append(f"{step.text}: {error}")
            return None
        self.say(f"  done after {time.monotonic() - started:.1f} s")
        return successor

    def _strike(self, observer: JobObserver, target: Target, status: JobStatus) -> None:
        """Kills, and waits until the job has recovered, or has ended as a step intended. status: who runs subtasks."""
        victim = self.arena.victim(target, status, self.choice)
        share = self._read(observer.status)
        before = Before(self.arena.kill(victim), status.token, status.attempt)
        self.say(f"{share:.0%} read: SIGKILL for {victim.text}, pid {victim.pid}")
        observer.wait_for(lambda: is_survived(assemble(target, victim.pid, before, observer.events)), _SURVIVAL_LIMIT_S)
        found = assemble(target, victim.pid, before, observer.events)
        self.say("  " + describe_kill(found))
        if found.deployed_ms is None and not observer.has_ended:
            self.problems.append(f"the kill had no effect: {_story(observer)}")

    def _wait_for_end(self, observer: JobObserver) -> None:
        observer.wait_for(lambda: observer.has_ended, _LIMIT_S)
        if observer.status is None or observer.status.state != JobState.FINISHED:
            self.problems.append(f"the job has not finished: {_story(observer)}")
        else:
            completed = checkpoint_counts(observer.events)[0]
            self.say(f"finished: {completed} checkpoints, {observer.status.restarts} restart(s)")


def _begun(step: Step, scene: Scene) -> Future[str | None]:
    """The step on a thread that does not hold up the end of the process."""
    done: Future[str | None] = Future()

    def do() -> None:
        try:
            done.set_result(step.do(scene))
        except Exception as error:
            done.set_exception(error)

    threading.Thread(target=do, name="example-step", daemon=True).start()
    return done


def _last_status(observer: JobObserver) -> JobStatus:
    assert observer.status is not None
    return observer.status


def _is_running(observer: JobObserver) -> bool:
    return observer.status is not None and observer.status.state == JobState.RUNNING


def _story(observer: JobObserver) -> str:
    status = observer.status
    if status is None:
        return "it was never seen"
    return " ".join(part for part in (status.state.name, status.error or status.message) if part)
