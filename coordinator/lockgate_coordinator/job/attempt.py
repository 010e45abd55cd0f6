"""One execution attempt under this leader: its subtasks, the splits of its sources, its commits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from lockgate_proto.messages import (
    AttemptId,
    AttemptProgress,
    AwaitPart,
    CancelAttempt,
    CheckpointCommitted,
    CheckpointMetadata,
    DrainSources,
    FailureCause,
    FailurePlace,
    FirstRecord,
    JobEvent,
    JobEventKind,
    JobGraph,
    NotifyCheckpointAborted,
    NotifyCheckpointComplete,
    SplitsDiscovered,
    SubtaskId,
    SubtaskPhase,
    SubtaskProgress,
    SubtaskReport,
    SubtaskState,
    TriggerCheckpoint,
    Vertex,
)

from lockgate_coordinator.graph.execution_graph import ExecutionGraph, Phase, SubtaskKey
from lockgate_coordinator.graph.shape import committers, source_vertices
from lockgate_coordinator.graph.slots import SlotOffer
from lockgate_coordinator.job.deploy_size import check_size
from lockgate_coordinator.job.effects import Emit, Reason, Send
from lockgate_coordinator.job.events import (
    Committed,
    FirstRecordSeen,
    Gone,
    Reported,
    SplitsFound,
    TaskManagerLost,
    Tick,
)
from lockgate_coordinator.job.first_positions import KnownPositions
from lockgate_coordinator.job.in_flight import check_in_flight
from lockgate_coordinator.job.redistribute import redistribute
from lockgate_coordinator.job.replay_gaps import ReplayGaps
from lockgate_coordinator.job.splits import DISCOVERY_TIMEOUT_MS, Assign, SplitAssigner, SplitEffect

_PHASES = {SubtaskPhase.SUBTASK_RUNNING: Phase.RUNNING, SubtaskPhase.SUBTASK_EXHAUSTED: Phase.EXHAUSTED}


_TOKENS, _ROUNDS = 1 << 31, 1 << 31
"""Leaders of one attempt number their requests for splits apart: a late answer to one is none to the next."""

DEPLOY_TIMEOUT_MS = 300_000
"""An attempt whose subtasks have not all started by then has failed."""

PART_TIMEOUT_MS = 60_000
"""How long the rest runs on while a lost part waits for slots: its sinks hold what no checkpoint has sealed."""


@dataclass(frozen=True, slots=True)
class AttemptFailed:
    """The attempt has failed. lost: the unreachable task manager, or empty. planned: not counted as a restart.

    subtask: the one that failed, if any; error: its message; place: where it was. is_narrow: it is tried again until
    its slots are on enough task managers.
    """

    cause: FailureCause
    text: str
    lost: str = ""
    planned: bool = False
    subtask: SubtaskKey | None = None
    error: str = ""
    place: FailurePlace | None = None
    is_narrow: bool = False

    @property
    def reason(self) -> Reason:
        """Its cause, or that its task manager was lost."""
        return JobEventKind.TASK_MANAGER_LOST if self.lost else self.cause


AttemptEvent = Reported | TaskManagerLost | FirstRecordSeen | SplitsFound | Committed | Gone | Tick
AttemptEffect = Send | Emit | AttemptFailed
ToAttempt = (
    AwaitPart | CancelAttempt | DrainSources | NotifyCheckpointAborted | NotifyCheckpointComplete | TriggerCheckpoint
)
"""Messages to all subtasks of one attempt on a task manager."""


class Attempt:
    """An attempt from the grant of its slots to its end. Never revived: a restart makes a new one."""

    def __init__(
        self,
        graph: JobGraph,
        attempt: AttemptId,
        slots: Sequence[SlotOffer],
        token: int,
        numbers: Sequence[int] = (),
        first: KnownPositions | None = None,
    ) -> None:
        """graph: normalized. slots[i] takes subtask i of every vertex. token: for events.

        numbers: of the attempt in which the subtasks in slot i began; empty: all begin in this one. first: of the job.
        """
        self.id = attempt
        self.deployed_ms: int | None = None
        self.running_ms: int | None = None
        self.restored_id = 0  # the checkpoint that it starts from
        self.execution = ExecutionGraph(graph, attempt, slots, numbers)
        self.gaps = ReplayGaps()
        self.sinks = committers(graph)
        self.graph = graph
        self._token = token
        self._first = first if first is not None else KnownPositions()
        self.is_adopted = False  # whether an earlier leader has deployed it
        self._adopted: dict[SubtaskKey, SubtaskProgress] = {}  # until it is taken over
        self._before: Attempt | None = None  # until it is deployed: the one whose subtasks run on in this one
        self._first_record: Emit | None = None
        self._has_output = False  # records of it are visible in a sink
        self._assigners: dict[str, SplitAssigner] = {}
        self._committed: dict[SubtaskKey, int] = {}
        self._commit_deadline_ms: int | None = None
        self._part_since_ms: int | None = None  # since when a part has been lost, also in the attempts before
        self._part_deadline_ms: int | None = None  # while a lost part waits for slots

    def handle(self, event: AttemptEvent, now_ms: int) -> list[AttemptEffect]:
        """Handles reports of its task managers. Reports of other attempts are ignored."""
        match event:  # the frequent ones first
            case Committed(committed):
                return self._on_committed(committed)
            case Tick():
                return self._on_tick(now_ms)
            case Reported(report):
                return self._on_report(report, now_ms)
            case FirstRecordSeen(first):
                return self._on_first_record(first)
            case SplitsFound(found):
                return self._on_splits(found, now_ms)
            case TaskManagerLost():
                return self._on_lost(event)
            case Gone(name, gone):
                text = f"all subtasks on {name} have ended"
                return [AttemptFailed(FailureCause.FAULT, text)] if self.execution.runs(gone.attempt, name) else []
            case _:
                assert_never(event)

    def deploy(self, metadata: CheckpointMetadata | None, checkpoint_directory: str, now_ms: int) -> list[Send]:
        """The messages to send once the attempt's record is written.

        metadata: the snapshot to start from. Raises SourceStateUnreadable, InFlightMisfit, DeployTooLarge,
        TooManyPartitions.
        """
        check_in_flight(self.graph, metadata)
        restore = self._restored(metadata)
        before, self._before = self._before, None
        for vertex in source_vertices(self.graph):
            if vertex.id in self._assigners:
                continue  # every subtask of it runs on
            known = before._assigners.get(vertex.id) if before is not None else None
            assigner = self._assigner(vertex, restore, known.next_round if known is not None else 1)
            if known is not None:
                assigner.carry_on(known)
        self.deployed_ms = now_ms
        sends: list[Send] = []
        self.restored_id = metadata.checkpoint_id if metadata is not None else 0
        for name, body in self.execution.deployments(restore, self.restored_id, checkpoint_directory):
            check_size(body)
            sends.append(Send(name, body))
        sends += [Send(name, body) for name, body in self.execution.rejoins(self.restored_id)]
        for assigner in self._assigners.values():
            if assigner.is_fresh:
                sends += self._split_sends(assigner, assigner.deployed(now_ms))
        return sends

    def _restored(self, metadata: CheckpointMetadata | None) -> Mapping[SubtaskKey, SubtaskState]:
        return redistribute(self.graph, metadata, metadata is not None and metadata.run_id != self.id.run_id)

    def _assigner(self, vertex: Vertex, restore: Mapping[SubtaskKey, SubtaskState], first_round: int) -> SplitAssigner:
        own = {key[1]: state for key, state in restore.items() if key[0] == vertex.id}
        ids = {index: self.execution.id_of((vertex.id, index)) for index in range(vertex.parallelism)}
        earlier = {index: known for index, known in ids.items() if known != self.id}
        self._assigners[vertex.id] = assigner = SplitAssigner(vertex, self.id, own, first_round, earlier, self._first)
        return assigner

    def carry_on(self, before: Attempt) -> None:
        """The subtasks of `before` that were not lost run on in this attempt, and only the others begin."""
        self._before, self._part_since_ms = before, before._part_since_ms
        self.execution.carry_on(before.execution)
        stay = self.execution.begun_before()
        self._committed = {key: number for key, number in before._committed.items() if key in stay}
        for vertex in source_vertices(self.graph):
            if all((vertex.id, index) in stay for index in range(vertex.parallelism)):
                self._assigners[vertex.id] = before._assigners[vertex.id]  # answers may come before the deployment

    def await_slots(self, now_ms: int) -> None:
        """Slots are asked for, for a lost part, or for one that could not begin again."""
        if self._part_since_ms is None or self.running_ms is not None:
            self._part_since_ms = now_ms
        self._part_deadline_ms = max(now_ms, self._part_since_ms + PART_TIMEOUT_MS)

    def adopt(self, progress: Mapping[SubtaskKey, SubtaskProgress], now_ms: int) -> None:
        """The attempt was deployed by an earlier leader: how far its subtasks are. Before its record is rewritten."""
        self.is_adopted, self._adopted = True, dict(progress)
        for key, known in progress.items():
            self.execution.advance(SubtaskId(self.execution.id_of(key), *key), _PHASES[known.phase], now_ms)
            self._committed[key] = known.committed_id
        self._has_output = any(known.has_output for known in progress.values())

    def take_over(self, metadata: CheckpointMetadata | None, newest_begun_id: int, now_ms: int) -> list[Send | Emit]:
        """The messages to send once the record of the adopted attempt is rewritten.

        metadata: the newest completed snapshot, whose completion may not be known everywhere. Those begun after it are
        over: an earlier leader would have had to complete them. Raises SourceStateUnreadable, DeployTooLarge,
        TooManyPartitions.
        """
        completed_id = metadata.checkpoint_id if metadata is not None else 0
        sends: list[Send | Emit] = []
        if metadata is not None and any(self.took(key, metadata) for key in self.execution.subtasks):
            sends += self.to_all(NotifyCheckpointComplete(self.id, completed_id))
            self.restored_id = -self.id.attempt  # not known, and not that of another attempt
        else:
            self.restored_id = completed_id
        if newest_begun_id > completed_id:
            reason = "its leader has failed"
            sends += self.to_all(NotifyCheckpointAborted(self.id, newest_begun_id, reason, and_earlier=True))
        restore = self._restored(metadata)
        for vertex in source_vertices(self.graph):
            assigner = self._assigner(vertex, restore, (self._token % _TOKENS) * _ROUNDS + 1)
            for key, known in self._adopted.items():
                if key[0] == vertex.id:
                    assigner.adopt(known)
            sends += self._split_sends(assigner, assigner.deployed(now_ms))
            for index in range(vertex.parallelism):
                sends += self._split_sends(assigner, assigner.running(index))
        self.deployed_ms, self._adopted = now_ms, {}
        # Clients may have missed this event of the dead leader.
        return [*sends, self._emit(JobEventKind.FIRST_COMMIT, "")] if self._has_output else sends

    def registered(self, name: str, progress: AttemptProgress | None, now_ms: int) -> list[AttemptEffect]:
        """A task manager has registered again, and says how far it is: reports on its last stream may be lost.

        Failures are not taken from there: their reports, which have the reason, come as well, or their consequences do.
        """
        effects: list[AttemptEffect] = []
        if progress is None:
            return effects
        for item in progress.subtasks:
            subtask = SubtaskId(progress.attempt, item.vertex_id, item.subtask)
            if not self.execution.runs_on(subtask, name):
                continue
            effects += self._on_committed(CheckpointCommitted(subtask, item.committed_id, item.has_output))
            if item.phase in _PHASES:
                effects += self._on_report(SubtaskReport(subtask, item.phase), now_ms)
        return effects

    def next_wake_ms(self) -> int | None:
        """When a Tick is wanted."""
        times = [assigner.next_wake_ms() for assigner in self._assigning()]
        times += [self._commit_deadline_ms, self._part_deadline_ms]
        if self.deployed_ms is not None and self.running_ms is None:
            times.append(self.deployed_ms + DEPLOY_TIMEOUT_MS)
        return min((at for at in times if at is not None), default=None)

    def await_commits(self, checkpoint_id: int, deadline_ms: int) -> bool:
        """The first call sets the deadline for committing this checkpoint. True when every subtask has committed it."""
        if self._commit_deadline_ms is None:
            self._commit_deadline_ms = deadline_ms
        return not self._not_committed(checkpoint_id)

    def has_committed(self, key: SubtaskKey, checkpoint_id: int) -> bool:
        """True when a subtask has committed this checkpoint."""
        return self._committed.get(key, 0) >= checkpoint_id

    def took(self, key: SubtaskKey, snapshot: CheckpointMetadata) -> bool:
        """True for a snapshot in which the subtask took part since it began.

        The number in a snapshot is that of the whole job's newest attempt then, in which some subtasks did not begin.
        """
        return snapshot.run_id == self.id.run_id and self.execution.id_of(key).attempt <= snapshot.attempt

    def uncommitted(self, newest: CheckpointMetadata) -> tuple[SubtaskKey, ...]:
        """Sinks not known to have committed `newest`: a snapshot of this attempt, or the one it is restored from.

        A sink that has started has committed the snapshot that it was restored from.
        """
        return tuple(key for key in self.sinks if not self._shows(key, newest))

    def _shows(self, key: SubtaskKey, newest: CheckpointMetadata) -> bool:
        if self.took(key, newest):
            return self.has_committed(key, newest.checkpoint_id)
        return self.execution.started(key)

    def to_all(self, body: ToAttempt, without: str = "") -> list[Send]:
        """One message to every task manager of the attempt; several where subtasks began in several attempts."""
        return self.to([name for name in self.execution.task_managers() if name != without], body)

    def to_sources(self, body: ToAttempt) -> list[Send]:
        """The same to those that have a subtask of a source."""
        return self.to(self.execution.source_task_managers(), body)

    def to(self, names: Iterable[str], body: ToAttempt) -> list[Send]:
        """The same to these task managers."""
        return [
            Send(name, body if known == self.id else replace(body, attempt=known))
            for name in names
            for known in self.execution.ids_on(name)
        ]

    def cancel(self, reason: str, lost: str) -> list[Send]:
        """Cancels the attempt on every task manager except the lost one."""
        body = CancelAttempt(attempt=self.id, reason=reason)
        sends = self.to_all(body, without=lost)
        if self.deployed_ms is None and not self.is_adopted:
            return [send for send in sends if send.body is not body]  # only what began earlier runs
        return sends

    def owns(self, subtask: SubtaskId | None) -> bool:
        """True when the id names a subtask of this attempt."""
        return self.execution.owns(subtask)

    def _on_report(self, report: SubtaskReport, now_ms: int) -> list[AttemptEffect]:
        subtask = report.subtask
        if subtask is None or not self.owns(subtask):
            return []
        phase = _PHASES.get(report.phase)
        if phase is None:
            return self._on_end(report, subtask)
        if not self.execution.advance(subtask, phase, now_ms):
            return []
        assigner = self._assigners.get(subtask.vertex_id)
        return [*self._split_sends(assigner, assigner.running(subtask.subtask))] if assigner is not None else []

    def _on_end(self, report: SubtaskReport, subtask: SubtaskId) -> list[AttemptEffect]:
        """A subtask has failed, or was stopped although this leader did not cancel it."""
        key = (subtask.vertex_id, subtask.subtask)
        place = self.execution.task_manager_of(key)
        name = f"{subtask.vertex_id}-{subtask.subtask} on {place}"
        if report.phase is SubtaskPhase.SUBTASK_FAILED:
            return [
                AttemptFailed(
                    report.cause, f"{name}: {report.error}", subtask=key, error=report.error, place=report.place
                )
            ]
        if report.phase is SubtaskPhase.SUBTASK_CANCELED:
            text = f"{name} was cancelled by its task manager. {report.error}".strip()
            return [AttemptFailed(FailureCause.FAULT, text, subtask=key)]
        return []

    def _on_lost(self, event: TaskManagerLost) -> list[AttemptEffect]:
        if not self.execution.uses(event.task_manager_id):
            return []
        name, kind = f"task manager {event.task_manager_id}", JobEventKind.TASK_MANAGER_LOST
        text = f"{name} is lost: {event.reason}"
        if event.planned:
            kind, text = JobEventKind.TASK_MANAGER_LEFT, f"{name} has left: {event.reason}"
        return [self._emit(kind, text), AttemptFailed(FailureCause.FAULT, text, event.task_manager_id, event.planned)]

    def _on_first_record(self, first: FirstRecord) -> list[AttemptEffect]:
        if self._first_record is not None or not self.owns(first.subtask) or not self._began_here(first.subtask):
            return []
        self._first_record = self._emit(JobEventKind.FIRST_RECORD, "", first.unix_us)
        return [self._first_record] if self.running_ms is not None else []

    def _began_here(self, subtask: SubtaskId | None) -> bool:
        """False for a subtask that has run on from an earlier attempt: what it does is no sign of a restart."""
        return subtask is not None and subtask.attempt == self.id

    def early_record(self) -> list[Emit]:
        """The event of a first record that came before every subtask ran, as the attempt begins to run."""
        return [self._first_record] if self._first_record is not None else []

    def _on_splits(self, found: SplitsDiscovered, now_ms: int) -> list[AttemptEffect]:
        assigner = self._assigners.get(found.vertex_id)
        if assigner is None or found.attempt != self.execution.id_of((found.vertex_id, assigner.lister)):
            return []
        if found.error and assigner.awaits(found):
            return [AttemptFailed(found.cause or FailureCause.USER_ERROR, f"source {found.vertex_id}: {found.error}")]
        return [*self._split_sends(assigner, assigner.found(found, now_ms))]

    def positions_stored(self, now_ms: int) -> list[Send]:
        """The messages to send once a record with first positions is written."""
        return [
            send
            for assigner in self._assigners.values()
            for send in self._split_sends(assigner, assigner.stored(now_ms))
        ]

    def _on_committed(self, committed: CheckpointCommitted) -> list[AttemptEffect]:
        subtask = committed.subtask
        if subtask is None or not self.owns(subtask):
            return []
        key = (subtask.vertex_id, subtask.subtask)
        self._committed[key] = max(self._committed.get(key, 0), committed.checkpoint_id)
        if self._has_output or not committed.has_output or not self._began_here(subtask):
            return []
        self._has_output = True
        return [self._emit(JobEventKind.FIRST_COMMIT, "")]

    def _on_tick(self, now_ms: int) -> list[AttemptEffect]:
        starting = self.deployed_ms is not None and self.running_ms is None
        if starting and now_ms >= (self.deployed_ms or 0) + DEPLOY_TIMEOUT_MS:
            text = f"not started within {DEPLOY_TIMEOUT_MS} ms: {self.execution.missing()}"
            return [AttemptFailed(FailureCause.FAULT, text)]
        if self._commit_deadline_ms is not None and now_ms >= self._commit_deadline_ms:
            text = "the last checkpoint was not committed in time"
            return [AttemptFailed(FailureCause.FAULT, text)]
        if self._part_deadline_ms is not None and now_ms >= self._part_deadline_ms:
            text = f"there were no slots for the lost part within {PART_TIMEOUT_MS} ms, so the rest waits as well"
            return [AttemptFailed(FailureCause.FAULT, text)]
        effects: list[AttemptEffect] = []
        for assigner in self._assigning():
            if assigner.overdue(now_ms):
                place = self.execution.task_manager_of((assigner.vertex_id, assigner.lister))
                text = f"{place} has not listed the splits of {assigner.vertex_id} within {DISCOVERY_TIMEOUT_MS} ms"
                return [AttemptFailed(FailureCause.FAULT, text)]
            effects += self._split_sends(assigner, assigner.tick(now_ms))
        return effects

    def _assigning(self) -> Iterable[SplitAssigner]:
        """None while lost subtasks wait for their restart: what is found meanwhile could be theirs."""
        return () if self.execution.has_lost else self._assigners.values()

    def _not_committed(self, checkpoint_id: int) -> tuple[SubtaskKey, ...]:
        return tuple(key for key in self.execution.subtasks if not self.has_committed(key, checkpoint_id))

    def _emit(self, kind: JobEventKind, text: str, unix_us: int = 0) -> Emit:
        number = self.id.attempt
        return Emit(JobEvent(kind=kind, unix_us=unix_us, attempt=number, token=self._token, text=text))

    def _split_sends(self, assigner: SplitAssigner, effects: list[SplitEffect]) -> list[Send]:
        sends = []
        for effect in effects:
            index = effect.subtask if isinstance(effect, Assign) else assigner.lister
            sends.append(Send(self.execution.task_manager_of((assigner.vertex_id, index)), effect.body))
        return sends
