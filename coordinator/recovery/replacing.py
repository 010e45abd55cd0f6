"""The part of a JobMaster that replaces stragglers: see stragglers.py for the judgement."""

from __future__ import annotations

from abc import abstractmethod

from lockgate_proto.messages import AttemptRecord, JobEventKind, JobState

from coordinator.recovery import events
from coordinator.recovery.at_work import AtWork
from coordinator.recovery.clients import Steered
from coordinator.recovery.counters import JobCounters
from coordinator.recovery.reshape_size import deploy_problem
from coordinator.recovery.stragglers import Relocation, Stays, Stragglers


class Replacing(Steered):
    """Moves slow subtasks, as far as the job wants that."""

    _counters: JobCounters
    _stragglers: Stragglers | None = None
    _at_work: AtWork
    _straggler_text = ""  # the newest thing that was said of one
    _places: tuple[str, ...]
    _restarts: int
    _token: int
    _suspended: bool

    @abstractmethod
    def _emit(self, kind: JobEventKind, text: str, checkpoint_id: int = 0) -> None: ...

    @property
    def wants_spares(self) -> bool:
        """Heartbeats are to say which slots are free."""
        return self._stragglers is not None

    def _make_watch(self) -> None:
        option = self._graph.straggler_replacement
        self._stragglers = Stragglers(option) if option is not None else None

    def _restore_moves(self, record: AttemptRecord, now_ms: int) -> None:
        if self._stragglers is not None:
            self._stragglers.recovered(record.moves, now_ms)
            self._straggler_text = record.moves[-1].text if record.moves else ""

    def _attempt_record(self) -> AttemptRecord:
        moves = self._stragglers.moves if self._stragglers is not None else ()
        return AttemptRecord(self._attempt_number, self._places, self._token, self._restarts, moves)

    def _avoided(self, now_ms: int) -> tuple[str, ...]:
        return self._stragglers.avoided(now_ms) if self._stragglers is not None else ()

    def _forget_place(self, task_manager_id: str) -> None:
        if self._stragglers is not None:
            self._stragglers.lost(task_manager_id)

    def _watch_running(self, now_ms: int) -> None:
        """Every subtask of the attempt runs."""
        if self._stragglers is not None and self._attempt is not None:
            self._stragglers.running(self._attempt.execution.places(), now_ms)

    def _on_counters(self, event: events.CountersReported, now_ms: int) -> None:
        attempt = self._attempt
        if attempt is None:
            return
        self._counters.update(event.counters, attempt.owns)
        self._at_work.update(event.counters, attempt.owns)
        watch = self._stragglers
        if watch is None or self._state is not JobState.RUNNING:
            return
        for one in event.counters:
            if one.subtask is not None and one.effort is not None and attempt.owns(one.subtask):
                watch.reported((one.subtask.vertex_id, one.subtask.subtask), one.effort, now_ms)
        found = watch.look(event.spares, now_ms)
        if isinstance(found, Relocation) and self._may_move(now_ms):
            self._relocate(watch, found, now_ms)
        elif isinstance(found, Stays):
            self._say(JobEventKind.SUBTASK_STAYS, found.text)

    def _may_move(self, now_ms: int) -> bool:
        """Nothing else is going on, and little has to be read again."""
        option, snapshots = self._graph.straggler_replacement, self._snapshots
        if option is None or snapshots is None or self._ending is not None or self._suspended:
            return False
        busy = snapshots.settling or snapshots.has_request or not self._orders.is_idle
        age_ms = self._situation(now_ms).age_ms
        return not busy and age_ms is not None and age_ms <= option.pause_ms

    def _relocate(self, watch: Stragglers, relocation: Relocation, now_ms: int) -> None:
        """Restarts the job from its newest snapshot with some of its slots elsewhere. It is no failure."""
        now = self._situation(now_ms)
        problem = deploy_problem(self._graph, now.restore, relocation.places)
        if problem:
            self._say(JobEventKind.SUBTASK_STAYS, watch.impossible(relocation, problem).text)
            return
        watch.moved(relocation, now_ms)
        self._say(JobEventKind.SUBTASK_MOVED, relocation.text)
        self._restart(relocation.text, now_ms)
        self._places = relocation.places
        self._is_planned = True

    def _say(self, kind: JobEventKind, text: str) -> None:
        self._straggler_text = text
        self._emit(kind, text)
