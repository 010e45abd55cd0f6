"""One run: a cluster, a job, faults; and what became of it."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from lockgate_proto.codec import encode
from lockgate_proto.messages import (
    CheckpointMode,
    CoordinatorMessage,
    Deploy,
    JobRecord,
    LeaderRecord,
    StragglerReplacement,
    SubmitResponse,
)

from coordinator.runtime.metadata_files import graph_checksum
from tests.simulation.coordinator import SimulatedCoordinator, installed
from tests.simulation.exchange import Exchange
from tests.simulation.job import SimulatedJob
from tests.simulation.network import ControlStream
from tests.simulation.oracle import Oracle
from tests.simulation.orders import Order, OrderingClient
from tests.simulation.storage import Outputs, SimulatedFiles, Storage
from tests.simulation.store import ObservedZooKeeper
from tests.simulation.taskmanager import SimulatedTaskManager, TaskPlan, replacements
from tests.simulation.world import Crash, Violation, World

SESSION_MS = 4_000
LIMIT_MS = 120_000
CHECK_MS = 100


STRAGGLERS = StragglerReplacement(factor=2.0, window_ms=200, pause_ms=300)
"""Of jobs in a world where a task manager is slow."""


@dataclass(frozen=True)
class Scenario:
    """What happens in a run beside the job itself.

    crash_at, stall_at: number of the point (see `Run.reached`) at which the coordinator that reached it dies or
    freezes; stall_ms: for how long; usurped: while it is frozen a standby believes that its port refuses, and takes
    over although its session lives. faults: calls of `Run` by time. mode: of every job's checkpoints;
    at_a_time: how many of them; orders: what a client wants of every job, by time; job: what they compute, None for a
    random one by the seed; patience_ms: how long UNALIGNED stays aligned, None: by the seed.
    """

    seed: int
    jobs: int = 1
    coordinators: int = 2
    task_managers: int = 2
    crash_at: int = 0
    stall_at: int = 0
    stall_ms: float = 6_000
    usurped: bool = False
    faults: tuple[tuple[float, str], ...] = ()
    plan: TaskPlan = field(default_factory=TaskPlan)
    mode: CheckpointMode = CheckpointMode.EXACTLY_ONCE
    orders: tuple[tuple[float, Order], ...] = ()
    at_a_time: int = 1
    job: SimulatedJob | None = None
    patience_ms: int | None = None


@dataclass(frozen=True)
class Outcome:
    """points: coordinator steps passed. in_flight: records in the channel states of completed checkpoints.
    rescales: attempts of another shape than the one before. digest: of the whole story; the same seed gives the same.
    """

    points: int
    events: int
    sim_ms: float
    attempts: int
    grants: int
    in_flight: int
    rescales: int
    digest: int
    labels: tuple[str, ...] = field(default=(), repr=False)


class Run:
    """A whole cluster in one world."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.world = world = World(scenario.seed)
        self.server = ObservedZooKeeper(world)
        self.server.on_leader = self._leader_changed
        self.storage, self.outputs = Storage(), Outputs()
        drawn = random.Random(scenario.seed)
        names = [f"job-{n}" for n in range(scenario.jobs)]
        patience_ms = scenario.patience_ms
        if patience_ms is None:
            patience_ms = (0, 0, 15, 40)[scenario.seed % 4] if scenario.mode is CheckpointMode.UNALIGNED else 0
        self.jobs = {
            name: replace(
                replace(scenario.job, key=name) if scenario.job is not None else SimulatedJob.draw(name, drawn),
                mode=scenario.mode,
                aligned_timeout_ms=patience_ms,
            )
            for name in names
        }
        if scenario.at_a_time > 1:  # often enough that the next one is due while one is under way
            changes = {"at_a_time": scenario.at_a_time, "interval_ms": 30}
            self.jobs = {name: replace(job, **changes) for name, job in self.jobs.items()}
        if scenario.plan.slow:
            self.jobs = {name: replace(job, stragglers=STRAGGLERS) for name, job in self.jobs.items()}
        self.oracle = Oracle(world, self.server, self.storage, self.outputs, self.jobs)
        self.exchange = Exchange(world)
        self.plan = replace(scenario.plan)
        self.points = 0
        self.labels: list[str] = []
        self.grants = 0
        self._pids = 100
        self._files = SimulatedFiles(self.storage)
        self._lies: set[str] = set()  # addresses that seem to refuse although somebody listens
        self.coordinators: dict[str, SimulatedCoordinator] = {}
        self.task_managers: dict[str, SimulatedTaskManager] = {}
        for number in range(scenario.coordinators):
            self._start_coordinator(f"coordinator-{number}")
        for number in range(scenario.task_managers):
            self._start_task_manager(f"tm-{number}")
        for key in self.jobs:
            world.schedule(world.delay(0, 300), self._submitter(key))
        for number, (at, order) in enumerate(scenario.orders):
            for key in self.jobs:
                client = OrderingClient(world, key, order, self.oracle, self._leader, f"request-{number}")
                world.schedule(at, client.ask)
        for at, name in scenario.faults:
            world.schedule(at, getattr(self, name))

    def go(self) -> Outcome:
        """Runs to the end. Raises Violation with the story."""
        world = self.world
        try:
            while not world.is_over and not self.oracle.is_over():
                if world.now > LIMIT_MS:
                    world.violate(f"[4] not finished after {LIMIT_MS} simulated ms")
                world.run(world.now + CHECK_MS)
            if not world.violation:
                world.run(world.now + 1_000)  # files go after the records
                self.oracle.check_end()
        except Violation:
            if not world.violation:
                raise
        if world.violation:
            raise Violation(f"{world.violation}\n\n{world.tell()}\n\nstate: {self._state()}\n{self.scenario}")
        attempts, in_flight = max(self.oracle.attempts.values()), self.oracle.in_flight_seen
        return Outcome(
            self.points,
            world.events,
            world.now,
            attempts,
            self.grants,
            in_flight,
            self.oracle.rescales,
            world.digest,
            tuple(self.labels),
        )

    def _state(self) -> str:
        tasks = [repr(task) for tm in self.task_managers.values() for task in tm.subtasks()]
        terms = [
            f"{one.name} {one.elector._machine.phase.value} "
            + "; ".join(str(job.status()) for job in (one.dispatcher.term.jobs.values() if one.dispatcher.term else ()))
            for one in self.coordinators.values()
        ]
        return "\n".join([*terms, *tasks])

    # -- processes ----------------------------------------------------------------------------------------------------

    def _start_coordinator(self, name: str) -> None:
        self._pids += 1
        self.coordinators[name] = SimulatedCoordinator(
            self.world,
            name,
            self._pids,
            self.server.connector(),
            self._files,
            self._refuses,
            self.reached,
            self._coordinator_at,
        )

    def _start_task_manager(self, name: str) -> None:
        self._pids += 1
        one = SimulatedTaskManager(
            self.world,
            name,
            self._pids,
            self.storage,
            self.outputs,
            self.exchange,
            self.plan,
            self._connect,
            self._task_manager_died,
        )
        self.task_managers[name] = one
        leader = self.server.leader()
        one.later(self.world.delay(1, 20), lambda: one.on_leader(leader))

    def _task_manager_died(self, one: SimulatedTaskManager) -> None:
        self.world.schedule(self.world.delay(200, 2_000), lambda: self._start_task_manager(one.id))

    def _coordinator_at(self, address: str) -> SimulatedCoordinator | None:
        one = self.coordinators.get(address.partition(":")[0])
        return one if one is not None and one.is_alive else None

    def _refuses(self, address: str) -> bool:
        if address in self._lies:
            return True
        name, _, number = address.partition(":")
        if name in self.coordinators:
            return not self.coordinators[name].is_alive
        one = self.task_managers.get(name)
        return one is None or not one.is_alive or one.address != f"{name}:{number}"

    def _connect(self, tm: SimulatedTaskManager, leader: LeaderRecord) -> ControlStream | None:
        coordinator = self._coordinator_at(leader.address)
        if coordinator is None:
            return None
        stream = ControlStream(tm, coordinator, leader)
        coordinator.streams.append(stream)
        send = stream.send

        def watched(message: CoordinatorMessage) -> bool:
            body = message.body
            if isinstance(body, Deploy) and body.attempt is not None:
                self.oracle.deploying(body.attempt, message.token, body.restored_checkpoint_id)
                self.oracle.shaped(body)
            return send(message)

        stream.send = watched  # type: ignore[method-assign]
        return stream

    def _leader_changed(self, record: LeaderRecord | None) -> None:
        self.grants += record is not None
        for one in self.task_managers.values():
            one.later(self.world.delay(0.5, 20), _telling(one, record))

    # -- the client ---------------------------------------------------------------------------------------------------

    def _submitter(self, key: str) -> Callable[[], None]:
        graph = encode(self.jobs[key].graph())
        checksum = graph_checksum(graph)
        tries = 0

        def acknowledged(answer: SubmitResponse) -> None:
            known = self.oracle.acknowledged.setdefault(key, answer.run_id)
            self.world.note("client", f"{key} is {answer.run_id}, created={answer.created}")
            if known != answer.run_id:
                self.world.violate(f"[4] {key} was acknowledged as {known} and as {answer.run_id}")

        def submit() -> None:
            nonlocal tries
            tries += 1
            leader = self.server.leader()
            coordinator = self._coordinator_at(leader.address) if leader is not None else None
            if coordinator is not None:
                record = JobRecord(job_key=key, run_id=f"run-{key}-{tries}", graph_checksum=checksum)
                answer = coordinator.dispatcher.submit(record, graph)
                answer.add_done_callback(lambda one: acknowledged(one.result()) if one.exception() is None else None)
            if key not in self.oracle.acknowledged or self.world.chance(0.5):  # some ask again although they know
                self.world.schedule(self.world.delay(200, 600), submit)

        return submit

    # -- points and faults --------------------------------------------------------------------------------------------

    def reached(self, process: SimulatedCoordinator, label: str) -> None:
        """A coordinator has done one more thing: now it may die or freeze."""
        self.points += 1
        if self.scenario.crash_at or self.scenario.stall_at:
            if self.points == self.scenario.crash_at:
                self.world.note(process.name, f"dies at point {self.points}: {label}")
                self._restart_later(process.id, 500)
                raise Crash
            if self.points == self.scenario.stall_at:
                self.world.note(process.name, f"freezes at point {self.points}: {label}")
                self._supersede(process, self.scenario.stall_ms, self.scenario.usurped)
                self.world.stall(process, self.scenario.stall_ms)
        else:
            self.labels.append(label)

    def _supersede(self, process: SimulatedCoordinator, duration_ms: float, usurped: bool) -> None:
        """What happens to a coordinator that is frozen for a while."""
        if usurped:
            self._lies.add(process.address)
            self.world.schedule(duration_ms, lambda: self._lies.discard(process.address))
            leader = self.server.leader()
            for other in self.coordinators.values():
                if leader is not None and leader.coordinator_id == process.id and other is not process:
                    other.later(self.world.delay(1, 50), _reporting(other, leader.token))
        else:
            session = process.elector.session_id
            self.world.schedule(SESSION_MS, lambda: self.server.expire(session) if process.is_frozen else None)

    def _leader(self) -> SimulatedCoordinator | None:
        record = self.server.leader()
        return self._coordinator_at(record.address) if record is not None else None

    def _kill(self, process: SimulatedCoordinator, restart_ms: float) -> None:
        process.crash()
        self._restart_later(process.id, restart_ms)

    def _restart_later(self, name: str, delay_ms: float) -> None:
        session = self.coordinators[name].elector.session_id
        self.world.schedule(SESSION_MS, lambda: self.server.expire(session))
        self.world.schedule(delay_ms, lambda: self._start_coordinator(name))

    def kill_leader(self) -> None:
        """SIGKILL of the leader; it is started again after a while."""
        leader = self._leader()
        if leader is not None:
            self._kill(leader, self.world.delay(100, 3_000))

    def kill_standby(self) -> None:
        """SIGKILL of a coordinator that does not lead."""
        leader = self._leader()
        standbys = [one for one in self.coordinators.values() if one.is_alive and one is not leader]
        if standbys:
            self._kill(self.world.random.choice(standbys), self.world.delay(100, 3_000))

    def kill_task_manager(self) -> None:
        """SIGKILL of a task manager; another process takes its name."""
        living = [one for one in self.task_managers.values() if one.is_alive]
        if living:
            self.world.random.choice(living).crash()

    def freeze_leader(self) -> None:
        """SIGSTOP of the leader, SIGCONT later: perhaps after its session has ended."""
        leader = self._leader()
        if leader is not None and not leader.is_frozen:
            duration_ms = self.world.delay(50, 7_000)
            self.world.note(leader.name, f"freezes for {duration_ms:.0f} ms")
            leader.freeze()
            self._supersede(leader, duration_ms, self.world.chance(0.3))
            self.world.schedule(duration_ms, leader.thaw)

    def usurp_leader(self) -> None:
        """A standby takes over from a leader that runs on: its port seemed to refuse."""
        leader = self._leader()
        if leader is not None:
            self._supersede(leader, self.world.delay(20, 300), usurped=True)

    def freeze_task_manager(self) -> None:
        """SIGSTOP and SIGCONT of a task manager."""
        one = self.world.random.choice(list(self.task_managers.values()))
        if one.is_alive and not one.is_frozen:
            duration_ms = self.world.delay(50, 5_000)
            self.world.note(one.name, f"freezes for {duration_ms:.0f} ms")
            one.freeze()
            self.world.schedule(duration_ms, one.thaw)

    def break_stream(self) -> None:
        """The control stream of a task manager breaks, both sides live."""
        one = self.world.random.choice(list(self.task_managers.values()))
        if one.stream is not None:
            one.stream.break_off("the network")

    def break_channel(self) -> None:
        """A channel between two subtasks breaks."""
        self.exchange.cut()

    def cut_leader_off(self) -> None:
        """The leader loses ZooKeeper for a while, perhaps for longer than its session."""
        leader = self._leader()
        session = leader.elector._session if leader is not None else None
        if leader is None or session is None:
            return
        duration_ms = self.world.delay(50, 7_000)
        self.world.note(leader.name, f"loses ZooKeeper for {duration_ms:.0f} ms")
        self.server.suspend(session)
        if duration_ms > SESSION_MS:
            self.world.schedule(SESSION_MS, lambda: self.server.expire(session.id))
        self.world.schedule(duration_ms, lambda: self.server.resume(session))

    def stop_zookeeper(self) -> None:
        """A total outage; no session is lost by it."""
        self.world.note("ZOOKEEPER", "stops")
        self.server.stop()
        self.world.schedule(self.world.delay(100, 3_000), self.server.start)

    def lose_answers(self) -> None:
        """The next writes break off with an unknown outcome."""
        self.server.unknown_outcomes += self.world.random.randint(1, 3)


def _telling(one: SimulatedTaskManager, record: LeaderRecord | None) -> Callable[[], None]:
    return lambda: one.on_leader(record)


def _reporting(one: SimulatedCoordinator, token: int) -> Callable[[], None]:
    return lambda: one.elector.report_leader_gone(token)


def simulate(scenario: Scenario) -> Outcome:
    """Runs one scenario. Raises Violation."""
    run = Run(scenario)
    with installed(run.world, replacements(run.world)):
        return run.go()
