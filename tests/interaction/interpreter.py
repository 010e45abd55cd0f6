"""Runs a script of commands on a simulated cluster and writes down what every machine heard and wanted.

The machines, and the processes around them, are those of tests/simulation; here nothing is random: every delay is the
mean of its bounds, so that a trace changes only with a decision. docs/traces.md explains commands and traces.
"""

from __future__ import annotations

import contextlib
import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any
from unittest import mock

from lockgate_coordinator.job.job_master import JobMaster
from lockgate_ha.election import LeaderElection
from lockgate_ha.errors import StoreError
from lockgate_ha.store import Operation
from lockgate_proto.messages import AttemptId, AttemptProgress, CheckpointKind, CheckpointMode, JobEvent, SubtaskId
from lockgate_taskmanager.barrier.events import Aligned, AlignmentAborted, Overtaken
from lockgate_taskmanager.barrier.handler import BarrierHandler
from lockgate_taskmanager.barrier.tracker import BarrierTracker
from lockgate_taskmanager.task.machine import SubtaskMachine

from tests.layouts import places
from tests.simulation.coordinator import SimulatedCoordinator, installed
from tests.simulation.job import SimulatedJob, count, hashed, source
from tests.simulation.orders import Order, OrderingClient
from tests.simulation.simulation import Run, Scenario
from tests.simulation.storage import BASE
from tests.simulation.store import PATHS, ObservedZooKeeper
from tests.simulation.subtask import SimulatedSubtask
from tests.simulation.taskmanager import SimulatedTaskManager, replacements
from tests.simulation.world import Violation, World

TESTDATA = Path(__file__).with_name("testdata")
JOB = "job-0"
NEVER_MS = 1e9
PATIENCE_MS = 5_000.0
"""How long `run until` goes on, in simulated time."""

PEERS = {
    name: peer
    for peer, names in {
        "ZooKeeper": "Connected Disconnected Expired Joined Viewed Changed Claimed ClaimFailed Challenged Failed Join "
        "Challenge AnswerChallenge Claim Release OpenSession CloseSession PersistAttempt PersistOrders "
        "PersistResult PersistCheckpointId AttemptPersisted OrdersPersisted ResultPersisted CheckpointIdPersisted "
        "CheckpointIdPersistFailed PersistFailed Recover Recovered RecoveryFailed",
        "storage": "PersistCheckpoint CheckpointPersisted CheckpointPersistFailed DiscardCheckpoint DiscardPending "
        "CleanUp",
        "leader": "LeaderGone NotLeading Unanswering Silent Answered Probe Probed TriggerReceived CompleteReceived "
        "AbortReceived CancelRequested BarrierOvertakes CheckpointAborted Report Acknowledge Decline ReportCommitted "
        "ReportFirstRecord",
        "coordinator": "Granted Revoked LeaderChanged Suspended Resumed StepDown TokenSeen",
        "slots": "RequestSlots ReleaseSlots SlotsOffered SlotsMissing",
        "client": "RescaleRequested StopRequested SavepointRequested AnswerSavepoint AnswerRescale",
        "watchers": "JobEvent",
        "program": "Started Opened ElementProcessed SinkReached SnapshotTaken SnapshotFailed CommitDone Flushed Closed "
        "InputExhausted TakeSnapshot Commit Flush Close",
        "uploads": "UploadDone UploadFailed StartUpload DropSnapshot",
        "outputs": "ForwardBarrier ForwardEnd",
        "inputs": "BarrierArrived InputEnded ElementArrived Hold Release RecordChannels",
        "barriers": "StopAlignment",
        "subtask": "Aligned Overtaken AlignmentAborted AllInputsEnded",
        "clock": "Tick",
    }.items()
    for name in names.split()
}
"""Where an event comes from, or an effect goes to, that does not say so itself."""
MEASURED = re.compile(r"[0-9.]+ [kMG]?B?(bytes)? in [0-9.]+ m?s")
WRAPPERS = {"TaskManagerReport": "report", "Send": "body", "Emit": "event"}
"""Only what is in them is written."""
UNWRITTEN = frozenset({"Deliver", "WakeAt", "ReadView"})
"""Effects that are not written: they come with every record, or move with every delay."""
ROUTINE = frozenset({"Tick", "CountersReported", "ElementArrived", "ElementProcessed", "Changed", "Viewed"})
"""Events that are written only when something follows from them."""
_UNSAID = """
graph metadata state run_id job_key session pid generation checksum graph_checksum pointer checkpoint_directory subtasks
vertices restore request_id request_ids free counters epoch_version contender contenders address exchange_address
sync_us async_ms alignment_ms started_ms duration_ms longest_sync_us longest_alignment_ms size_bytes written_bytes
task_manager_id cause_id
"""
UNSAID = frozenset(_UNSAID.split())
"""Fields that are measured, or too long, or said by the peer's name."""


