"""The task managers registered with this leader: who is there, who has gone silent, who is lost. Actor thread only.

register --> connected --stream broke--> away --same process registers within the grace--> connected
                 |                         |
                 |-- said good-bye --------|--------------------------------------------------> left
                 +---- silent for the      +---- its port refuses, or the grace is over --> lost
                       heartbeat timeout --------------------------------------------------> lost
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import grpc
from lockgate_proto.messages import (
    AttemptGone,
    AttemptId,
    CoordinatorMessage,
    Deploy,
    Goodbye,
    Heartbeat,
    Registered,
    SubtaskReport,
    TaskManagerMessage,
)

from coordinator.recovery.effects import ControlBody
from coordinator.runtime.actor import Actor, Timer, monotonic_ms
from coordinator.runtime.link import Registration, TaskManagerLink
from coordinator.runtime.settings import CoordinatorSettings
from coordinator.runtime.workers import KeyedWorkers

log = logging.getLogger(__name__)

GRACE_MS = 1_000
PROBE_AGAIN_MS = 50
_PROBE_TIMEOUT_S = 0.5


@dataclass(slots=True, eq=False)
class TaskManager:
    """One registered process. running: attempts that it said or was told to run, as far as known."""

    task_manager_id: str
    exchange_address: str
    pid: int
    slots: int
    link: TaskManagerLink
    last_seen_ms: int
    running: set[AttemptId] = field(default_factory=set)
    heard_of: set[AttemptId] = field(default_factory=set)  # its Deploy arrived: some subtask of it reported
    away: bool = False
    kept: list[CoordinatorMessage] = field(default_factory=list)  # to be sent when it comes back
    grace: Timer | None = None


class Listener(Protocol):
    """Who is told. Called on the actor thread."""

    def task_manager_added(self, task_manager: TaskManager, forgotten: frozenset[AttemptId]) -> None:
        """It is connected (again). forgotten: attempts that were deployed to it and that it does not run."""
        ...

    def task_manager_lost(self, task_manager: TaskManager, reason: str, *, blameless: bool) -> None:
        """It will not come back as the process it was. blameless: by intention, and it has said so."""
        ...

    def task_manager_said(self, task_manager: TaskManager, message: TaskManagerMessage) -> None:
        """Anything but a Register."""
        ...


class TaskManagers:
    """Registry of one term."""

    def __init__(
        self, token: int, settings: CoordinatorSettings, actor: Actor, probes: KeyedWorkers, listener: Listener
    ) -> None:
        self._token = token
        self._settings = settings
        self._actor = actor
        self._probes = probes
        self._listener = listener
        self._members: dict[str, TaskManager] = {}
        self._sequence = 0
        self._last_beat_ms = monotonic_ms()
        self._beat_timer: Timer | None = None
        self._closed = False

    def start(self) -> None:
        """Starts the heartbeats."""
        self._beat_timer = self._actor.at(monotonic_ms() + self._settings.heartbeat_ms, self._beat)

    def close(self, code: grpc.StatusCode, reason: str) -> None:
        """Ends every stream; nobody is declared lost by it."""
        self._closed = True
        if self._beat_timer is not None:
            self._beat_timer.cancel()
        for one in self._members.values():
            if one.grace is not None:
                one.grace.cancel()
            one.link.close(code, reason)
        self._members.clear()

    def all(self) -> tuple[TaskManager, ...]:
        """Every task manager that is not lost, by id."""
        return tuple(self._members[name] for name in sorted(self._members))

    def knows(self, task_manager_id: str) -> bool:
        """Whether it is registered, and not lost."""
        return task_manager_id in self._members

    def register(self, registration: Registration) -> None:
        """Admits a stream. The newest stream of a process wins; a new process under an old id ends the old one.

        Unless the old one certainly lives: then two are configured with one id, and they would evict each other.
        """
        if self._closed:
            registration.link.close(grpc.StatusCode.UNAVAILABLE, "this coordinator no longer leads")
            return
        known = self._members.get(registration.task_manager_id)
        said = registration.register
        if known is not None and (known.pid, known.exchange_address) != (said.pid, said.exchange_address):
            if self._may_live(known, registration):
                self._compare(known, registration)
                return
            self._lose(known, f"it was restarted as process {said.pid}")
            known = None
        if known is None:
            self._admit(registration)
        else:
            self._readmit(known, registration)

    def _may_live(self, known: TaskManager, registration: Registration) -> bool:
        """Whether two processes may use one id: the usual restart is told by its exchange or the broken stream."""
        taken_over = known.exchange_address == registration.register.exchange_address  # one process has a port
        silent = monotonic_ms() - known.last_seen_ms > self._settings.heartbeat_timeout_ms
        return not (taken_over or known.away or silent or known.link.end is not None)

    def _compare(self, known: TaskManager, registration: Registration) -> None:
        probe = self._probes.submit(known.task_manager_id, lambda: answers(known.exchange_address))
        probe.add_done_callback(
            lambda found: self._actor.tell(
                lambda: self._compared(known, registration, not found.exception() and found.result())
            )
        )

    def _compared(self, known: TaskManager, registration: Registration, alive: bool) -> None:
        """The exchange of the known process was tried: only one that answers keeps its id."""
        link, said = registration.link, registration.register
        if self._closed or link.end is not None:
            link.close(grpc.StatusCode.UNAVAILABLE, "this coordinator no longer leads")
            return
        if self._members.get(known.task_manager_id) is not known:
            self.register(registration)  # the known one has gone meanwhile
            return
        if alive and self._may_live(known, registration):
            reason = (
                f"the task manager id {known.task_manager_id} is in use by the living process {known.pid}, exchange "
                f"{known.exchange_address}; give process {said.pid} an id of its own (task_manager_id)"
            )
            log.warning("refused: %s", reason)
            link.close(grpc.StatusCode.ALREADY_EXISTS, reason)
            return
        self._lose(known, f"it was restarted as process {said.pid}")
        self._admit(registration)

    def _admit(self, registration: Registration) -> None:
        said = registration.register
        fresh = TaskManager(
            registration.task_manager_id,
            said.exchange_address,
            said.pid,
            said.slots,
            registration.link,
            monotonic_ms(),
            set(said.running),
        )
        self._members[fresh.task_manager_id] = fresh
        self._greet(fresh)
        log.info(
            "task manager %s registered: %s slots, exchange %s, pid %s, runs %s attempts",
            fresh.task_manager_id,
            fresh.slots,
            fresh.exchange_address,
            fresh.pid,
            len(fresh.running),
        )
        self._listener.task_manager_added(fresh, frozenset())

    def _readmit(self, known: TaskManager, registration: Registration) -> None:
        log.info("task manager %s registered again over a new stream", known.task_manager_id)
        known.link.close(grpc.StatusCode.ABORTED, "replaced by a newer stream of the same task manager")
        unsure = [*known.link.take_undelivered(), *known.kept]
        undelivered = [
            one for one in unsure if not (isinstance(one.body, Deploy) and one.body.attempt in known.heard_of)
        ]
        waiting = {message.body.attempt for message in undelivered if isinstance(message.body, Deploy)}
        forgotten = known.running - set(registration.register.running) - waiting
        known.running = set(registration.register.running) | {one for one in waiting if one is not None}
        known.link, known.away, known.kept = registration.link, False, []
        known.slots = registration.register.slots
        known.last_seen_ms = monotonic_ms()
        if known.grace is not None:
            known.grace.cancel()
            known.grace = None
        self._greet(known)
        for message in undelivered:
            known.link.send(message)
        self._listener.task_manager_added(known, frozenset(forgotten))

    def _greet(self, one: TaskManager) -> None:
        one.link.send(CoordinatorMessage(self._token, Registered(self._settings.heartbeat_ms)))

    def received(self, link: TaskManagerLink, message: TaskManagerMessage) -> None:
        """A message of an admitted stream. What an older stream still delivers is dropped."""
        one = self._members.get(message.task_manager_id)
        if isinstance(message.body, Goodbye) and message.token >= self._token:
            self._let_go(one if one is not None and one.link is link else None, link)
            return
        if one is None or one.link is not link or link.end is not None:
            return
        one.last_seen_ms = monotonic_ms()
        if message.token < self._token:
            return  # said before it knew of this leader: a sign of life and no more
        body = message.body
        if isinstance(body, SubtaskReport) and body.subtask is not None and body.subtask.attempt in one.running:
            one.heard_of.add(body.subtask.attempt)
        elif isinstance(body, AttemptGone) and body.attempt is not None:
            one.running.discard(body.attempt)
            one.heard_of.discard(body.attempt)
        self._listener.task_manager_said(one, message)

    def _let_go(self, one: TaskManager | None, link: TaskManagerLink) -> None:
        """Its process ends by intention, whatever has become of the stream meanwhile. None: nobody who counts."""
        link.close(grpc.StatusCode.OK, "good-bye")  # the answer: it closes its exchange when it has it
        if one is not None:
            log.info("task manager %s has said good-bye", one.task_manager_id)
            self._remove(one, "it has said good-bye", blameless=True)

    def broken(self, link: TaskManagerLink, task_manager_id: str) -> None:
        """The stream ended. Only evidence makes it a loss: a refused connection, or that nobody comes back."""
        one = self._members.get(task_manager_id)
        if one is None or one.link is not link or one.away:
            return
        one.away = True
        link.close(grpc.StatusCode.UNAVAILABLE, "the stream broke")
        one.kept = list(link.take_undelivered())
        log.info("the stream of task manager %s broke; looking whether its process lives", task_manager_id)
        one.grace = self._actor.at(
            monotonic_ms() + GRACE_MS, lambda: self._lose_away(one, link, "its stream broke and it did not come back")
        )
        self._probe(one, link)

    def _probe(self, one: TaskManager, link: TaskManagerLink) -> None:
        """Looks again and again: a dying process closes its streams some milliseconds before its port."""
        if not self._is_away(one, link):
            return
        probe = self._probes.submit(one.task_manager_id, lambda: refuses(one.exchange_address))
        probe.add_done_callback(
            lambda found: self._actor.tell(lambda: self._probed(one, link, not found.exception() and found.result()))
        )

    def _probed(self, one: TaskManager, link: TaskManagerLink, refused: bool) -> None:
        if refused:
            self._lose_away(one, link, "its process has ended")
        elif self._is_away(one, link):
            self._actor.at(monotonic_ms() + PROBE_AGAIN_MS, lambda: self._probe(one, link))

    def _is_away(self, one: TaskManager, link: TaskManagerLink) -> bool:
        return self._members.get(one.task_manager_id) is one and one.away and one.link is link

    def _lose_away(self, one: TaskManager, link: TaskManagerLink, reason: str) -> None:
        if self._is_away(one, link):
            self._lose(one, reason)

    def _lose(self, one: TaskManager, reason: str) -> None:
        one.link.close(grpc.StatusCode.ABORTED, f"this task manager counts as lost: {reason}")
        log.warning("task manager %s is lost: %s", one.task_manager_id, reason)
        self._remove(one, reason, blameless=False)

    def _remove(self, one: TaskManager, reason: str, *, blameless: bool) -> None:
        del self._members[one.task_manager_id]
        if one.grace is not None:
            one.grace.cancel()
        self._listener.task_manager_lost(one, reason, blameless=blameless)

    def send(self, task_manager_id: str, body: ControlBody) -> bool:
        """Queues a message under this term's token. False when the task manager is not registered."""
        one = self._members.get(task_manager_id)
        if one is None:
            return False
        message = CoordinatorMessage(self._token, body)
        if isinstance(body, Deploy) and body.attempt is not None:
            one.running.add(body.attempt)
        if one.away:
            one.kept.append(message)
            return True
        return one.link.send(message)

    def _beat(self) -> None:
        if self._closed:
            return
        now = monotonic_ms()
        self._sequence += 1
        # A process that was stopped for a while must not take its own silence for that of the others.
        stalled = max(0, now - self._last_beat_ms - 2 * self._settings.heartbeat_ms)
        self._last_beat_ms = now
        beat = CoordinatorMessage(self._token, Heartbeat(self._sequence))
        for one in self.all():
            one.last_seen_ms += stalled
            if one.away:
                continue
            if now - one.last_seen_ms > self._settings.heartbeat_timeout_ms:
                self._lose(one, f"no heartbeat for {now - one.last_seen_ms} ms")
            else:
                one.link.send(beat)
        self._beat_timer = self._actor.at(now + self._settings.heartbeat_ms, self._beat)


def answers(address: str, connect: Callable[..., socket.socket] = socket.create_connection) -> bool:
    """True when a TCP connection to `host:port` is made. Anything else, a timeout too, is no proof of life."""
    host, _, port = address.rpartition(":")
    try:
        connect((host.strip("[]"), int(port)), timeout=_PROBE_TIMEOUT_S).close()
    except (OSError, ValueError):
        return False
    return True


def refuses(address: str, connect: Callable[..., socket.socket] = socket.create_connection) -> bool:
    """True when a TCP connection to `host:port` is refused: nobody listens there. Anything else is no proof."""
    host, _, port = address.rpartition(":")
    try:
        connect((host.strip("[]"), int(port)), timeout=_PROBE_TIMEOUT_S).close()
    except ConnectionRefusedError:
        return True
    except (OSError, ValueError):
        return False
    return False
