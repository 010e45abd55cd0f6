"""One run: a cluster, a job, faults; and what became of it."""

from __future__ import annotations

import contextlib
import random
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from lockgate_common.checksums import checksum
from lockgate_coordinator.graph.normalize import normalize
from lockgate_coordinator.graph.validate_options import option_problems
from lockgate_coordinator.runtime import persistence
from lockgate_proto.codec import encode
from lockgate_proto.messages import (
    AssignSplits,
    AssignSplitsTogether,
    CheckpointMode,
    CoordinatorMessage,
    Deploy,
    JobRecord,
    LeaderFailover,
    LeaderRecord,
    StragglerReplacement,
    SubmitResponse,
)

from tests.simulation.coordinator import FOLLOW_MS, PATIENCE_MS, SimulatedCoordinator, installed
from tests.simulation.copies import Disks
from tests.simulation.exchange import Exchange
from tests.simulation.job import SimulatedJob
from tests.simulation.network import ControlStream
from tests.simulation.oracle import Oracle
from tests.simulation.orders import Order, OrderingClient
from tests.simulation.paths import ZOOKEEPER
from tests.simulation.storage import Outputs, SimulatedFiles, Storage
from tests.simulation.store import SESSION_MS, ObservedZooKeeper
from tests.simulation.taskmanager import SimulatedTaskManager, TaskPlan, replacements
from tests.simulation.world import Crash, Violation, World

LIMIT_MS = 120_000
CHECK_MS = 100
AWAY_MS = 80_000.0
"""Longer than a job runs on without a part for which there are no slots."""

STRAGGLERS = StragglerReplacement(factor=2.0, window_ms=200, pause_ms=300)
"""Of jobs in a world where a task manager is slow."""