class SteadyRandom(random.Random):
    """The middle, always."""

    def random(self) -> float:
        return 0.5


class SteadyWorld(World):
    """Its events follow each other by the mean delays. on_note: is given what processes note for the story."""

    def __init__(self, on_note: Callable[[str, str], None]) -> None:
        super().__init__(0)
        self.random = SteadyRandom()
        self._on_note = on_note

    def note(self, who: str, what: str) -> None:
        super().note(who, what)
        self._on_note(who, what)


def described(message: Any) -> str:
    """One line: the name of a message, and its fields that matter and are set."""
    name = type(message).__name__
    if name in WRAPPERS:
        return described(getattr(message, WRAPPERS[name]))
    if isinstance(message, JobEvent):
        number = f" {message.checkpoint_id}" if message.checkpoint_id else ""
        text = f": {MEASURED.sub('...', message.text)}" if message.text else ""
        return f"{message.kind.name}{number}{text}"
    return " ".join([name, *_fields(message)])


def _fields(message: Any, depth: int = 0) -> Iterator[str]:
    for field in fields(message):
        value = getattr(message, field.name)
        is_unset = value in (None, False, 0, "", (), b"") or value is CheckpointKind.CHECKPOINT
        if (is_unset and field.name != "channel") or field.name in UNSAID or "unix" in field.name:
            continue
        if field.name == "layout":
            found = (f"{vertex}[{index}] on {place}" for (vertex, index), place in places(message).items())
            yield f"layout=[{', '.join(found)}]"
        elif isinstance(value, AttemptProgress):
            phases = (f"{item.vertex_id}[{item.subtask}] {item.phase.name}" for item in value.subtasks)
            yield f"progress=[{', '.join(phases)}]"
        elif is_dataclass(value) and not depth and not isinstance(value, AttemptId | SubtaskId):
            yield from _fields(value, 1)
        elif field.name in ("subtask", "attempt") and not isinstance(value, int):
            yield _text(value)
        else:
            yield field.name if value is True else f"{field.name}={_text(value)}"


def _text(value: Any) -> str:
    match value:
        case AttemptId():
            return f"@{value.attempt}"
        case SubtaskId():
            return f"{value.vertex_id}[{value.subtask}]" + (_text(value.attempt) if value.attempt else "")
        case Enum():
            return value.name
        case str():
            return repr(value) if " " in value else value.replace(f"{BASE}/", "")
        case tuple():
            return f"[{', '.join(_text(part) for part in value)}]"
        case frozenset():
            return f"[{', '.join(sorted(_text(part) for part in value))}]"
        case _ if is_dataclass(value):
            named = getattr(value, "task_manager_id", "")
            return named or f"({' '.join(_fields(value, 1))})"
        case _:
            return str(value)


def _peer(message: Any) -> str:
    named: str = getattr(message, "task_manager_id", "")
    if named:
        return named
    name = type(message).__name__
    if name in WRAPPERS:
        return _peer(getattr(message, WRAPPERS[name]))
    assert name in PEERS, f"{name} is new: PEERS in {Path(__file__).name} is to say where it comes from or goes to"
    return PEERS[name]


