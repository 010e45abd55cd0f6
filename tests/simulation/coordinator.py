"""A simulated coordinator process: the real Elector, Dispatcher, LeaderTerm and JobMaster, without threads."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import lockgate_common.clock
import lockgate_ha.elector
import lockgate_ha.session_store
from lockgate_coordinator.runtime import (
    absent_task_managers,
    dispatcher,
    faults,
    job_runner,
    task_managers,
    term,
)
from lockgate_coordinator.runtime.actor import Timer
from lockgate_coordinator.runtime.settings import CoordinatorSettings
from lockgate_coordinator.runtime.term_fence import TermFence
from lockgate_coordinator.runtime.workers import KeyedWorkers, WorkerGroup
from lockgate_ha import election_messages as m
from lockgate_ha.elector import Elector
from lockgate_ha.embedded import EmbeddedConnector
from lockgate_ha.grant import LeadershipGrant
from lockgate_ha.leader_failure_detector import Grounds
from lockgate_proto.messages import JobRecord, LeaderRecord, SubmitResponse

from tests.simulation import causes, part_oracle
from tests.simulation.network import ControlStream
from tests.simulation.storage import SimulatedFiles
from tests.simulation.subtask import clock
from tests.simulation.world import Crash, Fifo, Process, Violation, World, short

CLUSTER = "default"
FOLLOW_MS = 200
PATIENCE_MS = 1_000
"""Of a standby with a leader that sends nothing."""
SETTINGS = CoordinatorSettings(zookeeper="embedded", storage="sim://storage", cluster=CLUSTER)


class SimulatedActor:
    """lockgate_coordinator.runtime.actor.Actor on the simulated clock."""

    def __init__(self, process: SimulatedCoordinator) -> None:
        self._process = process
        self._queue = Fifo(process.world, 0.01, 1.0)

    def start(self) -> None: ...

    def tell(self, call: Callable[[], Any], *, here: bool = False) -> bool:  # noqa: ARG002
        self._queue.put(call, self._process)
        return True

    def ask(self, call: Callable[[], Any], *, here: bool = False) -> Future[Any]:  # noqa: ARG002
        answer: Future[Any] = Future()

        def run() -> None:
            try:
                answer.set_result(call())
            except Exception as error:
                answer.set_exception(error)

        self.tell(run)
        return answer

    def at(self, due_ms: int, call: Callable[[], None]) -> Timer:
        timer = Timer(due_ms, call)
        self._process.later(due_ms - self._process.world.now_ms + 0.001, timer.fire)
        return timer


class SimulatedWorkers:
    """lockgate_coordinator.runtime.workers.KeyedWorkers: one call at a time and key, in order, each after a while."""

    def __init__(self, process: SimulatedCoordinator, least: float, most: float) -> None:
        self._process = process
        self._bounds = (least, most)
        self._queues: dict[str, deque[tuple[Callable[[], Any], Future[Any]]]] = {}

    def submit(self, key: str, call: Callable[[], Any]) -> Future[Any]:
        answer: Future[Any] = Future()
        queue = self._queues.get(key)
        if queue is not None:
            queue.append((call, answer))
        else:
            self._queues[key] = deque([(call, answer)])
            self._next(key)
        return answer

    def group(self, name: str) -> WorkerGroup:
        return WorkerGroup(cast(KeyedWorkers, self), name)

    def _next(self, key: str) -> None:
        self._process.later(self._process.world.delay(*self._bounds), lambda: self._run(key))

    def _run(self, key: str) -> None:
        call, answer = self._queues[key].popleft()
        try:
            result = call()
        except Exception as error:
            answer.set_exception(error)
        else:
            answer.set_result(result)
        if self._queues[key]:
            self._next(key)
        else:
            del self._queues[key]


class SimulatedEvent:
    """threading.Event whose wait lets the world go on."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._is_set = False

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True

    def wait(self, timeout: float | None = None) -> bool:
        if not self._is_set:
            assert timeout is not None
            self._world.wait(timeout * 1000)
        return self._is_set


class SimulatedCondition:
    """threading.Condition whose wait lets the world go on."""

    def __init__(self, world: World) -> None:
        self._world = world

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...

    def notify_all(self) -> None: ...

    def wait_for(self, is_so: Callable[[], bool], timeout: float) -> bool:
        deadline = self._world.now + timeout * 1000
        while not is_so() and self._world.now < deadline:
            self._world.wait(min(20.0, deadline - self._world.now))
        return is_so()


