"""Orders of clients for a running job: another parallelism, or its end with a savepoint.

    IDLE --rescale, the job runs--> SNAPSHOT --taken, or the attempt has ended--> WRITING --written--> IDLE
      |                                 +------failed------------------------------------------------> IDLE
      +--rescale, the job does not run, or has a fresh snapshot------------------> WRITING
      +--stop--------------------------> WRITING --written--> STOPPING --no savepoint--> WRITING --> IDLE
                                                                  +----savepoint complete: the job ends

WRITING: the record `/jobs/<key>/orders` is being written; it is valid from then on, under any leader. So a rescale is
durable before anything is stopped, and a stop before its savepoint begins. A leader that finds a recorded stop carries
it out, and knows by the savepoint's id whether that was done already. After a failover a client's savepoint taken after
the order counts as well; in a running attempt only the one that ends it (checkpoint/final.py). Clients that repeat a
request, perhaps after a failover, join the existing order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import assert_never

from lockgate_common.story import Story
from lockgate_proto.messages import (
    CheckpointKind,
    CheckpointMetadata,
    CheckpointMode,
    CompletedCheckpoint,
    JobGraph,
    JobOrders,
    JobState,
    StopOrder,
    VertexParallelism,
)

from lockgate_coordinator.checkpoint.completed import CompletedCheckpoints
from lockgate_coordinator.checkpoint.coordinator import CheckpointCoordinator
from lockgate_coordinator.checkpoint.events import LastCheckpointDropped, SavepointRequested
from lockgate_coordinator.checkpoint.final import FinalCheckpoint, Purpose
from lockgate_coordinator.graph.reshape import merged, reshape, reshape_problems, shape
from lockgate_coordinator.graph.shape import slots_needed
from lockgate_coordinator.job.deploy_size import deploy_problem
from lockgate_coordinator.job.effects import AnswerRescale, AnswerSavepoint, PersistOrders
from lockgate_coordinator.job.events import RescaleRequested, StopRequested
from lockgate_coordinator.job.in_flight import holds_in_flight, may_hold_back
from lockgate_coordinator.job.record_writer import RecordWriter

OWN_SNAPSHOT = "(order)"
"""Request id of snapshots that are taken for an order; clients cannot choose it."""

FRESH_MS = 2_000
"""A rescale uses a snapshot up to this age: reading that much again costs less than another snapshot."""


class OrderState(Enum):
    """The states in the drawing above."""

    IDLE = "IDLE"
    SNAPSHOT = "SNAPSHOT"
    WRITING = "WRITING"
    STOPPING = "STOPPING"


ALLOWED: Mapping[OrderState, frozenset[OrderState]] = {
    OrderState.IDLE: frozenset({OrderState.IDLE, OrderState.SNAPSHOT, OrderState.WRITING, OrderState.STOPPING}),
    OrderState.SNAPSHOT: frozenset({OrderState.IDLE, OrderState.WRITING}),
    OrderState.WRITING: frozenset({OrderState.IDLE, OrderState.STOPPING}),
    OrderState.STOPPING: frozenset({OrderState.WRITING}),
}


LOSES_RECORDS = (
    "The job checkpoints at most once, and a rescale restarts it from a checkpoint, which would lose records: stop it "
    "with a savepoint, which loses none, and start that with another parallelism."
)


@dataclass(frozen=True, slots=True)
class Restart:
    """To the JobMaster: the graph has a new parallelism; restart at it from the newest snapshot."""


@dataclass(frozen=True, slots=True)
class Drain:
    """To the JobMaster: stop the sources of the running attempt."""


Order = RescaleRequested | StopRequested
Request = SavepointRequested | Order
OrderEffect = (
    AnswerRescale | AnswerSavepoint | PersistOrders | SavepointRequested | LastCheckpointDropped | Restart | Drain
)


@dataclass(frozen=True, slots=True)
class JobSnapshot:
    """The present state of a job. final: the checkpoint that ends the attempt; newest: the newest snapshot.

    begun_id: highest id of any snapshot begun; age_ms: since `newest` was begun, None if unknown; mode: of the job's
    checkpoints; restore: content of `newest`; places: task manager of slot i.
    """

    state: JobState
    final: FinalCheckpoint
    newest: CompletedCheckpoint | None
    begun_id: int
    age_ms: int | None
    mode: CheckpointMode
    restore: CheckpointMetadata | None
    places: tuple[str, ...]

    @staticmethod
    def of(
        state: JobState, snapshots: CheckpointCoordinator, mode: CheckpointMode, places: tuple[str, ...], now_ms: int
    ) -> JobSnapshot:
        """The state at this moment."""
        completed, begun_ms = snapshots.completed, snapshots.newest_triggered_ms
        age_ms = now_ms - begun_ms if begun_ms is not None else None
        newest, restore, begun_id = completed.newest, completed.restore_point, snapshots.newest_begun_id
        return JobSnapshot(state, snapshots.final, newest, begun_id, age_ms, mode, restore, places)

    @property
    def overtakes(self) -> bool:
        """True when snapshots may hold records in flight. A property, because it inspects every state."""
        return self.mode is CheckpointMode.UNALIGNED or holds_in_flight(self.restore)

    @property
    def is_fresh(self) -> bool:
        """True when there is a snapshot so new that a restart would read next to nothing again."""
        return self.age_ms is not None and self.age_ms <= FRESH_MS


def refused(event: Request, error: str, known: CompletedCheckpoint | None) -> AnswerRescale | AnswerSavepoint:
    """The answer of a job that does not run, or not yet. known: a savepoint that was taken for this request.

    The client tries again: the job runs then, or its result says how it ended.
    """
    match event:
        case RescaleRequested(request_id):
            return AnswerRescale(request_id, error=error, busy=True)
        case SavepointRequested(request_id) if known is not None:
            return AnswerSavepoint(request_id, known)
        case SavepointRequested(request_id) | StopRequested(request_id):
            return AnswerSavepoint(request_id, error=error, busy=True)
        case _:
            assert_never(event)


class Orders:
    """The orders of one job under one leader."""

    def __init__(self, job_key: str, graph: JobGraph) -> None:
        """graph: normalized, as submitted."""
        self._submitted = graph
        self._durable = JobOrders()
        self._wanted = JobOrders()
        self._state = OrderState.IDLE
        self._story = Story(f"orders of job {job_key}")
        self.writer = RecordWriter(job_key)
        self._rescalers: list[str] = []  # request ids
        self._stoppers: list[str] = []
        self._timeout_ms = 0
        self._withdrawn = ""  # why the stop is being taken back

    @property
    def graph(self) -> JobGraph:
        """The job graph at the ordered parallelism."""
        return reshape(self._submitted, self._durable.parallelism)

    @property
    def stop(self) -> StopOrder | None:
        """The stop to be carried out."""
        return self._durable.stop if self._state is OrderState.STOPPING else None

    @property
    def is_idle(self) -> bool:
        """True when every order is carried out."""
        return self._state is OrderState.IDLE

    @property
    def reshapes(self) -> bool:
        """True while a new parallelism is being written. Until then no attempt may begin: its snapshots could hold
        records in flight for the old parallelism, from which the job would then be rescaled.
        """
        return self._state is OrderState.WRITING and self._wanted.parallelism != self._durable.parallelism

    def objection(self, completed: CompletedCheckpoints) -> str:
        """Why an attempt that still runs must not go on under this leader, in words; "" for no reason.

        A stop that is recorded goes on in it. If its savepoint is complete already, another attempt only commits that.
        """
        if self.reshapes:
            return "the job is being rescaled"
        return "the savepoint with which it stops is complete" if self.carried_out_by(completed) else ""

    def recovered(self, orders: JobOrders, now_ms: int) -> JobGraph:
        """Takes over the orders of earlier leaders. Returns the job graph at the ordered parallelism."""
        self._durable = self._wanted = orders
        if orders.stop is not None:
            self._move(OrderState.STOPPING, now_ms)
        return self.graph

    def requested(self, event: Order, now: JobSnapshot, now_ms: int) -> list[OrderEffect]:
        """Handles the order of a client."""
        match event:
            case RescaleRequested():
                return self._rescale(event, now, now_ms)
            case StopRequested():
                return self._stop(event, now, now_ms)
            case _:
                assert_never(event)

    def _rescale(self, event: RescaleRequested, now: JobSnapshot, now_ms: int) -> list[OrderEffect]:
        target = merged(self._durable.parallelism, event.parallelism)
        refusal = self._refusal(event, target, now)
        if refusal:
            return [AnswerRescale(event.request_id, error=refusal)]
        is_bound = self._is_bound(target, now)
        if now.state is not JobState.RUNNING and (is_bound or self._grows(target)):
            text = "The job is not running, and can only be rescaled while it runs; try again."
            return [AnswerRescale(event.request_id, error=text, busy=True)]
        if self._state is OrderState.IDLE and reshape(self._submitted, target) == self.graph:
            return [AnswerRescale(event.request_id, shape(self.graph))]
        self._rescalers.append(event.request_id)
        if self._state is not OrderState.IDLE:
            return []
        self._wanted = replace(self._durable, parallelism=target)
        if now.state is not JobState.RUNNING or (now.is_fresh and not is_bound):
            return self._reshape(now, now_ms)
        self._move(OrderState.SNAPSHOT, now_ms)
        kind, purpose = CheckpointKind.CHECKPOINT, Purpose.RESCALE
        return [SavepointRequested(OWN_SNAPSHOT, event.timeout_ms, kind, purpose, may_overtake=not is_bound)]

    def _refusal(self, event: RescaleRequested, target: tuple[VertexParallelism, ...], now: JobSnapshot) -> str:
        problems = reshape_problems(self.graph, event.parallelism)
        if problems:
            return "\n".join(problems)
        if now.mode is CheckpointMode.AT_MOST_ONCE:
            return LOSES_RECORDS
        if self._durable.stop is not None and self._wanted.stop is None:
            return self._busy_with()
        if now.state is JobState.FINISHING or self._wanted.stop is not None:
            return "The job is about to end: it can no longer be rescaled."
        if self._state is not OrderState.IDLE and self._wanted.parallelism != target:
            return "The job is being rescaled already; try again when that is done."
        needed = slots_needed(reshape(self._submitted, target))
        if now.state is JobState.RUNNING and self._grows(target) and needed > event.available_slots:
            return (
                f"At this parallelism the job needs {needed} slots, and {event.available_slots} are available to it: "
                "start another task manager, or end another job. Nothing was changed."
            )
        return ""

    def _grows(self, target: tuple[VertexParallelism, ...]) -> bool:
        """True when it needs more slots than now. After a failover that is known only once the job runs."""
        return slots_needed(reshape(self._submitted, target)) > slots_needed(self.graph)

    def _is_bound(self, target: tuple[VertexParallelism, ...], now: JobSnapshot) -> bool:
        """True when a snapshot may hold records in flight that fit no subtasks of `target`.

        Snapshots taken for an order never do then.
        """
        return now.overtakes and may_hold_back(self.graph, now.restore, reshape(self._submitted, target))

    def _stop(self, event: StopRequested, now: JobSnapshot, now_ms: int) -> list[OrderEffect]:
        wanted = self._wanted.stop
        if wanted is not None and wanted.drain == event.drain:
            self._stoppers.append(event.request_id)
            return []
        if self._state is not OrderState.IDLE:
            # the order for another kind of stop stands, but a rescale or a withdrawal is soon over
            return [AnswerSavepoint(event.request_id, error=self._busy_with(), busy=wanted is None)]
        self._stoppers.append(event.request_id)
        self._timeout_ms = event.timeout_ms
        self._wanted = replace(self._durable, stop=StopOrder(event.drain, now.begun_id))
        return self._write(now_ms)

    def _busy_with(self) -> str:
        """Why a stop must wait, or a rescale while a stop is withdrawn."""
        if self._wanted.stop is not None:
            return "The job is being stopped in another way already; try again later."
        if self._durable.stop is not None:
            return "A failed stop is being withdrawn; try again when that is done."
        return "The job is being rescaled already; try again later."

    def written(self, orders: JobOrders, attempt: int, now_ms: int) -> list[OrderEffect]:
        """Handles the answer to PersistOrders; late ones are ignored. attempt: number of the newest."""
        if self._state is not OrderState.WRITING or orders != self._wanted:
            return []
        self.writer.drop(now_ms)
        before, self._durable = self._durable, orders
        if orders.stop is not None:
            self._move(OrderState.STOPPING, now_ms)
            return []
        self._move(OrderState.IDLE, now_ms)
        if before.stop is not None:
            stoppers, self._stoppers = self._stoppers, []
            return [AnswerSavepoint(stopper, error=self._withdrawn) for stopper in stoppers]
        if before.parallelism == orders.parallelism:
            return []
        waiting, self._rescalers = self._rescalers, []
        return [Restart(), *(AnswerRescale(rescaler, shape(self.graph), after=attempt) for rescaler in waiting)]

    def snapshot_answered(
        self, answer: AnswerSavepoint, attempt_lives: bool, now: JobSnapshot, now_ms: int
    ) -> list[OrderEffect]:
        """The snapshot that was requested is completed or aborted."""
        if self._state is OrderState.SNAPSHOT:
            is_bound = self._is_bound(self._wanted.parallelism, now)
            restarts = not attempt_lives and not is_bound  # the job restarts anyway, so at once as ordered
            if answer.savepoint is not None or restarts:
                return self._reshape(now, now_ms)
            self._wanted = self._durable
            self._move(OrderState.IDLE, now_ms)
            waiting, self._rescalers = self._rescalers, []
            text = f"{answer.error} The job continues as before."
            return [AnswerRescale(rescaler, error=text, busy=not attempt_lives) for rescaler in waiting]
        runs = attempt_lives and now.state is JobState.RUNNING  # when it finishes, its last checkpoint is a savepoint
        if self._state is OrderState.STOPPING and answer.savepoint is None and runs:
            self._withdrawn = f"{answer.error} The job runs on."  # reported when that is durable
            self._wanted = replace(self._durable, stop=None)
            return self._write(now_ms)
        return []

    def proceed(self, now: JobSnapshot, now_ms: int) -> list[OrderEffect]:
        """The effects that an order needs now; called after every event while the job runs or finishes."""
        if self._state is OrderState.SNAPSHOT and now.is_fresh and not self._is_bound(self._wanted.parallelism, now):
            return self._reshape(now, now_ms)  # it may be another one that was under way
        stop = self.stop
        if stop is None or now.state not in (JobState.RUNNING, JobState.FINISHING):
            return []
        if self.stopped_with(now.final):
            waiting, self._stoppers = self._stoppers, []
            return [AnswerSavepoint(stopper, now.newest) for stopper in waiting]
        if not now.final.is_open:
            return []
        return [Drain()] if stop.drain else [SavepointRequested(OWN_SNAPSHOT, self._timeout_ms, ends_for=Purpose.STOP)]

    def stopped_with(self, final: FinalCheckpoint) -> int:
        """Id of the savepoint of the stop, 0 when the job does not end, or ends on its own."""
        done = self.stop is not None and final.ends_job and final.kind is CheckpointKind.SAVEPOINT
        return final.checkpoint_id if done else 0

    def carried_out_by(self, completed: CompletedCheckpoints) -> int:
        """Id of the newest snapshot if it already carries out the stop before an attempt starts from it, else 0.

        It must be a savepoint taken after the order; with `drain`, a terminal one.
        """
        stop, newest, restored = self.stop, completed.newest, completed.restore_point
        terminal = restored is not None and restored.terminal
        if stop is None or newest is None or newest.kind is not CheckpointKind.SAVEPOINT:
            return 0
        is_it = newest.checkpoint_id > stop.after_checkpoint_id and (terminal or not stop.drain)
        return newest.checkpoint_id if is_it else 0

    def ended(self, reason: str) -> list[OrderEffect]:
        """The job has ended, whatever was ordered."""
        rescalers, self._rescalers = self._rescalers, []
        stoppers, self._stoppers = self._stoppers, []
        return [
            *(AnswerRescale(rescaler, error=reason) for rescaler in rescalers),
            *(AnswerSavepoint(stopper, error=reason) for stopper in stoppers),
        ]

    def _reshape(self, now: JobSnapshot, now_ms: int) -> list[OrderEffect]:
        """Writes the new parallelism, unless the job cannot be started at it."""
        problem = deploy_problem(reshape(self._submitted, self._wanted.parallelism), now.restore, now.places)
        if not problem:
            return self._write(now_ms)
        self._wanted = self._durable
        self._move(OrderState.IDLE, now_ms)
        waiting, self._rescalers = self._rescalers, []
        text = f"{problem} The job continues as before."
        return [LastCheckpointDropped(), *(AnswerRescale(rescaler, error=text) for rescaler in waiting)]

    def _write(self, now_ms: int) -> list[OrderEffect]:
        """Queues the record; `writer.due` returns the effect once ZooKeeper can be written to."""
        self._move(OrderState.WRITING, now_ms)
        self.writer.want(PersistOrders(self._wanted), now_ms)
        return []

    def _move(self, state: OrderState, now_ms: int) -> None:
        self._state = self._story.move(ALLOWED, self._state, state, now_ms)