class Trace:
    """lines: what was written since the last command. shown: kinds of lines, all where it is None."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.shown: frozenset[str] | None = None
        self.awaited = ""  # a text; when it was written, or would be if its kind were shown:
        self.is_met = False

    def write(self, kind: str, *lines: str) -> None:
        """Lines of one kind."""
        self.is_met = self.is_met or any(self.awaited in line for line in lines)
        if self.shown is None or kind in self.shown:
            self.lines += lines

    def handled(self, kind: str, who: str, event: Any, effects: Sequence[Any]) -> None:
        """A machine has decided."""
        wanted = [effect for effect in effects if type(effect).__name__ not in UNWRITTEN]
        report = getattr(event, "report", event)  # of TaskManagerReport
        if not wanted and ROUTINE & {type(event).__name__, type(report).__name__}:
            return
        sender = "barriers" if isinstance(event, Aligned | Overtaken | AlignmentAborted) else _peer(event)
        lines = [f"{who} <- {sender}: {described(event)}"]
        lines += [f"    -> {_peer(effect)}: {described(effect)}" for effect in wanted]
        self.write(kind, *lines)

    def noted(self, who: str, what: str) -> None:
        """What becomes of processes, and what a fence refuses."""
        who = who.partition("/")[0]
        if who in ("network", "client", "STORAGE") or what.startswith(("is killed", "refuses", "dies", "cannot say")):
            self.write("world", f"{who}: {what}")


@contextlib.contextmanager
def observed(trace: Trace, world: World) -> Iterator[None]:
    """While this is open every machine's decisions are written, and what reaches ZooKeeper and the storage."""
    names: dict[int, tuple[Any, str]] = {}  # machine of a subtask by its id, kept alive for that; and its name
    begin, transact = SimulatedSubtask.__init__, ObservedZooKeeper.transact

    def process() -> str:
        assert isinstance(world.current, SimulatedCoordinator | SimulatedTaskManager)
        return world.current.id

    def begun(self: SimulatedSubtask, *arguments: Any, **options: Any) -> None:
        begin(self, *arguments, **options)
        parts = list(vars(self).values())
        for part in [*parts, *(inner for outer in parts for inner in getattr(outer, "__dict__", {}).values())]:
            if isinstance(part, SubtaskMachine | BarrierHandler | BarrierTracker):
                names[id(part)] = (part, _text(self.id))

    def watched(machine: type[Any], kind: str) -> Any:
        handle = machine.handle

        def handled(self: Any, event: Any, now_ms: int) -> list[Any]:
            effects: list[Any] = handle(self, event, now_ms)
            name = f" {names[id(self)][1]}" if kind in ("subtask", "barriers") else ""
            trace.handled(kind, f"{process()}{name} {kind}", event, effects)
            return effects

        return mock.patch.object(machine, "handle", handled)

    def written(self: ObservedZooKeeper, session: Any, operations: Sequence[Operation]) -> tuple[str, ...]:
        text = ", ".join(map(_operation, operations))
        try:
            paths = transact(self, session, operations)
        except StoreError as error:
            trace.write("zookeeper", f"{process()} => ZooKeeper: {text}", f"    refused: {error}")
            raise
        trace.write("zookeeper", f"{process()} => ZooKeeper: {text}")
        return paths

    with (
        watched(LeaderElection, "election"),
        watched(JobMaster, "job"),
        watched(SubtaskMachine, "subtask"),
        watched(BarrierHandler, "barriers"),
        watched(BarrierTracker, "barriers"),
        mock.patch.object(SimulatedSubtask, "__init__", begun),
        mock.patch.object(ObservedZooKeeper, "transact", written),
    ):
        yield


def _operation(operation: Operation) -> str:
    path = operation.path.removeprefix(PATHS.epoch.rpartition("/")[0])
    version = getattr(operation, "version", None)
    data = getattr(operation, "data", b"")
    at = f" v{version}" if version is not None else ""
    return f"{type(operation).__name__.lower()} {path or '/'}{at}" + (f" = {data.decode()}" if data.isdigit() else "")


@dataclass(frozen=True)
class Step:
    """comment: what stands above the command, with its #. output: the trace as it is in the file."""

    comment: str
    command: str
    output: str

    def __str__(self) -> str:
        return f"{self.comment}{self.command}\n----" + (f"\n{self.output}" if self.output else "")


def parse(text: str) -> list[Step]:
    """The steps of a file: comments, a command, a line of four dashes, the trace up to an empty line."""
    steps = []
    for block in text.strip().split("\n\n"):
        head, _, output = block.partition("\n----")
        *comment, command = head.split("\n")
        assert not command.startswith("#"), f"a comment stands above a command: {command}"
        steps.append(Step("".join(f"{line}\n" for line in comment), command, output.removeprefix("\n")))
    return steps


