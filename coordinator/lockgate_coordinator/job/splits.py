"""Assigns the splits of a source to its subtasks.

    fresh --discover--> DISCOVERING --found--> COMPLETE (bounded)
                              ^ |
                  poll interval \\--found--> POLLING (continuous)

Where the first positions depend on the time, STORING comes between: see first_positions.py.

A split belongs to one subtask for the attempt and is in that subtask's snapshots from then on. After a restore the
known splits are the union of the restored SourceStates: splits that were assigned after the barrier are not in them, so
they are discovered and assigned again. When only some subtasks restart, the splits that the others have been assigned
since are known as well: see `carry_on`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from lockgate_common.story import Story
from lockgate_proto.messages import (
    AssignSplits,
    AttemptId,
    DiscoverSplits,
    GeneratorSource,
    SourceState,
    SplitsDiscovered,
    SplitState,
    StateHandle,
    StateKind,
    SubtaskId,
    SubtaskProgress,
    SubtaskState,
    Vertex,
)
from lockgate_proto.splits import UNBOUNDED

from lockgate_coordinator.graph.bounds import MAX_PARALLELISM
from lockgate_coordinator.graph.shape import poll_interval_ms
from lockgate_coordinator.job.deploy_size import check_known
from lockgate_coordinator.job.first_positions import KnownPositions, depends_on_time
from lockgate_coordinator.job.redistribute import by_size, remaining, source_state

DISCOVERY_TIMEOUT_MS = 60_000
"""A task manager that has not listed a source's splits by then is stuck; the attempt fails."""


class TooManyPartitions(Exception):
    """More than can be assigned; str() is for the job's author."""


class SplitPhase(Enum):
    """The states in the drawing above."""

    FRESH = "FRESH"
    DISCOVERING = "DISCOVERING"
    STORING = "STORING"
    POLLING = "POLLING"
    COMPLETE = "COMPLETE"


ALLOWED: Mapping[SplitPhase, frozenset[SplitPhase]] = {
    SplitPhase.FRESH: frozenset({SplitPhase.DISCOVERING, SplitPhase.COMPLETE}),
    SplitPhase.DISCOVERING: frozenset({SplitPhase.STORING, SplitPhase.POLLING, SplitPhase.COMPLETE}),
    SplitPhase.STORING: frozenset({SplitPhase.POLLING, SplitPhase.COMPLETE}),
    SplitPhase.POLLING: frozenset({SplitPhase.DISCOVERING}),
    SplitPhase.COMPLETE: frozenset(),
}


@dataclass(frozen=True, slots=True)
class Discover:
    """Send this to the task manager of the vertex's subtask `lister`."""

    body: DiscoverSplits


@dataclass(frozen=True, slots=True)
class Assign:
    """Send this to the task manager of the vertex's subtask `subtask`."""

    subtask: int
    body: AssignSplits


SplitEffect = Discover | Assign


