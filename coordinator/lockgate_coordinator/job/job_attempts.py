"""The attempts of one job: the next one and its slots, the current one, and those of earlier leaders.

none --request, begin--> current, not deployed --deploy--> current --tear_down--> none

`begin` makes the next attempt, or adopts the one that still runs: see adoption.py.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import assert_never

from lockgate_common.amounts import listed
from lockgate_proto.messages import (
    AttemptId,
    AttemptRecord,
    AwaitPart,
    CancelAttempt,
    CheckpointMetadata,
    CheckpointMode,
    DrainSources,
    EdgeView,
    FailureCause,
    JobEvent,
    JobEventKind,
    JobGraph,
    JobRecord,
    JobState,
    RecurringFailure,
    SubtaskCounters,
    SubtaskId,
    SubtaskReport,
    TaskManagerAddress,
)

from lockgate_coordinator.checkpoint.events import AttemptRunning
from lockgate_coordinator.graph.execution_graph import ExecutionGraph
from lockgate_coordinator.graph.regions import exchanges_in_part
from lockgate_coordinator.graph.shape import slots_needed, vertex_shapes
from lockgate_coordinator.job.adoption import Adoption, is_wanted, slot_ids
from lockgate_coordinator.job.attempt import Attempt, AttemptEffect, AttemptEvent, AttemptFailed
from lockgate_coordinator.job.counters import AtWork, JobCounters, ahead_text
from lockgate_coordinator.job.deploy_size import DeployTooLarge, TooNarrow
from lockgate_coordinator.job.effects import Emit, PersistAttempt, Reason, RequestSlots, Send
from lockgate_coordinator.job.events import (
    Committed,
    CountersReported,
    FirstRecordSeen,
    Gone,
    Report,
    Reported,
    SlotsMissing,
    SlotsOffered,
    SplitsFound,
    StillRunning,
    TaskManagerLost,
    TaskManagerReport,
    Tick,
)
from lockgate_coordinator.job.first_positions import KnownPositions
from lockgate_coordinator.job.in_flight import InFlightMisfit
from lockgate_coordinator.job.provenance import accepted, attempt_of
from lockgate_coordinator.job.read_again import ReadAgain
from lockgate_coordinator.job.record_size import attempt_problem
from lockgate_coordinator.job.redistribute import SourceStateUnreadable, counted
from lockgate_coordinator.job.splits import TooManyPartitions
from lockgate_coordinator.job.stragglers import MoveRejected, Relocation, Stragglers
from lockgate_coordinator.job.trace import Starts

TaskManagerEvent = AttemptEvent | CountersReported | StillRunning

_MAX_LISTED = 8
_RESTART_GRACE_MS, _REATTACH_GRACE_MS = 500, 2_000
"""How long a new leader waits for the task managers of the last attempt to register; the latter while it may go on, and
again for each of them that comes.
"""

_ADOPT_TIMEOUT_MS = 5_000
"""How long the cancel of a job waits, from the takeover on, for the adoption of its attempt."""


class JobAttempts:
    """The attempts of one job under one leader."""

    def __init__(self, record: JobRecord, graph: JobGraph, token: int) -> None:
        """graph: normalized."""
        self.graph = graph  # of the next attempt
        self.edges = tuple(  # of every attempt: another parallelism does not change them
            EdgeView(edge.source, edge.target, edge.partitioning, edge.side_output) for edge in graph.edges
        )
        self.token = token
        self.current: Attempt | None = None
        self.number = 0  # of the newest, 0 before the first
        self.restarts = 0
        self.is_counted = True  # whether the next attempt counts as a restart
        self.places: tuple[str, ...] = ()  # task manager of slot i in the newest
        self._addresses: dict[str, str] = {}  # of its task managers
        self.committed_id = 0  # the newest checkpoint known to be committed by every sink of an earlier attempt
        self.counters = JobCounters(graph)
        mode = graph.checkpoints.mode if graph.checkpoints is not None else None
        self.read_again = ReadAgain(never=mode is CheckpointMode.AT_MOST_ONCE)
        self._vertices = frozenset(vertex.id for vertex in graph.vertices)
        self._not_adopted = ""  # why the attempt that runs already was not adopted, "" for nothing
        self.stragglers = Stragglers(graph.straggler_replacement)
        self.is_ending = False  # the job ends: no attempt follows, and failures of the current one do not matter
        self._record = record
        self._first = KnownPositions()
        self._request = 0
        self._at_work = AtWork()
        self._stale: tuple[AttemptId, ...] = ()  # by slot: the last attempt of earlier leaders, where it began
        self._stale_places: set[str] = set()  # where it may still run
        self._replaced: ExecutionGraph | None = None  # the last attempt of this leader that was torn down
        self._is_part = False  # or only some of its slots
        self._found_places: tuple[str, ...] = ()  # of the last attempt of earlier leaders
        self._is_known = False  # whether there was one, until `recovered`
        self.is_cancelled = record.cancel_requested
        self._unread: dict[tuple[str, AttemptId | None], StillRunning] = {}  # until the records are read
        self._adopt_until_ms = 0  # a cancel waits until then for the attempt of earlier leaders
        # Until the first attempt of this leader begins.
        self._adoption = Adoption(graph) if is_wanted(graph) else None

    def recovered(self, last: AttemptRecord, now_ms: int) -> None:
        """Sets the last attempt of earlier leaders."""
        self.number, self.restarts, self.places = last.attempt, last.restarts, last.task_manager_ids
        self._addresses = {found.task_manager_id: found.exchange_address for found in last.addresses}
        self._stale = slot_ids(AttemptId(self._record.job_key, self._record.run_id, last.attempt), last)
        self._stale_places = set(last.task_manager_ids) - {""}
        self._found_places = last.task_manager_ids
        self._is_known = bool(last.attempt)  # a job's first attempt may begin from a savepoint
        self._adopt_until_ms = now_ms + _ADOPT_TIMEOUT_MS
        self._first.recovered(last.first_positions)
        self.stragglers.recovered(last.moves, now_ms)

    def record(self, failures: tuple[RecurringFailure, ...]) -> PersistAttempt | AttemptFailed:
        """The newest attempt, to be stored; a failure if its record is too large."""
        found = tuple(TaskManagerAddress(name, address) for name, address in self._addresses.items())
        moves = self.stragglers.moves
        numbers = self.current.execution.numbers() if self.current is not None else ()
        first = self._first.packed()
        record = AttemptRecord(
            self.number, self.places, self.token, self.restarts, moves, failures, found, numbers, first_positions=first
        )
        problem = attempt_problem(record)
        return AttemptFailed(FailureCause.STATE_UNREADABLE, problem) if problem else PersistAttempt(record)

    @property
    def is_record_behind(self) -> bool:
        """True when first positions of sources were found that the record of the running attempt does not have.

        While a part is lost the record of the next attempt gets them.
        """
        attempt = self.current
        runs = attempt is not None and attempt.deployed_ms is not None and not attempt.execution.has_lost
        return runs and self._first.is_behind

    def all_run(self) -> list[Emit]:
        """The events when every subtask of the current attempt runs: that, and the first record if it came before."""
        assert self.current is not None
        number = len(self.current.execution.subtasks)
        text = f"all {number} subtasks run" if number > 1 else "its subtask runs"
        return [self.event(JobEventKind.ATTEMPT_DEPLOYED, text), *self.current.early_record()]

    def event(self, kind: JobEventKind, text: str, checkpoint_id: int = 0, reason: Reason | None = None) -> Emit:
        """An event of the job in the newest attempt. reason: see Emit."""
        event = JobEvent(kind, attempt=self.number, checkpoint_id=checkpoint_id, token=self.token, text=text)
        attempt = self.current if kind is JobEventKind.ATTEMPT_DEPLOYED else None
        if attempt is None or attempt.deployed_ms is None:
            return Emit(event, reason)
        execution = attempt.execution
        return Emit(event, parts=Starts(attempt.deployed_ms, execution.started_ms, execution.task_manager_of))

    # the next attempt

    def may_cancel(self, now_ms: int) -> bool:
        """True when the job is to be cancelled now: an attempt that may be adopted has its last commit first."""
        if self.current is not None:
            return self.is_cancelled and not (self.current.is_adopted and self.current.deployed_ms is None)
        return self.is_cancelled and not (self._is_adoptable and now_ms < self._adopt_until_ms)

    def next_wake_ms(self) -> int | None:
        """When a cancelled job does not wait any longer for the task managers of its attempt."""
        return self._adopt_until_ms if self.is_cancelled and self._is_adoptable else None

    @property
    def _is_adoptable(self) -> bool:
        return self._adoption is not None and self._is_known and "" not in self.places

    def request(self, now_ms: int, *, is_first: bool = False) -> RequestSlots:
        """Requests slots; answers to earlier requests become stale.

        is_first: the first request of this leader, which waits for the places of the last attempt.
        """
        self._request += 1
        key, slots, avoided = self._record.job_key, slots_needed(self.graph), self.stragglers.avoided(now_ms)
        if not is_first:
            keeps: tuple[int, ...] = ()
            if self.current is not None:
                self.current.await_slots(now_ms)
                keeps = self.current.execution.kept_slots()
            return RequestSlots(key, self._request, slots, self.places, avoided=avoided, keeps=keeps)
        may_adopt = self._is_adoptable
        running = (self.number, _REATTACH_GRACE_MS) if may_adopt else (0, 0)
        oldest = min((known.attempt for known in self._stale), default=self.number)
        return RequestSlots(
            key,
            self._request,
            slots,
            self.places,
            _RESTART_GRACE_MS,
            avoided,
            *running,
            tuple(self._addresses.items()),
            running_since=oldest if may_adopt and oldest < self.number else 0,
        )

    def awaits(self, answer: SlotsOffered | SlotsMissing) -> bool:
        """True for an answer to the newest request."""
        return answer.request == self._request

    def begin(self, offer: SlotsOffered, objection: str, now_ms: int) -> JobState | None:
        """Begins the next attempt on the granted slots, or adopts the last one of earlier leaders, which still runs.

        objection: why that one cannot go on, "" for no reason. Returns the state of the job that follows; None when the
        offer is stale, or too small. RESTARTING: subtasks that run on are not in these slots.
        """
        if not self.awaits(offer) or len(offer.slots) < slots_needed(self.graph):
            return None
        if self.current is not None and not self.current.execution.fits(offer.slots):
            return JobState.RESTARTING
        adoption, self._adoption = self._adoption if self._is_known else None, None
        known, self._not_adopted = None, ""
        if adoption is not None:
            known = adoption.subtasks(self._stale, self.places)
            self._not_adopted = adoption.problem(known, self._stale, self.places, self.graph, offer.slots, objection)
            self.committed_id = adoption.committed_id(known, self.places, self.graph)
        is_adopted = known is not None and not self._not_adopted
        if self.is_cancelled and not is_adopted:
            return None
        if not is_adopted:
            self.restarts += bool(self.number and self.is_counted)
            self.number += 1
        self.is_counted = True
        self.places = tuple(slot.task_manager_id for slot in offer.slots)
        self._addresses = {slot.task_manager_id: slot.exchange_address for slot in offer.slots}
        attempt, before = AttemptId(self._record.job_key, self._record.run_id, self.number), self.current
        numbers = tuple(known.attempt for known in self._stale) if is_adopted else ()
        if before is not None:
            numbers = before.execution.continued(self.number)
        self.current = Attempt(self.graph, attempt, offer.slots, self.token, numbers, self._first)
        self._at_work.clear()
        if before is not None:
            self.current.carry_on(before)
        if known is None or not is_adopted:
            return JobState.DEPLOYING
        self.current.adopt(known, now_ms)
        for key, item in known.items():
            if item.counters:
                self.counters.update(key, SubtaskCounters(SubtaskId(attempt, *key), item.counters))
        return JobState.ADOPTING

    def adoption_event(self) -> list[Emit]:
        """Says why the attempt that runs was not adopted; nothing where it was, or that was not wanted."""
        text = f"another attempt begins: {self._not_adopted}"
        return [self.event(JobEventKind.ATTEMPT_NOT_ADOPTED, text)] if self._not_adopted else []

    # the current attempt

    def persisted(
        self, record: AttemptRecord, metadata: CheckpointMetadata | None, begun_id: int, directory: str, now_ms: int
    ) -> list[Send | Emit | AttemptFailed]:
        """This record of the current attempt is written: deploys it, or assigns splits. The others: see `_deploy`."""
        assert self.current is not None
        self._first.written(record.first_positions)
        if self.current.deployed_ms is not None:
            return [*self.current.positions_stored(now_ms)]
        effects = self._deploy(metadata, begun_id, directory, now_ms)
        return [*effects, *self.current.positions_stored(now_ms)]  # of what runs on

    def _deploy(
        self, metadata: CheckpointMetadata | None, newest_begun_id: int, directory: str, now_ms: int
    ) -> list[Send | Emit | AttemptFailed]:
        """Deploys it from this snapshot; cancels an attempt of an earlier leader where no Deploy replaces it.

        An adopted one runs already, and gets the messages that it may have missed. newest_begun_id: of all checkpoints.
        """
        assert self.current is not None
        try:
            if self.current.is_adopted:
                taken = self.current.take_over(metadata, newest_begun_id, now_ms)
                self._stale_places.clear()
                text = f"attempt {self.number} continues: nothing is restarted"
                return [self.event(JobEventKind.ATTEMPT_ADOPTED, text), *taken]
            sends = self.current.deploy(metadata, directory, now_ms)
        except (SourceStateUnreadable, InFlightMisfit, DeployTooLarge, TooManyPartitions) as error:  # snapshots stay
            failed = AttemptFailed(FailureCause.STATE_UNREADABLE, str(error), is_narrow=isinstance(error, TooNarrow))
            if not failed.is_narrow:
                return [failed]
            self.places = ("",) * len(self.places)  # the next one is spread over all task managers
            return [*self.cancel_stale("the next attempt waits for more task managers"), failed]
        left = self.counters.read()
        self.counters.restore(counted(self.graph, metadata).values(), self.current.execution.begun_before())
        self.read_again.restored(left, self.counters.read())
        replaced_on = tuple(send.task_manager_id for send in sends)
        return [*self.cancel_stale("replaced by a new attempt", replaced_on), *sends]

    def running(self, stopped_with: int, now_ms: int) -> AttemptRunning:
        """Every subtask runs. stopped_with: as in AttemptRunning."""
        assert self.current is not None
        self.current.running_ms, execution = now_ms, self.current.execution
        shapes, is_adopted, numbers = vertex_shapes(self.graph), self.current.is_adopted, execution.numbers()
        self.stragglers.running(execution.places(), now_ms, is_adopted=is_adopted or bool(numbers))
        return AttemptRunning(
            self.current.id, execution.subtasks, shapes, stopped_with, self.places, is_adopted, numbers
        )

    def count_from(self, metadata: CheckpointMetadata | None) -> None:
        """Resets the counters to those of this snapshot."""
        self.counters.restore(counted(self.graph, metadata).values())

    def handle(self, event: TaskManagerEvent, now_ms: int, *, is_read: bool) -> list[AttemptEffect | Relocation]:
        """Handles reports of task managers. A Relocation is to be carried out if nothing else is in progress.

        is_read: the job's records are; until then nothing is decided.
        """
        match event:  # the frequent ones first
            case CountersReported():
                return self._heartbeat(event, now_ms)
            case Reported(report) if report.counters and self.current is not None:
                if (key := self.current.execution.key_of(report.subtask)) is not None:
                    self.counters.update(key, SubtaskCounters(report.subtask, report.counters))
            case Committed() | Reported() | FirstRecordSeen() | SplitsFound() | Gone() | Tick():
                pass
            case TaskManagerLost(name):  # another process under the same id is another place
                if self._adoption is not None:
                    self._adoption.lost(name)
                self._unread = {item: still for item, still in self._unread.items() if item[0] != name}
                self.places = tuple("" if place == name else place for place in self.places)
                self.stragglers.lost(name)
            case StillRunning(name, progress=progress):
                if self._adoption is not None:
                    self._adoption.found(name, progress)
                if is_read:
                    return self._still_running(event, now_ms)
                self._unread[name, event.attempt] = event
                return []
            case _:
                assert_never(event)
        return [*self.current.handle(event, now_ms)] if self.current is not None and not self.is_ending else []

    def accepted(self, report: TaskManagerReport) -> Report | None:
        """The valid part of a report: that of the task manager that runs the subtask; later, only the end is valid.

        The last counters of a replaced attempt are taken here.
        """
        self._last_words(report)
        if self.current is None:
            if self._adoption is not None:
                self._adoption.reported(report.task_manager_id, report.report)
            return report.report if isinstance(report.report, Gone) else None
        return accepted(report.report, report.task_manager_id, self.current.execution)

    def _last_words(self, report: TaskManagerReport) -> None:
        """A subtask of the replaced attempt has ended: takes what it had read, before or after the next is deployed.

        Nothing of a job that ends: its counters are those of its last checkpoint.
        """
        if self.is_ending:
            return
        match report:
            case TaskManagerReport(
                name, Reported(SubtaskReport(SubtaskId(attempt=AttemptId() as attempt) as subtask, counters=counters))
            ) if counters and self._ran_on(subtask, name):
                key = (subtask.vertex_id, subtask.subtask)
                current = self.current
                if current is None or current.deployed_ms is None or current.execution.has_lost:
                    self.counters.update(key, SubtaskCounters(subtask, counters))
                elif attempt.attempt < self.number:
                    self.read_again.ended(key, self.counters.read_in(counters))

    def _ran_on(self, subtask: SubtaskId, name: str) -> bool:
        """Whether the replaced attempt had this subtask on this task manager."""
        if self._replaced is not None:
            return (self._replaced.was_lost_on if self._is_part else self._replaced.runs_on)(subtask, name)
        index = subtask.subtask
        known = subtask.vertex_id in self._vertices and 0 <= index < min(len(self._found_places), len(self._stale))
        return known and subtask.attempt == self._stale[index] and self._found_places[index] == name

    def is_current(self, report: TaskManagerReport) -> bool:
        """True when the report names the current attempt."""
        return self.current is not None and attempt_of(report.report) == self.current.id

    def _heartbeat(self, event: CountersReported, now_ms: int) -> list[AttemptEffect | Relocation]:
        """Takes over counters, and checks whether a subtask should run elsewhere."""
        attempt = self.current
        if attempt is None:
            return []
        execution = attempt.execution
        reports = [(key, report) for report in event.counters if (key := execution.key_of(report.subtask)) is not None]
        for key, report in reports:
            self.counters.update(key, report)
            self._at_work.update(key, report)
            attempt.gaps.update(key, report)
            if report.load is not None:
                execution.loaded(key, report.load)
        if reports:
            self.counters.record(now_ms)
        effects: list[AttemptEffect | Relocation] = [
            self.event(JobEventKind.RECORDS_AHEAD, ahead_text(operator)) for operator in self.counters.newly_ahead()
        ]
        if attempt.running_ms is None or execution.all_exhausted or execution.has_lost or self.is_ending:
            return effects
        for key, report in reports:
            if report.effort is not None:
                self.stragglers.reported(key, report.effort, now_ms)
        found = self.stragglers.look(event.spares, now_ms)
        if isinstance(found, MoveRejected):
            effects.append(self.event(JobEventKind.SUBTASK_STAYS, found.text))
        elif found is not None:
            effects.append(found)
        return effects

    def busy(self) -> str:
        """The operator calls that had not returned at the last heartbeat, as a sentence; "" for none."""
        return self._at_work.sentence(self.current.execution.task_manager_of) if self.current is not None else ""

    def tear_down(
        self, reason: str, lost: str, newest: CheckpointMetadata | None, part: Collection[int], now_ms: int
    ) -> list[Send | Emit]:
        """Cancels the attempt on every task manager except the lost one: later reports of it are ignored.

        newest: the snapshot that the next attempt would start from. part: only in these slots; empty: all.
        """
        attempt = self.current
        if attempt is not None and newest is not None and not attempt.uncommitted(newest):
            self.committed_id = newest.checkpoint_id
        if part:
            return self._lose(part, reason, lost, now_ms)
        self.current = None
        if attempt is None:
            return []
        self._replaced, self._is_part = attempt.execution, False
        return [*attempt.cancel(reason, lost)]

    def drain_sources(self) -> list[Send]:
        """Orders its sources to stop reading."""
        assert self.current is not None
        return self.current.to_sources(DrainSources(self.current.id))

    def _lose(self, part: Collection[int], reason: str, lost: str, now_ms: int) -> list[Send | Emit]:
        """Ends its subtasks in these slots, which are to begin again while the others run on."""
        assert self.current is not None
        execution = self._replaced = self.current.execution
        self._is_part = True
        found = execution.lose(part, now_ms)
        cancels = [
            Send(name, CancelAttempt(known, reason, slots=tuple(slots)))
            for (name, known), slots in found.items()
            if name != lost
        ]
        if exchanges_in_part(self.graph):
            cancels += self.current.to_all(AwaitPart(self.current.id, tuple(sorted(part))))
        names = sorted(f"{key[0]}-{key[1]}" for key in execution.subtasks if execution.is_lost(key))
        restarts = "restarts" if len(names) == 1 else "restart"
        count = f"{len(names)} of {len(execution.subtasks)} subtasks"
        text = f"only {listed(names, _MAX_LISTED)} {restarts}, {count}: {reason}"
        return [*cancels, self.event(JobEventKind.RESTART_EXTENT, text)]

    def restart_whole(self, because: str) -> list[Emit]:
        """Says why all restarts, of a job that has parts; "" for no reason."""
        if not because or slots_needed(self.graph) < 2:
            return []
        return [self.event(JobEventKind.RESTART_EXTENT, f"the whole job restarts: {because}")]

    # earlier attempts

    def settle_unread(self, now_ms: int) -> list[AttemptEffect | Relocation]:
        """The records are read: decides about what task managers still run, as they have said before."""
        unread, self._unread = self._unread, {}
        return [effect for event in unread.values() for effect in self._still_running(event, now_ms)]

    def _still_running(self, event: StillRunning, now_ms: int) -> list[AttemptEffect | Relocation]:
        """Cancels what a task manager still runs, unless it is the current attempt or the next Deploy replaces it."""
        attempt, name = self.current, event.task_manager_id
        if attempt is not None and attempt.execution.runs(event.attempt, name):
            return [*attempt.registered(name, event.progress, now_ms)] if not self.is_ending else []
        is_used = attempt is not None and attempt.execution.runs(attempt.id, name)
        is_stale = event.attempt in self._stale and name in self._stale_places
        if not self.is_ending and (is_used or is_stale):
            return []
        return [Send(name, CancelAttempt(attempt=event.attempt, reason="this attempt is over"))]

    def cancel_stale(self, reason: str, replaced_on: tuple[str, ...] = ()) -> list[Send]:
        """Cancels, once, the attempt of earlier leaders wherever no Deploy replaces it."""
        places, self._stale_places = self._stale_places - set(replaced_on), set()
        stale = {(name, known) for name, known in zip(self._found_places, self._stale, strict=False) if name in places}
        found = sorted(stale, key=lambda item: (item[0], item[1].attempt))
        return [Send(name, CancelAttempt(attempt=known, reason=reason)) for name, known in found]