class Interpreter:
    """One script's cluster."""

    def __init__(self) -> None:
        self.trace = Trace()
        self._world: World = SteadyWorld(self.trace.noted)
        self._run: Run | None = None
        self._orders = 0

    def play(self, steps: Sequence[Step]) -> list[Step]:
        """The same steps with the traces of this run."""
        with installed(self._world, replacements(self._world)), observed(self.trace, self._world):
            return [Step(step.comment, step.command, self._do(step.command)) for step in steps]

    def _do(self, command: str) -> str:
        word, *arguments = command.split()
        self.trace.lines = []
        getattr(self, f"do_{word}")(*arguments)
        if self._world.violation:
            raise Violation(f"{command}: {self._world.violation}\n\n{self._world.tell()}")
        return "\n".join(self.trace.lines)

    @property
    def _cluster(self) -> Run:
        assert self._run is not None, "a script begins with `cluster`"
        return self._run

    def do_show(self, *kinds: str) -> None:
        """Which lines are written from now on: election, job, subtask, barriers, zookeeper, files, world."""
        self.trace.shown = frozenset(kinds)

    def do_cluster(self, *options: str) -> None:
        """Starts processes; after 150 ms a client submits the job: sources, and counts behind them."""
        found = {"coordinators": "2", "task-managers": "1", "sources": "1", "counts": "1", "interval": "200"}
        found |= dict(option.split("=") for option in options)
        width, mode = int(found["counts"]), CheckpointMode[found.get("mode", "EXACTLY_ONCE")]
        vertices = (source("source", 4, 400, int(found["sources"])), count("count", width))
        job = SimulatedJob(JOB, vertices, (hashed("source", "count"),), int(found["interval"]))
        scenario = Scenario(
            0,
            1,
            int(found["coordinators"]),
            int(found["task-managers"]),
            mode=mode,
            job=job,
            patience_ms=0,
            reattach=found.get("failover") == "reattach",
        )
        self._run = Run(scenario, self._world)
        seen, gone = self._run.storage.on_write, self._run.storage.on_delete

        def write(path: str, old: Any, new: Any) -> None:
            self._file("writes", path)
            seen(path, old, new)

        def delete(path: str) -> None:
            self._file("deletes", path)
            gone(path)

        self._run.storage.on_write, self._run.storage.on_delete = write, delete

    def _file(self, verb: str, path: str) -> None:
        assert self._world.current is not None
        who = self._world.current.name.partition("/")[0]
        self.trace.write("files", f"{who} => storage: {verb} {_text(path)}")

    def do_run(self, *words: str) -> None:
        """`run 500` goes on for so many milliseconds, `run until TEXT` until a line holds the text."""
        if words[0] != "until":
            self._world.run(self._world.now + float(words[0]))
            return
        self.trace.awaited, self.trace.is_met = " ".join(words[1:]), False
        deadline = self._world.now + PATIENCE_MS
        while not self.trace.is_met and not self._world.is_over:
            assert self._world.now < deadline, f"no line holds {self.trace.awaited!r}\n{self._world.tell(20)}"
            self._world._step()

    def _process(self, name: str) -> Any:
        run = self._cluster
        return run._leader() if name == "leader" else (run.coordinators | run.task_managers)[name]

    def do_kill(self, name: str) -> None:
        """SIGKILL of `leader` or of a process by its name. A task manager comes back after a second."""
        process = self._process(name)
        if isinstance(process, SimulatedCoordinator):
            self._cluster._kill(process, NEVER_MS)
        else:
            process.crash()

    def do_usurp(self) -> None:
        """The leader stands still (SIGSTOP), and a standby is misled: the port seems to refuse."""
        leader = self._process("leader")
        leader.freeze()
        self._cluster._supersede(leader, NEVER_MS, usurped=True)
        self.trace.write("world", f"{leader.id}: stands still")

    def do_continue(self, name: str) -> None:
        """SIGCONT."""
        self.trace.write("world", f"{name}: goes on")
        self._process(name).thaw()

    def do_storage(self, milliseconds: str) -> None:
        """The storage is away for so long."""
        self._cluster.storage.trouble.fail(float(milliseconds))

    def do_ask(self, what: str, *options: str) -> None:
        """A client asks for `stop`, `drain`, `savepoint`, `cancel` or `rescale count=N`."""
        self._orders += 1
        if what == "rescale":
            vertex, _, width = options[0].partition("=")
            order = Order(parallelism=int(width), vertices=(vertex,))
        else:
            order = Order(drain=what == "drain", savepoint=what == "savepoint", cancel=what == "cancel")
        run = self._cluster
        OrderingClient(self._world, JOB, order, run.oracle, run._leader, f"request-{self._orders}").ask()


def played(path: Path) -> str:
    """The text of a script with the traces of this code."""
    steps = Interpreter().play(parse(path.read_text(encoding="utf-8")))
    return "\n\n".join(map(str, steps)) + "\n"