class SimulatedElector(Elector):
    """The real elector without its thread: events are taken one by one on the simulated clock."""

    def __init__(self, process: SimulatedCoordinator, connector: EmbeddedConnector, me: LeaderRecord) -> None:
        super().__init__(connector, CLUSTER, me, process, on_broken=process.crash)
        self._process = process
        self._store._changed = cast(threading.Condition, SimulatedCondition(process.world))
        fifo = Fifo(process.world, 0.1, 4.0)
        self._queue = SimpleNamespace(put=lambda event: fifo.put(lambda: self._take(event), process))  # type: ignore[assignment]

    def start(self) -> None:
        self._carry_out(self._machine.start())

    def _carry_out(self, effects: list[m.Effect]) -> list[m.Event]:
        answers = []
        for effect in effects:
            answers += super()._carry_out([effect])
            self._process.point(f"election {type(effect).__name__}")
        return answers

    def _probe(self, effect: m.Probe) -> None:
        process = self._process
        answer = m.ProbeAnswer.REFUSED if process.refuses(effect.address) else m.ProbeAnswer.ACCEPTED
        apart = process.world.paths.is_apart(process.id, host_of(effect.address))
        if apart or process.world.chance(0.3):  # its host has vanished from the network
            answer = m.ProbeAnswer.NONE
        delay_ms = process.world.delay(0.5, 3) if answer is not m.ProbeAnswer.NONE else process.world.delay(3, 500)
        process.later(delay_ms, lambda: self._queue.put(m.Probed(effect.token, answer)))

    def _claim(self, effect: m.Claim) -> m.Event:
        former = self._machine.leader
        answer = super()._claim(effect)
        if isinstance(answer, m.Claimed) and effect.why == Grounds.MUTE.value and former is not None:
            self._process.check_mute(former)
        return answer

    def _wake(self, effect: m.WakeAt) -> None:
        self._process.later(effect.at_ms - self._process.world.now_ms, lambda: self._queue.put(m.Tick()))

    @property
    def session_id(self) -> str:
        """The present session."""
        return self._session.id if self._session is not None else ""


class SimulatedDispatcher(dispatcher.Dispatcher):
    """The real dispatcher; its terms wait on the simulated clock."""

    def __init__(self, process: SimulatedCoordinator, *arguments: Any) -> None:
        def workers(*_: Any, **__: Any) -> SimulatedWorkers:
            return SimulatedWorkers(process, 0.5, 6)

        with (
            mock.patch.object(dispatcher, "Actor", return_value=SimulatedActor(process)),
            mock.patch.object(dispatcher, "KeyedWorkers", workers),
        ):
            super().__init__(*arguments)
        self._process = process

    def granted(self, grant: LeadershipGrant, detected_unix_us: int | None) -> None:
        over: Any = SimulatedEvent(self._process.world)
        fence = TermFence(grant, over, lambda reason: self._services.step_down(reason, grant.token))
        fresh = term.LeaderTerm(grant, detected_unix_us, self._services, fence)
        self._replace(fresh, "a newer grant")
        self._actor.tell(fresh.start)

    def submit(self, record: JobRecord, graph: bytes) -> Future[SubmitResponse]:
        """As JobService.Submit does it; the answer may fail."""
        answer: Future[SubmitResponse] = Future()

        def run() -> None:
            try:
                dispatcher.writable(self._present())
                assert self._submissions is not None
                written = self._submissions.submit(record, graph)
            except Exception as error:
                answer.set_exception(error)
                return
            written.add_done_callback(_copy(answer))

        self._actor.tell(run)
        return answer


def _copy(answer: Future[SubmitResponse]) -> Callable[[Future[SubmitResponse]], None]:
    def done(written: Future[SubmitResponse]) -> None:
        error = written.exception()
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(written.result())

    return done


class SimulatedCoordinator(Process):
    """One process, and the listener of its elector."""

    def __init__(
        self,
        world: World,
        name: str,
        pid: int,
        connector: EmbeddedConnector,
        files: SimulatedFiles,
        refuses: Callable[[str], bool],
        reached: Callable[[SimulatedCoordinator, str], None],
        find: Callable[[str], SimulatedCoordinator | None],
    ) -> None:
        super().__init__(world, f"{name}/{pid}")
        self.id = name
        self.address = f"{name}:1"
        self.refuses = refuses
        self.streams: list[ControlStream] = []
        self._reached, self._find = reached, find
        me = LeaderRecord(coordinator_id=name, address=self.address, pid=pid)
        self.elector = SimulatedElector(self, connector, me)
        self.dispatcher = SimulatedDispatcher(
            self,
            SETTINGS,
            self.address,
            self.elector.store,
            files,
            self.elector.step_down,
            self.elector.report_token,
            lambda: self.elector.leader,
        )
        self._following = 0
        self._silent = 0  # token of the leader that was reported as silent
        self.later(0, self.elector.start)

    def point(self, label: str) -> None:
        """Something was done, or is about to be: here the process may die or freeze."""
        self._reached(self, label)

    # -- lockgate_ha.elector.ElectionListener ----------------------------------------------------------------------

    def on_granted(self, grant: LeadershipGrant, detected_unix_us: int | None) -> None:
        self.world.note(self.name, f"is granted token {grant.token}")
        self.dispatcher.granted(grant, detected_unix_us)

    def on_suspended(self) -> None:
        self.world.note(self.name, "is suspended")
        self.dispatcher.suspended()

    def on_resumed(self) -> None:
        self.world.note(self.name, "is resumed")
        self.dispatcher.resumed()

    def on_revoked(self, reason: str) -> None:
        self.world.note(self.name, f"is revoked: {reason}")
        self.dispatcher.revoked(reason)

    def on_leader(self, leader: LeaderRecord | None) -> None:
        """See ElectionListener: a standby follows the leader."""
        self._following += 1
        if leader is not None and leader.coordinator_id != self.id:
            self._follow(leader, self._following)

    def _follow(self, leader: LeaderRecord, number: int) -> None:
        if number != self._following:
            return
        other = self._find(leader.address)
        if other is None or self.world.paths.is_apart(self.id, other.id):
            self.elector.report_leader_gone(leader.token)
        elif other.is_frozen:
            self._silent = leader.token
            self.elector.report_silent(leader.token, PATIENCE_MS)
        elif self._silent == leader.token:
            self._silent = 0
            self.elector.report_answered(leader.token)
        elif other.dispatcher.term is None or other.dispatcher.term.token != leader.token:
            self.elector.report_not_leading(leader.token)
        self.later(FOLLOW_MS, lambda: self._follow(leader, number))

    def check_mute(self, former: LeaderRecord) -> None:
        """This coordinator has replaced a leader that answered nothing: it must have been frozen all the time."""
        other = self._find(former.address)
        if other is None or self.world.paths.is_apart(self.id, other.id) or not other.elector.is_connected:
            return
        last = self.world.now if other.is_frozen else other.thawed_at
        awake_ms = self.world.now - last
        if last - other.frozen_at < PATIENCE_MS - FOLLOW_MS or awake_ms > FOLLOW_MS:
            self.world.violate(f"{other.name} was replaced as frozen, though it has answered for {awake_ms:.0f} ms")

    def crash(self) -> None:
        """See Process: streams break; the session stays until it expires."""
        super().crash()
        self.world.note(self.name, "is killed")
        self.world.is_hindered = True
        for stream in self.streams:
            stream.break_off("the coordinator died")
        self.streams.clear()


