"""StateQueries: passes reads of keyed state on to a task manager, which reads them from storage. Actor thread only.

The leader itself reads no state: it only says which file a completed checkpoint is, and has the newest ones opened
while a job is queried, see ServedCheckpoints.
"""

from __future__ import annotations

import itertools
import secrets
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from lockgate_common.clock import monotonic_ms
from lockgate_proto.messages import CompletedCheckpoint, OperatorKeys, QueryOutcome, StateAnswer, StateQuery

from lockgate_coordinator.checkpoint.served import ServedCheckpoints
from lockgate_coordinator.runtime.actor import Actor, Timer
from lockgate_coordinator.runtime.errors import Busy, Stopped

WAIT_MS = 30_000
"""For an answer: the first one from a large file takes seconds."""
MOST_WAITING = 256


@dataclass(slots=True)
class _Asked:
    """A query without an answer yet."""

    answer: Future[StateAnswer]
    task_manager_id: str
    operators: tuple[OperatorKeys, ...]
    timer: Timer


@dataclass(slots=True)
class _Reading:
    """The checkpoints of one run of a job that its reader, a task manager, has opened."""

    run_id: str
    task_manager_id: str
    served: ServedCheckpoints = field(default_factory=ServedCheckpoints)


@dataclass(frozen=True, slots=True)
class Query:
    """Some keys of a job. run_id: of the running one, "" for a job that has ended.

    checkpoint: which one to read; is_newest: an earlier one may answer that is open already. There is nothing new to
    open of a job that has ended.
    """

    job_key: str
    run_id: str
    checkpoint: CompletedCheckpoint
    operators: tuple[OperatorKeys, ...]
    is_newest: bool = False


