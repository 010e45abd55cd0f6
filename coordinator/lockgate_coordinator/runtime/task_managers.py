"""The task managers registered with this leader: connected, silent and lost ones. Actor thread only.

register --> connected --stream broke--> away --same process registers within the grace--> connected
                 |                         |
                 |-- Goodbye --------------|--------------------------------------------------> left
                 +---- silent for the      +---- its port refuses, or the grace is over --> lost
                       heartbeat timeout --------------------------------------------------> lost
"""

from __future__ import annotations

import logging
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import grpc
from lockgate_common.addresses import ProbeAnswer
from lockgate_common.clock import monotonic_ms
from lockgate_common.ports import probe_tcp
from lockgate_common.recurring_log import RecurringLog
from lockgate_common.session import Session
from lockgate_proto.messages import (
    AssignSplitsTogether,
    AttemptGone,
    AttemptId,
    AttemptProgress,
    CoordinatorMessage,
    Deploy,
    Goodbye,
    Heartbeat,
    KeepCopies,
    Register,
    Registered,
    Release,
    StateQuery,
    StoryRequest,
    TaskManagerMessage,
)
from lockgate_proto.release import own_release, release_problem
from lockgate_proto.splits import orders_in

from lockgate_coordinator.job.effects import ControlBody
from lockgate_coordinator.runtime.actor import Actor, Timer
from lockgate_coordinator.runtime.heartbeat_pace import HeartbeatPace
from lockgate_coordinator.runtime.link import MAX_QUEUED, Registration, TaskManagerLink
from lockgate_coordinator.runtime.settings import CoordinatorSettings
from lockgate_coordinator.runtime.undeliverable import report_instead
from lockgate_coordinator.runtime.workers import KeyedWorkers

log = logging.getLogger(__name__)

Body = ControlBody | StoryRequest | StateQuery

GRACE_MS = 1_000
PROBE_AGAIN_MS = 50


@dataclass(slots=True, eq=False)
class TaskManager:
    """One registered process. running: attempts that it reported or was ordered to run, with what it reported.

    knows_term: it has sent something with this term's token, so whatever has a lower one is older.
    """

    task_manager_id: str
    exchange_address: str
    pid: int
    incarnation: str
    slots: int
    link: TaskManagerLink
    session: Session[Body]
    last_seen_ms: int
    release: Release | None = None
    running: dict[AttemptId, AttemptProgress | None] = field(default_factory=dict)
    knows_term: bool = False
    away: bool = False
    grace: Timer | None = None
    takes_batches: bool = False  # reads AssignSplitsTogether
    missed_orders: bool = False  # has handled messages of a leader, and not those of this one before it registered
    copied: set[str] = field(default_factory=set)  # runs of which an order for copies may be unacknowledged


class Listener(Protocol):
    """Notified of task managers. Called on the actor thread."""

    def task_manager_added(self, task_manager: TaskManager) -> None:
        """A task manager is connected (again)."""
        ...

    def task_manager_lost(self, task_manager: TaskManager, reason: str, *, planned: bool) -> None:
        """A process is lost permanently. planned: it announced its end."""
        ...

    def task_manager_reported(self, task_manager: TaskManager, message: TaskManagerMessage) -> None:
        """A message other than Register."""
        ...