def host_of(address: str) -> str:
    """The name of the host in an address."""
    return address.partition(":")[0]


class _Names:
    """Stands for the uuid module: names that depend on the seed only."""

    def __init__(self) -> None:
        self._number = 0

    def uuid4(self) -> SimpleNamespace:
        self._number += 1
        return SimpleNamespace(hex=f"{self._number:08x}")


@contextlib.contextmanager
def installed(world: World, more: list[tuple[Any, str, Any]]) -> Iterator[None]:
    """The clock, names, probes and fault points of the coordinator's runtime are the world's while this is open.

    more: (module, name, what stands for it meanwhile).
    """

    def reached(label: str) -> None:
        if isinstance(world.current, SimulatedCoordinator):
            world.current.point(label)

    def probe_tcp(address: str) -> m.ProbeAnswer:
        assert isinstance(world.current, SimulatedCoordinator)
        if world.paths.is_apart(world.current.id, host_of(address)):
            return m.ProbeAnswer.NONE
        return m.ProbeAnswer.REFUSED if world.current.refuses(address) else m.ProbeAnswer.ACCEPTED

    replaced: list[tuple[Any, str, Any]] = [
        (lockgate_common.clock, "time", clock(world)),
        (lockgate_ha.session_store, "time", SimpleNamespace(monotonic=lambda: world.now / 1_000)),
        (task_managers, "probe_tcp", probe_tcp),
        (absent_task_managers, "probe_tcp", probe_tcp),
        (faults, "point", reached),
        *_watched_runner(world),
        *causes.watched(world),
        *part_oracle.watched(world),
        *more,
    ]
    names = _Names()
    replaced += [(module, "uuid", names) for module in (lockgate_ha.elector, job_runner)]
    with contextlib.ExitStack() as stack:
        for where, name, what in replaced:
            if hasattr(where, name):
                stack.enter_context(mock.patch.object(where, name, what))
        disabled = logging.root.manager.disable
        logging.disable(logging.CRITICAL)
        try:
            yield
        finally:
            logging.disable(disabled)


def _watched_runner(world: World) -> list[tuple[Any, str, Any]]:
    """JobRunner tells the story, passes a point after every effect, and must never break a job off."""
    runner = job_runner.JobRunner
    do, quarantine = runner._do, runner.quarantine

    def carry_out(self: job_runner.JobRunner, effect: Any, event_id: str) -> None:
        process = world.current
        assert isinstance(process, SimulatedCoordinator)
        name = type(effect).__name__
        if name == "Emit":
            world.note(process.name, f"emits {effect.event.kind.name} {effect.event.text}")
        elif name != "WakeAt":
            body = getattr(effect, "body", effect)
            world.note(process.name, f"{name} {getattr(effect, 'task_manager_id', '')} {short(body)}")
        if self.key == world.defective and name == "PersistCheckpoint":
            raise RuntimeError("a defect that only this job meets")
        do(self, effect, event_id)
        process.point(f"effect {name}")

    def broken(self: job_runner.JobRunner, reason: str) -> None:
        if not world.is_over and self.key != world.defective:
            with contextlib.suppress(Violation):
                world.violate(f"job {self.key} is broken off: {reason}")
        quarantine(self, reason)

    return [(runner, "_do", carry_out), (runner, "quarantine", broken)]


__all__ = ["CLUSTER", "Crash", "SimulatedCoordinator", "installed"]