class StateQueries:
    """The queries of one term. send: to a task manager; False when it is not registered."""

    def __init__(self, actor: Actor, send: Callable[[str, StateQuery], bool]) -> None:
        self._actor = actor
        self._send = send
        # A task manager may answer a later leader with what an earlier one asked: numbers of terms must not meet.
        self._numbers = itertools.count(secrets.randbits(62))
        self._asked: dict[int, _Asked] = {}
        self._readings: dict[str, _Reading] = {}  # by job key, while it is queried

    def ask(self, query: Query, task_managers: Sequence[str]) -> tuple[CompletedCheckpoint, Future[StateAnswer]]:
        """Reads keys; returns the checkpoint that answers, too. task_managers: those present.

        The future fails with Busy and Stopped. The queries of a job go to the same task manager, which has its files
        open, as long as it is there.
        """
        if len(self._asked) >= MOST_WAITING:
            text = f"{MOST_WAITING} state queries are waiting for answers already; try again"
            return query.checkpoint, _failed(Busy(text))
        name = max(task_managers, key=lambda each: zlib.crc32(f"{query.job_key} {each}".encode()), default="")
        if not name:
            return query.checkpoint, _failed(_no_reader())
        if not query.is_newest or not query.run_id:
            return query.checkpoint, self._ask(name, query.checkpoint, query.operators)
        reading = self._reading(query.job_key, query.run_id, name)
        operators = {operator.operator_id for operator in query.operators}
        chosen = reading.served.choose(query.checkpoint, operators, monotonic_ms())
        self._open_next(query.job_key, reading)
        answer = self._ask(name, chosen, query.operators)
        answer.add_done_callback(lambda done: _drop_if_missing(reading.served, chosen, done))
        return chosen, answer

    def completed(self, job_key: str, run_id: str, checkpoint: CompletedCheckpoint) -> None:
        """A job has a new checkpoint: it is opened if the job is queried."""
        reading = self._readings.get(job_key)
        if reading is None:
            return
        if reading.run_id != run_id or reading.served.is_over(monotonic_ms()):
            del self._readings[job_key]
        else:
            reading.served.completed(checkpoint, monotonic_ms())
            self._open_next(job_key, reading)

    def ended(self, job_key: str) -> None:
        """The job completes no more checkpoints."""
        self._readings.pop(job_key, None)

    def answer(self, task_manager_id: str, answer: StateAnswer) -> None:
        """Handles a task manager's answer. Late and unexpected ones are dropped."""
        asked = self._asked.get(answer.request)
        if asked is None or asked.task_manager_id != task_manager_id:
            return
        if answer.outcome is QueryOutcome.ANSWERED and not _fits(answer, asked.operators):
            text = f"task manager {task_manager_id} answered for other keys than it was asked for; try again"
            self._fail(answer.request, Busy(text))
        else:
            del self._asked[answer.request]
            asked.timer.cancel()
            asked.answer.set_result(answer)

    def lost(self, task_manager_id: str) -> None:
        """A task manager is gone, and with it what it was asked."""
        self._readings = {key: each for key, each in self._readings.items() if each.task_manager_id != task_manager_id}
        for number, asked in list(self._asked.items()):
            if asked.task_manager_id == task_manager_id:
                self._fail(number, Busy(f"task manager {task_manager_id}, which read the state, is gone; try again"))

    def close(self) -> None:
        """The term is over."""
        self._readings.clear()
        for number in list(self._asked):
            self._fail(number, Stopped("this coordinator no longer leads; ask the new leader"))

    def _reading(self, job_key: str, run_id: str, task_manager_id: str) -> _Reading:
        known = self._readings.get(job_key)
        if known is None or (known.run_id, known.task_manager_id) != (run_id, task_manager_id):
            known = self._readings[job_key] = _Reading(run_id, task_manager_id)
        return known

    def _open_next(self, job_key: str, reading: _Reading) -> None:
        opening = reading.served.next_opening(monotonic_ms())
        if opening is None:
            return
        operators = tuple(OperatorKeys(operator) for operator in opening.operators)
        answer = self._ask(reading.task_manager_id, opening.checkpoint, operators, open_only=True)
        answer.add_done_callback(lambda done: self._opened(job_key, reading, done))

    def _opened(self, job_key: str, reading: _Reading, done: Future[StateAnswer]) -> None:
        if done.exception() is None and done.result().outcome is QueryOutcome.ANSWERED:
            reading.served.opened()
        else:
            reading.served.failed()
        if self._readings.get(job_key) is reading:
            self._open_next(job_key, reading)

    def _ask(
        self,
        name: str,
        checkpoint: CompletedCheckpoint,
        operators: tuple[OperatorKeys, ...],
        *,
        open_only: bool = False,
    ) -> Future[StateAnswer]:
        number = next(self._numbers)
        if not self._send(name, StateQuery(number, checkpoint.pointer, checkpoint.checksum, operators, open_only)):
            return _failed(_no_reader())
        timer = self._actor.at(monotonic_ms() + WAIT_MS, lambda: self._late(number))
        self._asked[number] = _Asked(Future(), name, operators, timer)
        return self._asked[number].answer

    def _late(self, number: int) -> None:
        asked = self._asked.get(number)
        if asked is not None:
            text = f"task manager {asked.task_manager_id} did not read the state within {WAIT_MS} ms; try again"
            self._fail(number, Busy(text))

    def _fail(self, number: int, error: Exception) -> None:
        asked = self._asked.pop(number)
        asked.timer.cancel()
        asked.answer.set_exception(error)


def is_file_missing(answer: StateAnswer) -> bool:
    """Whether a file was missing: the checkpoint was deleted, the file is lost, or the storage is away."""
    return answer.outcome is QueryOutcome.CHECKPOINT_GONE


def _drop_if_missing(served: ServedCheckpoints, checkpoint: CompletedCheckpoint, done: Future[StateAnswer]) -> None:
    if done.exception() is None and is_file_missing(done.result()):
        served.lost(checkpoint)


def _fits(answer: StateAnswer, operators: tuple[OperatorKeys, ...]) -> bool:
    """Whether there is a value for each key, in order."""
    wanted = [operator.operator_id for operator in operators for _ in operator.keys]
    return [value.operator_id for value in answer.values] == wanted


def _no_reader() -> Busy:
    return Busy("no task manager is registered that could read the state; try again")


def _failed(error: Exception) -> Future[StateAnswer]:
    failed: Future[StateAnswer] = Future()
    failed.set_exception(error)
    return failed