@dataclass(frozen=True)
class Scenario:
    """What happens in a run beside the job itself.

    crash_at, stall_at: number of the point (see `Run.reached`) at which the coordinator that reached it dies or
    freezes; task_manager_crash_at: number of the point at which a task manager dies; stall_ms: for how long it freezes;
    usurped: while it is frozen a standby believes that its port refuses, and takes over although its session lives.
    faults: calls of `Run` by time. mode: of every job's checkpoints; at_a_time: how many of them; orders: what a client
    wants of every job, by time; job: what they compute, None for a random one by the seed; patience_ms: how long
    UNALIGNED stays aligned, None: by the seed; metadata_in_files: a leader needs the storage to recover a job; rival:
    a second client submits another graph under the key of each job; sick: what is wrong with the last job alone, "data"
    that it refuses, or a "defect" of the coordinator; tolerable: failed checkpoints in a row; reattach: running
    attempts are adopted by new leaders. replicas: standby copies of each job.
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
    task_manager_crash_at: int = 0
    metadata_in_files: bool = False
    rival: bool = False
    sick: str = ""
    tolerable: int = 3
    reattach: bool = False
    replicas: int = 0


@dataclass(frozen=True)
class Step:
    """What a process did at a point, and how many checkpoints had been completed before it."""

    label: str
    completed: int


@dataclass(frozen=True)
class Outcome:
    """attempts: at most, of a healthy job. points, task_manager_points: steps that coordinators and task managers have
    taken. in_flight: records in the channel states of completed checkpoints. ended: how each job did. rescales:
    attempts of another shape than the one before. moved: records in flight that were deployed in such. digest: of the
    whole story; the same seed gives the same. steps, task_manager_steps: one for each point, when no process was to die
    or freeze at one. begun: how often each subtask was deployed.
    """

    points: int
    events: int
    sim_ms: float
    attempts: int
    grants: int
    in_flight: int
    rescales: int
    moved: int
    ended: tuple[str, ...]
    task_manager_points: int
    digest: int
    steps: tuple[Step, ...] = field(default=(), repr=False)
    task_manager_steps: tuple[Step, ...] = field(default=(), repr=False)
    copies_read: int = 0
    begun: Mapping[tuple[str, int], int] = field(default_factory=dict)


def _jobs(scenario: Scenario) -> dict[str, SimulatedJob]:
    """By key. Raises Violation for one whose options a coordinator would refuse: it need not come to an end."""
    drawn = random.Random(scenario.seed)
    names = [f"job-{n}" for n in range(scenario.jobs)]
    patience_ms = scenario.patience_ms
    if patience_ms is None:
        patience_ms = (0, 0, 15, 40)[scenario.seed % 4] if scenario.mode is CheckpointMode.UNALIGNED else 0
    jobs = {
        name: replace(
            replace(scenario.job, key=name) if scenario.job is not None else SimulatedJob.draw(name, drawn),
            mode=scenario.mode,
            tolerable=scenario.tolerable,
            aligned_timeout_ms=patience_ms,
            replicas=scenario.replicas,
        )
        for name in names
    }
    if scenario.at_a_time > 1:  # often enough that the next one is due while one is under way
        changes = {"at_a_time": scenario.at_a_time, "interval_ms": 30}
        jobs = {name: replace(job, **changes) for name, job in jobs.items()}
    if scenario.plan.slow and scenario.mode is not CheckpointMode.AT_MOST_ONCE:  # which is never restarted for it
        jobs = {name: replace(job, stragglers=STRAGGLERS) for name, job in jobs.items()}
    if scenario.reattach:
        failover = LeaderFailover.LEADER_FAILOVER_REATTACH
        jobs = {name: replace(job, failover=failover) for name, job in jobs.items()}
    for job in jobs.values():
        measured = job.stragglers and replace(job.stragglers, window_ms=1_000, pause_ms=1_000)  # a run is short
        for problem in option_problems(normalize(replace(job, stragglers=measured).graph())):
            raise Violation(f"{problem}\n\n{scenario}")
    return jobs


class Run:
    """A whole cluster in one world."""

    oracle_class: type[Oracle] = Oracle
    task_manager_class: type[SimulatedTaskManager] = SimulatedTaskManager

    def __init__(self, scenario: Scenario, world: World | None = None) -> None:
        """world: to run in, in place of a random one."""
        self.scenario = scenario
        self.world = world = world or World(scenario.seed)
        self.server = ObservedZooKeeper(world)
        self.server.on_leader = self._leader_changed
        self.storage, self.outputs = Storage(world), Outputs()
        self.disks = Disks(world, self.storage)
        self.jobs = _jobs(scenario)
        self.oracle = self.oracle_class(world, self.server, self.storage, self.outputs, self.jobs)
        self.exchange = Exchange(world)
        world.defective = list(self.jobs)[-1] if scenario.sick == "defect" else ""
        refusing = list(self.jobs)[-1] if scenario.sick == "data" else ""
        self.plan = replace(scenario.plan, refusing=refusing)
        self.oracle.hopeless |= {name for name in (world.defective, refusing) if name}
        self.points = self.task_manager_points = 0
        self.steps: list[Step] = []
        self.task_manager_steps: list[Step] = []
        self._completed = 0  # checkpoints
        self.grants = 0
        self._pids = 100
        self._files = SimulatedFiles(self.storage)
        self._acknowledged_graphs: dict[str, str] = {}  # job key to checksum
        self._lies: set[str] = set()  # addresses that seem to refuse although a process listens
        self._away: set[str] = set()  # task managers that do not come back soon
        self.coordinators: dict[str, SimulatedCoordinator] = {}
        self.task_managers: dict[str, SimulatedTaskManager] = {}
        for number in range(scenario.coordinators):
            self._start_coordinator(f"coordinator-{number}")
        for number in range(scenario.task_managers):
            self._start_task_manager(f"tm-{number}")
        for key in self.jobs:
            world.schedule(world.delay(0, 300), self._submitter(key, self.jobs[key]))
            if scenario.rival:
                other = replace(self.jobs[key], interval_ms=self.jobs[key].interval_ms + 1)
                world.schedule(world.delay(0, 300), self._submitter(key, other, "rival-"))
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
                self._check_broken_off()
        except Exception as error:
            if not isinstance(error, Violation):
                world.note("FAULT", traceback.format_exc())
            world.violation = world.violation or repr(error)
        if world.violation:
            raise Violation(f"{world.violation}\n\n{world.tell()}\n\nstate: {self._state()}\n{self.scenario}")
        healthy = self.jobs.keys() - self.oracle.hopeless
        attempts, in_flight = max(self.oracle.attempts[key] for key in healthy), self.oracle.in_flight_seen
        return Outcome(
            self.points,
            world.events,
            world.now,
            attempts,
            self.grants,
            in_flight,
            self.oracle.rescales,
            self.oracle.moved,
            tuple(job_result.outcome for key in self.jobs if (job_result := self.oracle.result(key)) is not None),
            self.task_manager_points,
            world.digest,
            tuple(self.steps),
            tuple(self.task_manager_steps),
            self.disks.reads,
            dict(self.oracle.begun),
        )

    def _check_broken_off(self) -> None:
        """Nothing runs of a job over which the coordinator makes a mistake, where it is connected [7]."""
        for tm in self.task_managers.values():
            runs = [attempt for attempt in tm.deployments.running() if attempt.job_key == self.world.defective]
            if runs and tm.is_alive and tm.stream is not None:
                self.world.violate(f"[7] {tm.name} still runs {runs}, which was broken off")

    def _state(self) -> str:
        tasks = [repr(task) for tm in self.task_managers.values() for task in tm.subtasks()]
        terms = [
            f"{coordinator.name} {coordinator.elector._machine.phase.value} "
            + "; ".join(
                str(job.status())
                for job in (coordinator.dispatcher.term.jobs.values() if coordinator.dispatcher.term else ())
            )
            for coordinator in self.coordinators.values()
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
        simulated_task_manager = self.task_manager_class(
            self.world,
            name,
            self._pids,
            self.storage,
            self.disks,
            self.outputs,
            self.exchange,
            self.plan,
            self._connect,
            self._task_manager_died,
            self._task_manager_reached,
        )
        self.task_managers[name] = simulated_task_manager
        leader = self.server.leader()
        simulated_task_manager.later(self.world.delay(1, 20), lambda: simulated_task_manager.on_leader(leader))

    def _task_manager_died(self, simulated_task_manager: SimulatedTaskManager) -> None:
        delay_ms = self.world.delay(200, 2_000) + (AWAY_MS if simulated_task_manager.id in self._away else 0)
        self.world.schedule(delay_ms, lambda: self._start_task_manager(simulated_task_manager.id))

    def _coordinator_at(self, address: str) -> SimulatedCoordinator | None:
        coordinator = self.coordinators.get(address.partition(":")[0])
        return coordinator if coordinator is not None and coordinator.is_alive else None

    def _refuses(self, address: str) -> bool:
        if address in self._lies:
            return True
        name, _, number = address.partition(":")
        if name in self.coordinators:
            return not self.coordinators[name].is_alive
        task_manager = self.task_managers.get(name)
        return task_manager is None or not task_manager.is_alive or task_manager.address != f"{name}:{number}"

    def _connect(self, tm: SimulatedTaskManager, leader: LeaderRecord) -> ControlStream | None:
        coordinator = self._coordinator_at(leader.address)
        if coordinator is None or self.world.paths.is_apart(tm.id, coordinator.id):
            return None

        def seen(message: CoordinatorMessage) -> None:
            body = message.body
            if isinstance(body, Deploy) and body.attempt is not None:
                self.oracle.deploying(body.attempt, message.token, body.restored_checkpoint_id)
                self.oracle.shaped(body)
            elif isinstance(body, AssignSplits):
                self.oracle.given_out(body)
            elif isinstance(body, AssignSplitsTogether):
                for order in body.orders:
                    self.oracle.given_out(order)

        stream = ControlStream(tm, coordinator, leader, seen)
        coordinator.streams.append(stream)
        return stream

    def _leader_changed(self, record: LeaderRecord | None) -> None:
        self.grants += record is not None
        for task_manager in self.task_managers.values():
            self.world.paths.when_open(
                ZOOKEEPER, task_manager.id, _telling(task_manager, record, self.world.delay(0.5, 20))
            )

    # -- the client ---------------------------------------------------------------------------------------------------

    def _submitter(self, key: str, job: SimulatedJob, name: str = "") -> Callable[[], None]:
        graph = encode(job.graph())
        submitted, tries = checksum(graph), 0

        def acknowledged(answer: SubmitResponse) -> None:
            known = self.oracle.acknowledged.setdefault(key, answer.run_id)
            self.world.note("client", f"{key} is {answer.run_id}, created={answer.created}")
            acknowledged_graph = self._acknowledged_graphs.setdefault(key, submitted)
            if known != answer.run_id or acknowledged_graph != submitted:
                self.world.violate(f"[4] {key} was acknowledged as {known} and as {answer.run_id}, perhaps another job")

        def submit() -> None:
            nonlocal tries
            tries += 1
            leader = self.server.leader()
            coordinator = self._coordinator_at(leader.address) if leader is not None else None
            if coordinator is not None:
                record = JobRecord(job_key=key, run_id=f"run-{name}{key}-{tries}", graph_checksum=submitted)
                answer = coordinator.dispatcher.submit(record, graph)
                answer.add_done_callback(
                    lambda future: acknowledged(future.result()) if future.exception() is None else None
                )
            if key not in self.oracle.acknowledged or self.world.chance(0.5):  # some try again although they know
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
            self._completed += label == "after-zookeeper-commit"
            self.steps.append(Step(label, self._completed))

    def _task_manager_reached(self, process: SimulatedTaskManager, label: str) -> None:
        """A task manager has done one more thing: now it may die."""
        self.task_manager_points += 1
        if self.task_manager_points == self.scenario.task_manager_crash_at:
            self.world.note(process.name, f"dies at its point {self.task_manager_points}: {label}")
            raise Crash
        if not self.scenario.task_manager_crash_at:
            self.task_manager_steps.append(Step(label, self._completed))

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

    def interrupt_leader(self) -> None:
        """SIGKILL of the leader in the middle of its messages: the last ones have not gone to one task manager."""
        leader = self._leader()
        if leader is not None:
            self.world.paths.cut(leader.id, self.world.random.choice(sorted(self.task_managers)), 60)
            self.world.schedule(50, lambda: self._kill(leader, 1_000) if leader.is_alive else None)

    def kill_coordinators(self) -> None:
        """SIGKILL of all of them; they are started again after three seconds."""
        for coordinator in list(self.coordinators.values()):
            if coordinator.is_alive:
                self._kill(coordinator, 3_000)

    def kill_standby(self) -> None:
        """SIGKILL of a coordinator that does not lead."""
        leader = self._leader()
        standbys = [
            coordinator
            for coordinator in self.coordinators.values()
            if coordinator.is_alive and coordinator is not leader
        ]
        if standbys:
            self._kill(self.world.random.choice(standbys), self.world.delay(100, 3_000))

    def kill_task_manager(self) -> None:
        """SIGKILL of a task manager; another process takes its name."""
        living = [task_manager for task_manager in self.task_managers.values() if task_manager.is_alive]
        if living:
            self.world.random.choice(living).crash()

    def lose_task_manager(self) -> None:
        """The same; and it stays away for longer than what runs on may wait for its slots."""
        self._away |= self.task_managers.keys()
        self.kill_task_manager()
        self._away.clear()

    def fail_subtask(self) -> None:
        """A subtask fails by itself, and its process lives."""
        living = [manager for manager in self.task_managers.values() if manager.is_alive and any(manager.subtasks())]
        if living:
            task_manager = self.world.random.choice(living)
            task = self.world.random.choice(list(task_manager.subtasks()))
            self.world.is_hindered = True
            self.world.note(task_manager.name, f"{task.id} is to fail")
            task_manager.later(0, lambda: task.peer_lost("it breaks"))

    def freeze_leader(self) -> None:
        """SIGSTOP of the leader, SIGCONT later: perhaps after its session has ended."""
        leader = self._leader()
        if leader is not None and not leader.is_frozen:
            duration_ms = self.world.delay(50, 7_000)
            self.world.note(leader.name, f"freezes for {duration_ms:.0f} ms")
            leader.freeze()
            self._supersede(leader, duration_ms, self.world.chance(0.3))
            self.world.schedule(duration_ms, leader.thaw)

    def doze_leader(self) -> None:
        """The leader is slow: it stands still for a moment, and answers late."""
        self._stop_leader(self.world.delay(50, PATIENCE_MS - 2 * FOLLOW_MS))

    def stun_leader(self) -> None:
        """SIGSTOP of the leader, and SIGCONT before its session ends."""
        self._stop_leader(self.world.delay(2_000, 3_000))

    def _stop_leader(self, duration_ms: float) -> None:
        leader = self._leader()
        if leader is not None and not leader.is_frozen:
            self.world.note(leader.name, f"freezes for {duration_ms:.0f} ms")
            leader.freeze()
            self.world.schedule(duration_ms, leader.thaw)

    def usurp_leader(self) -> None:
        """A standby takes over from a leader that runs on: its port seemed to refuse."""
        leader = self._leader()
        if leader is not None:
            self._supersede(leader, self.world.delay(20, 300), usurped=True)

    def freeze_task_manager(self) -> None:
        """SIGSTOP and SIGCONT of a task manager."""
        task_manager = self.world.random.choice(list(self.task_managers.values()))
        if task_manager.is_alive and not task_manager.is_frozen:
            duration_ms = self.world.delay(50, 5_000)
            self.world.is_hindered = True
            self.world.note(task_manager.name, f"freezes for {duration_ms:.0f} ms")
            task_manager.freeze()
            self.world.schedule(duration_ms, task_manager.thaw)

    def break_stream(self) -> None:
        """The control stream of a task manager breaks, both sides live."""
        task_manager = self.world.random.choice(list(self.task_managers.values()))
        if task_manager.stream is not None:
            task_manager.stream.break_off("the network")

    def cut_one_way(self) -> None:
        """Nothing from one process reaches another one, without a sound; the other direction is open."""
        source, target = self.world.random.sample(self._hosts(), 2)
        if target in self.task_managers and self.world.chance(0.2):
            source = ZOOKEEPER
        self.world.paths.cut(source, target, self._silence_ms())

    def cut_both_ways(self) -> None:
        """Two processes do not reach each other, without a sound."""
        first, other = self.world.random.sample(self._hosts(), 2)
        duration_ms = self._silence_ms()
        self.world.paths.cut(first, other, duration_ms)
        self.world.paths.cut(other, first, duration_ms)

    def isolate_task_manager(self) -> None:
        """A task manager reaches no process any more, without a sound."""
        self._isolate(self.world.random.choice(sorted(self.task_managers)), self._silence_ms())

    def isolate_leader(self) -> None:
        """The leader reaches no process any more, ZooKeeper neither, without a sound."""
        leader = self._leader()
        if leader is None or leader.elector._session is None:
            return
        duration_ms = self._silence_ms()
        self._isolate(leader.id, duration_ms)
        self.server.cut_off(leader.elector._session, duration_ms)

    def _isolate(self, name: str, duration_ms: float) -> None:
        for other in self._hosts():
            if other != name:
                self.world.paths.cut(name, other, duration_ms)
                self.world.paths.cut(other, name, duration_ms)

    def _hosts(self) -> list[str]:
        """Those between which a path may be cut. That of a coordinator to ZooKeeper is its session."""
        return [*sorted(self.coordinators), *sorted(self.task_managers)]

    def _silence_ms(self) -> float:
        return self.world.delay(50, self.world.random.choice((300.0, 2_000.0, 8_000.0)))

    def lose_storage(self) -> None:
        """The storage is away for a while, for everybody."""
        self.storage.trouble.fail(self._silence_ms())

    def slow_storage(self) -> None:
        """The storage takes its time for a while, for everybody."""
        self.storage.trouble.slow_down(self._silence_ms())

    def damage_state(self) -> None:
        """A file of the newest checkpoint of a job can never be read again."""
        self.storage.trouble.damaged |= self.oracle.needed_now(self.world.random)

    def spoil_copies(self) -> None:
        """Copies on the disk of a task manager are lost or damaged."""
        self.disks.spoil(self.world.random.choice(list(self.task_managers.values())).disk)

    def fill_disk(self) -> None:
        """The disk of a task manager has no room for copies for a while."""
        disk = self.world.random.choice(list(self.task_managers.values())).disk
        disk.is_full = True
        self.world.schedule(self.world.delay(100, 1_500), lambda: setattr(disk, "is_full", False))

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
        self.server.cut_off(session, duration_ms)

    def stop_zookeeper(self) -> None:
        """A total outage; no session is lost by it."""
        self.world.note("ZOOKEEPER", "stops")
        self.server.stop()
        self.world.schedule(self.world.delay(100, 3_000), self.server.start)

    def lose_answers(self) -> None:
        """The next writes break off with an unknown outcome."""
        self.server.unknown_outcomes += self.world.random.randint(1, 3)


def _telling(
    simulated_task_manager: SimulatedTaskManager, record: LeaderRecord | None, delay_ms: float
) -> Callable[[], None]:
    return lambda: simulated_task_manager.later(delay_ms, lambda: simulated_task_manager.on_leader(record))


def _reporting(simulated_coordinator: SimulatedCoordinator, token: int) -> Callable[[], None]:
    return lambda: simulated_coordinator.elector.report_leader_gone(token)


def simulate(scenario: Scenario) -> Outcome:
    """Runs one scenario. Raises Violation."""
    run = Run(scenario)
    more = replacements(run.world)
    if scenario.metadata_in_files:
        more.append((persistence, "INLINE_METADATA_BYTES", 0))
    with contextlib.closing(run.disks), installed(run.world, more):
        return run.go()