class SplitAssigner:
    """The splits of one source vertex in one attempt."""

    def __init__(
        self,
        vertex: Vertex,
        attempt: AttemptId,
        restored: Mapping[int, SubtaskState],
        first_round: int = 1,
        earlier: Mapping[int, AttemptId] | None = None,
        first: KnownPositions | None = None,
    ) -> None:
        """vertex: its first operator is the source. restored: subtask index to its part of the snapshot.

        first_round: number of the first request; no other leader uses it or a higher one. earlier: subtask index to the
        attempt in which it began, if not in this one. first: those of the job, which gets what is found here.

        Raises SourceStateUnreadable.
        """
        self.vertex_id = vertex.id
        self._vertex = vertex
        self._attempt = attempt
        self._earlier = dict(earlier or {})
        self.first = first if first is not None else KnownPositions()
        # Whose task manager lists splits: one of the newest, which has not listed any yet that others were to get.
        self.lister = max(range(vertex.parallelism), key=lambda index: (self._id_of(index).attempt, -index))
        self._phase = SplitPhase.FRESH
        self._poll_at_ms: int | None = None
        self._answer_by_ms = 0  # while DISCOVERING
        self._first_round = first_round
        self._round = first_round - 1  # of the last request
        self._running: set[int] = set()
        self._outbox: dict[int, list[AssignSplits]] = {index: [] for index in range(vertex.parallelism)}
        self._known: dict[str, int] = {}  # by split, the subtask that has it
        self._homes: dict[str, int] = {}  # by split, the subtask that is to have it again
        self._adopted: list[SplitState] = []  # beyond those of the snapshot
        self._files: list[StateHandle] = []
        self._closed: set[int] = set()
        self._informed: set[int] = set()  # subtasks that have splits, or were notified that they have none
        self._load = dict.fromkeys(range(vertex.parallelism), 0)
        self._count = dict.fromkeys(range(vertex.parallelism), 0)  # the final length of a watched file is unknown
        self._story = Story(f"splits of {vertex.id}, attempt {attempt.attempt} of job {attempt.job_key}")
        for index, state in restored.items():
            self._restore(index, *_source_state(vertex.operators[0].id, state))

    def _restore(self, index: int, state: SourceState, files: Sequence[StateHandle]) -> None:
        """files: further splits with nothing left to read, which only task managers read."""
        self._files += files
        self._known.update((split.split, index) for split in state.splits)
        self._load[index] = sum(remaining(split) for split in state.splits)
        self._count[index] = len(state.splits)
        if state.splits or files:
            self._informed.add(index)
        if state.complete:
            self._closed.add(index)

    def adopt(self, progress: SubtaskProgress) -> None:
        """A subtask has had splits from an earlier leader, beyond those of the snapshot."""
        index = progress.subtask
        new = [split for split in progress.assigned if split.split not in self._known]
        self._adopted += new
        self._known.update((split.split, index) for split in new)
        self._load[index] += sum(remaining(split) for split in new)
        self._count[index] += len(new)
        if progress.has_assigned:
            self._informed.add(index)
        if progress.complete:
            self._closed.add(index)

    @property
    def next_round(self) -> int:
        """Number of the request after the last one."""
        return self._round + 1

    @property
    def is_fresh(self) -> bool:
        """True until `deployed`."""
        return self._phase is SplitPhase.FRESH

    def carry_on(self, before: SplitAssigner) -> None:
        """Subtasks that began in earlier attempts keep what they were assigned since the snapshot. Before `deployed`.

        The others get the same again, as what they made of it may have been passed on; and at once, as they do not run
        before they have read it. before: the assigner of the attempt that this one replaces.
        """
        stay = self._earlier.keys()
        self._known.update((split, index) for split, index in before._known.items() if index in stay)
        for index in stay:
            self._load[index], self._count[index] = before._load[index], before._count[index]
            self._outbox[index] = before._outbox[index]
        self._closed |= before._closed & stay
        self._informed |= before._informed & stay
        self._running |= before._running & stay | (self._outbox.keys() - stay)
        self._homes = {split: index for split, index in (before._homes | before._known).items() if index not in stay}

    def deployed(self, now_ms: int) -> list[SplitEffect]:
        """The attempt is deployed, or adopted: discovers splits, unless every subtask's list of splits is complete.

        Raises TooManyPartitions, DeployTooLarge.
        """
        if len(self._closed) == self._vertex.parallelism:
            self._move(SplitPhase.COMPLETE, now_ms)
            return []
        source = self._vertex.operators[0].kind
        if isinstance(source, GeneratorSource):
            self._move(SplitPhase.COMPLETE, now_ms)
            return self._generate(source)
        first = self.first.of(self.vertex_id)  # in the record of the attempt, which is written before
        if first is None:
            if self._adopted and depends_on_time(self._vertex.operators[0]):  # an earlier version has not stored them
                self.first.found(self.vertex_id, SourceState(tuple(self._adopted)))
            return self._discover(now_ms)
        self._assign_new(first)
        if first.complete:
            self._move(SplitPhase.COMPLETE, now_ms)
            return self._flush()
        return [*self._flush(), *self._discover(now_ms)]

    def running(self, subtask: int) -> list[SplitEffect]:
        """A subtask runs and can receive splits. Repeated calls do nothing."""
        self._running.add(subtask)
        return self._send_to(subtask)  # no discovery needed: each subtask comes here once

    def found(self, found: SplitsDiscovered, now_ms: int) -> list[SplitEffect]:
        """An answer to Discover. Late and repeated ones are ignored, and errors, see `awaits`.

        The first positions of some sources are only kept, until `stored`.
        """
        if found.error or not self.awaits(found):
            return []
        source = self._vertex.operators[0]
        state = SourceState(found.splits, poll_interval_ms(source) is None or found.complete)
        if found.splits and depends_on_time(source) and not (self._known or self._files):
            self.first.found(self.vertex_id, state)
            self._move(SplitPhase.STORING, now_ms)
            return []
        return self._take(state, now_ms)

    def stored(self, now_ms: int) -> list[SplitEffect]:
        """A record of the attempt is written: assigns the first splits if it has them. Repeated calls do nothing."""
        first = self.first.of(self.vertex_id)
        if self._phase is not SplitPhase.STORING or first is None or not self.first.is_stored(self.vertex_id):
            return []
        return self._take(first, now_ms)

    def _take(self, state: SourceState, now_ms: int) -> list[SplitEffect]:
        self._assign_new(state)
        if state.complete:
            self._move(SplitPhase.COMPLETE, now_ms)
        else:
            self._move(SplitPhase.POLLING, now_ms)
            self._poll_at_ms = now_ms + (poll_interval_ms(self._vertex.operators[0]) or 0)
        return self._flush()

    def awaits(self, found: SplitsDiscovered) -> bool:
        """True for the answer to the last request."""
        return self._phase is SplitPhase.DISCOVERING and found.round in (0, self._round)

    def tick(self, now_ms: int) -> list[SplitEffect]:
        """Looks for new splits when it is time."""
        if self._phase is SplitPhase.POLLING and self._poll_at_ms is not None and now_ms >= self._poll_at_ms:
            return self._discover(now_ms)
        return []

    def overdue(self, now_ms: int) -> bool:
        """True when the answer to Discover has not come in time."""
        return self._phase is SplitPhase.DISCOVERING and now_ms >= self._answer_by_ms

    def next_wake_ms(self) -> int | None:
        """When `tick` or `overdue` is to be called."""
        if self._phase is SplitPhase.DISCOVERING:
            return self._answer_by_ms
        return self._poll_at_ms if self._phase is SplitPhase.POLLING else None

    def _discover(self, now_ms: int) -> list[SplitEffect]:
        self._move(SplitPhase.DISCOVERING, now_ms)
        self._answer_by_ms = now_ms + DISCOVERY_TIMEOUT_MS
        self._round += 1
        is_first = self._round == self._first_round  # later, the task manager has found the others itself
        known = tuple(sorted(self._known)) if is_first else ()
        files = tuple(self._files) if is_first else ()
        body = DiscoverSplits(self._id_of(self.lister), self.vertex_id, known, self._round, files)
        check_known(body)
        return [Discover(body)]

    def _id_of(self, index: int) -> AttemptId:
        return self._earlier.get(index, self._attempt)

    def _generate(self, source: GeneratorSource) -> list[SplitEffect]:
        """Partition i goes to subtask i modulo parallelism, in every attempt."""
        if source.partitions > MAX_PARALLELISM:  # before the thread that decides counts them
            raise TooManyPartitions(
                f"Source '{self._vertex.operators[0].id}' generates {source.partitions} partitions: the limit is "
                f"{MAX_PARALLELISM}."
            )
        end = source.rows_per_partition or UNBOUNDED
        open_subtasks = self._open()
        shares: dict[int, list[SplitState]] = {index: [] for index in open_subtasks}
        for number in range(source.partitions or self._vertex.parallelism):
            if str(number) in self._known:
                continue
            home = number % self._vertex.parallelism
            index = home if home in shares else open_subtasks[number % len(open_subtasks)]
            shares[index].append(SplitState(split=str(number), offset=0, end=end))
        self._put(shares, complete=True)
        return self._flush()

    def _assign_new(self, state: SourceState) -> None:
        new = {split.split: split for split in state.splits if split.split not in self._known}
        self._assign_by_size(tuple(new.values()), complete=state.complete)

    def _assign_by_size(self, splits: Sequence[SplitState], *, complete: bool) -> None:
        load = {index: self._load[index] for index in self._open()}
        again = {split: self._homes[split.split] for split in splits if self._homes.get(split.split) in load}
        shares = by_size((split for split in splits if split not in again), load, self._count)
        for split, index in again.items():
            shares[index].append(split)
            load[index] += remaining(split)
            self._count[index] += 1
        self._load |= load
        self._put(shares, complete=complete)

    def _put(self, shares: Mapping[int, Sequence[SplitState]], *, complete: bool) -> None:
        """Sends the shares. Subtasks without splits are notified, and become idle, once any subtask has a split."""
        is_any = bool(self._known or self._files) or any(shares.values())
        for index, share in shares.items():
            self._known.update((split.split, index) for split in share)
            if not share and not complete and (index in self._informed or not is_any):
                continue
            self._informed.add(index)
            if complete:
                self._closed.add(index)
            subtask = SubtaskId(attempt=self._id_of(index), vertex_id=self.vertex_id, subtask=index)
            self._outbox[index].append(AssignSplits(subtask=subtask, splits=tuple(share), complete=complete))

    def _open(self) -> tuple[int, ...]:
        return tuple(index for index in range(self._vertex.parallelism) if index not in self._closed)

    def _flush(self) -> list[SplitEffect]:
        return [effect for index in sorted(self._running) for effect in self._send_to(index)]

    def _send_to(self, index: int) -> list[SplitEffect]:
        waiting, self._outbox[index] = self._outbox[index], []
        return [Assign(index, body) for body in waiting]

    def _move(self, phase: SplitPhase, now_ms: int) -> None:
        self._phase = self._story.move(ALLOWED, self._phase, phase, now_ms)


def _source_state(operator_id: str, state: SubtaskState) -> tuple[SourceState, tuple[StateHandle, ...]]:
    for operator in state.operators:
        if operator.kind is StateKind.SOURCE_STATE and operator.operator_id == operator_id:
            return source_state(operator, f"{state.vertex_id}-{state.subtask}"), operator.files
    return SourceState(), ()