class TaskManagers:
    """The registry of one term."""

    def __init__(
        self, token: int, settings: CoordinatorSettings, actor: Actor, probes: KeyedWorkers, listener: Listener
    ) -> None:
        self._token = token
        self._settings = settings
        self._actor = actor
        self._probes = probes
        self._listener = listener
        self._members: dict[str, TaskManager] = {}
        self._releases: dict[Release | None, dict[str, None]] = {}  # of the members, with their ids
        self._pace = HeartbeatPace(settings.heartbeat_ms, settings.heartbeat_timeout_ms)
        self._sequence = 0
        self._last_beat_ms, self._beat_after_ms = monotonic_ms(), settings.heartbeat_ms
        self._beat_timer: Timer | None = None
        self._trouble = RecurringLog()
        self._closed = False

    def start(self) -> None:
        """Starts the heartbeats."""
        self._beat_timer = self._actor.at(monotonic_ms() + self._settings.heartbeat_ms, self._beat)

    def close(self, code: grpc.StatusCode, reason: str) -> None:
        """Ends every stream without declaring any task manager lost."""
        self._closed = True
        if self._beat_timer is not None:
            self._beat_timer.cancel()
        for member in self._members.values():
            if member.grace is not None:
                member.grace.cancel()
            member.link.close(code, reason)
        self._members.clear()
        self._releases.clear()

    def all(self) -> tuple[TaskManager, ...]:
        """Every task manager that is not lost, by id."""
        return tuple(self._members[name] for name in sorted(self._members))

    def register(self, registration: Registration) -> None:
        """Admits a stream. The newest stream of a process wins; a new process with the same id replaces the old one.

        Unless the old one certainly lives: then two processes are configured with one id, and would evict each other.
        """
        if self._closed:
            registration.link.close(grpc.StatusCode.UNAVAILABLE, "this coordinator no longer leads")
            return
        if problem := self._misfit(registration):
            self._trouble.warning(log, registration.task_manager_id, "refused: %s", problem)
            registration.link.close(grpc.StatusCode.INVALID_ARGUMENT, problem)
            return
        known = self._members.get(registration.task_manager_id)
        register = registration.register
        is_same = (
            known is not None and known.incarnation == register.incarnation != ""
        )  # "": its version has no numbers
        if known is not None and not is_same:
            if self._may_be_alive(known, registration):
                self._compare(known, registration)
                return
            self._lose(known, f"it was restarted as process {register.pid}")
            known = None
        if known is None:
            self._admit(registration)
        elif known.knows_term and registration.token < self._token:
            reason = "this registration is older than the last message of the same process"
            registration.link.close(grpc.StatusCode.ABORTED, reason)
        else:
            self._readmit(known, registration)

    def _misfit(self, registration: Registration) -> str:
        """Why its version cannot work with this coordinator or, in the exchange, with the other task managers."""
        name, release = f"task manager {registration.task_manager_id}", registration.register.release
        if problem := release_problem(own_release(), "this coordinator", release, name):
            return problem
        for known, members in self._releases.items():
            other = next((member for member in members if member != registration.task_manager_id), "")
            if other and (problem := release_problem(known or Release(), f"task manager {other}", release, name)):
                return problem
        return ""

    def _may_be_alive(self, known: TaskManager, registration: Registration) -> bool:
        """Whether two living processes may use one id. A restart shows by the same exchange or the broken stream."""
        taken_over = known.exchange_address == registration.register.exchange_address  # one process has a port
        silent = monotonic_ms() - known.last_seen_ms > self._settings.heartbeat_timeout_ms
        return not (taken_over or known.away or silent or known.link.end is not None)

    def _compare(self, known: TaskManager, registration: Registration) -> None:
        probe = self._probes.submit(known.task_manager_id, lambda: probe_tcp(known.exchange_address))
        probe.add_done_callback(
            lambda found: self._actor.tell(
                lambda: self._compared(known, registration, _answer(found) is ProbeAnswer.ACCEPTED)
            )
        )

    def _compared(self, known: TaskManager, registration: Registration, alive: bool) -> None:
        """The exchange of the known process was probed: only a process that answers keeps the id."""
        link, register = registration.link, registration.register
        if self._closed or link.end is not None:
            link.close(grpc.StatusCode.UNAVAILABLE, "this coordinator no longer leads")
            return
        if self._members.get(known.task_manager_id) is not known:
            self.register(registration)  # the known one was removed meanwhile
            return
        if alive and self._may_be_alive(known, registration):
            reason = (
                f"the task manager id {known.task_manager_id} is in use by the living process {known.pid}, exchange "
                f"{known.exchange_address}; give process {register.pid} an id of its own (task_manager_id)"
            )
            self._trouble.warning(log, known.task_manager_id, "refused: %s", reason)
            link.close(grpc.StatusCode.ALREADY_EXISTS, reason)
            return
        self._lose(known, f"it was restarted as process {register.pid}")
        self._admit(registration)

    def _admit(self, registration: Registration) -> None:
        register = registration.register
        fresh = TaskManager(
            registration.task_manager_id,
            register.exchange_address,
            register.pid,
            register.incarnation,
            register.slots,
            registration.link,
            Session(registration.acknowledged),
            monotonic_ms(),
            register.release,
            _running(register),
            registration.token >= self._token,
            takes_batches=register.takes_batches,
            missed_orders=registration.acknowledged > 0 or not register.incarnation,
        )
        self._members[fresh.task_manager_id] = fresh
        self._releases.setdefault(fresh.release, {})[fresh.task_manager_id] = None
        self._greet(fresh)
        log.info(
            "task manager %s registered: %s slots, exchange %s, pid %s, runs %s attempts",
            fresh.task_manager_id,
            fresh.slots,
            fresh.exchange_address,
            fresh.pid,
            len(fresh.running),
        )
        self._listener.task_manager_added(fresh)

    def _readmit(self, known: TaskManager, registration: Registration) -> None:
        log.info("task manager %s registered again over a new stream", known.task_manager_id)
        known.link.close(grpc.StatusCode.ABORTED, "replaced by a newer stream of the same task manager")
        if registration.token >= self._token:
            known.session.resume(registration.acknowledged)
            known.knows_term = True
        else:  # it counts messages of another leader
            known.session.renumber(registration.acknowledged)
        known.link, known.away, known.missed_orders = registration.link, False, False
        known.slots = registration.register.slots
        known.running |= _running(registration.register)
        known.last_seen_ms = monotonic_ms()
        if known.grace is not None:
            known.grace.cancel()
            known.grace = None
        self._greet(known)
        for sequence, body in known.session.unacknowledged():
            known.link.send(self._message(known, body, sequence))
        self._listener.task_manager_added(known)

    def _greet(self, task_manager: TaskManager) -> None:
        task_manager.link.send(self._message(task_manager, Registered(self._interval_ms, takes_batches=True)))

    @property
    def _interval_ms(self) -> int:
        return self._pace.interval_ms(len(self._members))

    def _message(
        self,
        task_manager: TaskManager,
        body: Body | Registered | Heartbeat,
        sequence: int = 0,
    ) -> CoordinatorMessage:
        return CoordinatorMessage(self._token, body, sequence, task_manager.session.handled)

    def received(self, link: TaskManagerLink, message: TaskManagerMessage) -> None:
        """Handles a message of an admitted stream. Messages of older streams are dropped."""
        member = self._members.get(message.task_manager_id)
        if isinstance(message.body, Goodbye) and message.token >= self._token:
            self._let_go(member if member is not None and member.link is link else None, link)
            return
        if member is None or member.link is not link or link.end is not None:
            return
        member.last_seen_ms = monotonic_ms()
        if message.token < self._token:
            return  # sent to an earlier leader: only a sign of life
        member.knows_term = True
        if not member.session.receive(message.sequence, message.acknowledged):
            return
        body = message.body
        if isinstance(body, AttemptGone) and body.attempt is not None:
            member.running.pop(body.attempt, None)
        self._listener.task_manager_reported(member, message)

    def _let_go(self, task_manager: TaskManager | None, link: TaskManagerLink) -> None:
        """Its process ends as planned, whatever happened to the stream. None: it is not registered any more."""
        link.close(grpc.StatusCode.OK, "good-bye")  # on this answer it closes its exchange
        if task_manager is not None:
            log.info("task manager %s has left", task_manager.task_manager_id)
            self._remove(task_manager, "it left as planned", planned=True)

    def broken(self, link: TaskManagerLink, task_manager_id: str) -> None:
        """The stream ended. The process is lost only with evidence: a refused connection, or no return in time."""
        member = self._members.get(task_manager_id)
        if member is None or member.link is not link or member.away:
            return
        member.away = True
        link.close(grpc.StatusCode.UNAVAILABLE, "the stream broke")
        log.info("the stream of task manager %s broke; checking whether its process lives", task_manager_id)
        member.grace = self._actor.at(
            monotonic_ms() + GRACE_MS,
            lambda: self._lose_away(member, link, "its stream broke and was not reopened"),
        )
        self._probe(member, link)

    def _probe(self, task_manager: TaskManager, link: TaskManagerLink) -> None:
        """Probes repeatedly, because a dying process closes its streams some milliseconds before its port."""
        if not self._is_away(task_manager, link):
            return
        probe = self._probes.submit(task_manager.task_manager_id, lambda: probe_tcp(task_manager.exchange_address))
        probe.add_done_callback(
            lambda found: self._actor.tell(
                lambda: self._probed(task_manager, link, _answer(found) is ProbeAnswer.REFUSED)
            )
        )

    def _probed(self, task_manager: TaskManager, link: TaskManagerLink, refused: bool) -> None:
        if refused:
            self._lose_away(task_manager, link, "its process has ended")
        elif self._is_away(task_manager, link):
            self._actor.at(monotonic_ms() + PROBE_AGAIN_MS, lambda: self._probe(task_manager, link))

    def _is_away(self, task_manager: TaskManager, link: TaskManagerLink) -> bool:
        return (
            self._members.get(task_manager.task_manager_id) is task_manager
            and task_manager.away
            and task_manager.link is link
        )

    def _lose_away(self, task_manager: TaskManager, link: TaskManagerLink, reason: str) -> None:
        if self._is_away(task_manager, link):
            self._lose(task_manager, reason)

    def _lose(self, task_manager: TaskManager, reason: str) -> None:
        task_manager.link.close(grpc.StatusCode.ABORTED, f"this task manager counts as lost: {reason}")
        log.warning("task manager %s is lost: %s", task_manager.task_manager_id, reason)
        self._remove(task_manager, reason, planned=False)

    def _remove(self, task_manager: TaskManager, reason: str, *, planned: bool) -> None:
        del self._members[task_manager.task_manager_id]
        alike = self._releases[task_manager.release]
        del alike[task_manager.task_manager_id]
        if not alike:
            del self._releases[task_manager.release]
        if task_manager.grace is not None:
            task_manager.grace.cancel()
        self._listener.task_manager_lost(task_manager, reason, planned=planned)

    def send(self, task_manager_id: str, body: Body) -> bool:
        """Queues a message with this term's token, also for the next stream. False if it is not registered."""
        member = self._members.get(task_manager_id)
        if member is None:
            return False
        if isinstance(body, AssignSplitsTogether) and not member.takes_batches:
            return all(self.send(task_manager_id, order) for order in orders_in(body))
        if isinstance(body, Deploy) and body.attempt is not None:
            member.running[body.attempt] = None
        if isinstance(body, KeepCopies) and body.attempt is not None:
            self._replace_order(member, body.attempt.run_id, body)
        number = member.session.send(body) if member.incarnation else 0  # "": its version acknowledges nothing
        member.link.send(self._message(member, body, number))
        return True

    def _replace_order(self, task_manager: TaskManager, run_id: str, order: KeepCopies) -> None:
        """Looks for older orders only where there may be any: after a restart, hundreds of ended runs are dropped."""
        if run_id in task_manager.copied:
            task_manager.session.replace(partial(_outdated, run_id))
            task_manager.copied.discard(run_id)
        if order.files:
            task_manager.copied.add(run_id)

    def undeliverable(self, link: TaskManagerLink, body: Any, problem: str) -> None:
        """A message queued on this link is too large, see undeliverable.py."""
        member = next((member for member in self._members.values() if member.link is link), None)
        if member is None:
            return
        self._trouble.error(log, member.task_manager_id, "not sent to %s: %s", member.task_manager_id, problem)
        if (report := report_instead(body, problem)) is not None:
            self._listener.task_manager_reported(
                member, TaskManagerMessage(self._token, member.task_manager_id, report)
            )

    def _beat(self) -> None:
        if self._closed:
            return
        now = monotonic_ms()
        self._sequence += 1
        # A leader that was stopped for a while must not take its own silence for that of task managers.
        stalled = max(0, now - self._last_beat_ms - 2 * self._beat_after_ms)
        self._last_beat_ms, self._beat_after_ms = now, self._interval_ms
        beat = Heartbeat(self._sequence, interval_ms=self._beat_after_ms)
        for task_manager in self.all():
            task_manager.last_seen_ms += stalled
            if task_manager.away:
                continue
            if now - task_manager.last_seen_ms > self._settings.heartbeat_timeout_ms:
                self._lose(task_manager, f"no heartbeat for {now - task_manager.last_seen_ms} ms")
            elif len(task_manager.session) > MAX_QUEUED:
                self._lose(task_manager, f"it has acknowledged none of {MAX_QUEUED} messages")
            else:
                task_manager.link.send(self._message(task_manager, beat))
        self._beat_timer = self._actor.at(now + self._beat_after_ms, self._beat)


def _outdated(run_id: str, body: Body) -> Body:
    """Nothing in place of an order for copies of this run: only the newest counts, and each may name many files."""
    is_order = isinstance(body, KeepCopies) and body.attempt is not None and body.attempt.run_id == run_id
    return KeepCopies() if is_order else body


def _running(register: Register) -> dict[AttemptId, AttemptProgress | None]:
    progress = {item.attempt: item for item in register.progress}
    return {attempt: progress.get(attempt) for attempt in register.running}


def _answer(probe: Future[ProbeAnswer]) -> ProbeAnswer:
    return ProbeAnswer.NONE if probe.exception() else probe.result()
