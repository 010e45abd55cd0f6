"""One execution attempt of a job: its subtasks, where they are placed, and how far each has come.

DEPLOYING -> RUNNING -> EXHAUSTED
    \\__________\\__________\\______> ENDED (failed or cancelled)
     \\____________________^          a subtask may be exhausted before it was ever seen running
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum

from lockgate_common.backlog import Backlog, sources_backlog
from lockgate_common.story import Story
from lockgate_proto.codec import encode
from lockgate_proto.layout import layout_for
from lockgate_proto.messages import (
    AttemptId,
    Deploy,
    JobGraph,
    Layout,
    Participant,
    SubtaskId,
    SubtaskLoad,
    SubtaskState,
    SubtaskStatusView,
)

from lockgate_coordinator.graph.shape import slots_needed, source_vertices, subtasks
from lockgate_coordinator.graph.slots import SlotOffer

SubtaskKey = tuple[str, int]


class Phase(Enum):
    """The phase of one subtask of the attempt."""

    DEPLOYING = "DEPLOYING"
    RUNNING = "RUNNING"
    EXHAUSTED = "EXHAUSTED"
    ENDED = "ENDED"


ALLOWED: Mapping[Phase, frozenset[Phase]] = {
    Phase.DEPLOYING: frozenset({Phase.RUNNING, Phase.EXHAUSTED, Phase.ENDED}),
    Phase.RUNNING: frozenset({Phase.EXHAUSTED, Phase.ENDED}),
    Phase.EXHAUSTED: frozenset({Phase.ENDED}),
    Phase.ENDED: frozenset(),
}

_ORDER = {Phase.DEPLOYING: 0, Phase.RUNNING: 1, Phase.EXHAUSTED: 2, Phase.ENDED: 3}


class ExecutionGraph:
    """The subtasks of one attempt on their slots. A new attempt is a new ExecutionGraph."""

    def __init__(self, graph: JobGraph, attempt: AttemptId, slots: Sequence[SlotOffer]) -> None:
        """slots[i] takes subtask i of every vertex; there are at least as many as the highest parallelism."""
        self.attempt = attempt
        self._graph = graph
        self._place: dict[SubtaskKey, SlotOffer] = {key: slots[key[1]] for key in subtasks(graph)}
        self._slots = slots
        self._used = tuple(sorted({slot.task_manager_id for slot in self._place.values()}))
        self._is_used = frozenset(self._used)
        self._phase: dict[SubtaskKey, Phase] = dict.fromkeys(self._place, Phase.DEPLOYING)
        self._loads: dict[SubtaskKey, SubtaskLoad] = {}
        self._views = {key: self._view(key) for key in self._place}  # a status has all of them, and few have changed
        self._outdated: set[SubtaskKey] = set()  # of the views: made again for the next status, if anybody asks
        self._started_ms: dict[SubtaskKey, int] = {}
        self._not_started = len(self._place)  # a counter, because every report of every subtask needs it
        self._not_exhausted = len(self._place)
        self._sources = frozenset(vertex.id for vertex in source_vertices(graph))
        self._story = Story(f"attempt {attempt.attempt} of job {attempt.job_key}")

    @property
    def subtasks(self) -> frozenset[SubtaskKey]:
        """Every (vertex id, subtask index) of the attempt."""
        return frozenset(self._place)

    @property
    def subtask_count(self) -> int:
        """Number of `subtasks`."""
        return len(self._place)

    def owns(self, subtask: SubtaskId | None) -> bool:
        """True when the id names a subtask of this attempt."""
        return self.key_of(subtask) is not None

    def key_of(self, subtask: SubtaskId | None) -> SubtaskKey | None:
        """Its key if the id names a subtask of this attempt, else None."""
        if subtask is None or subtask.attempt != self.attempt:
            return None
        key = (subtask.vertex_id, subtask.subtask)
        return key if key in self._place else None

    def runs_on(self, subtask: SubtaskId | None, task_manager_id: str) -> bool:
        """True when the id names a subtask of this attempt, and it is placed there."""
        key = self.key_of(subtask)
        return key is not None and self._place[key].task_manager_id == task_manager_id

    def uses(self, task_manager_id: str) -> bool:
        """True when a subtask is placed there."""
        return task_manager_id in self._is_used

    def advance(self, subtask: SubtaskId, phase: Phase, now_ms: int) -> bool:
        """Moves a subtask of this attempt forward. False for a report that is late or repeated."""
        key = _key(subtask)
        before = self._phase[key]
        if _ORDER[phase] <= _ORDER[before]:
            return False
        self._story.note(f"{key[0]}-{key[1]} reports {phase.name}", now_ms)
        self._phase[key] = self._story.move(ALLOWED, before, phase, now_ms)
        self._outdated.add(key)
        self._started_ms.setdefault(key, now_ms)
        self._not_started += self._is_started(before) - self._is_started(phase)
        self._not_exhausted += (before is Phase.EXHAUSTED) - (phase is Phase.EXHAUSTED)
        return True

    def loaded(self, key: SubtaskKey, load: SubtaskLoad) -> None:
        """A subtask of this attempt has reported how busy it is."""
        self._loads[key] = load
        self._outdated.add(key)

    def started(self, key: SubtaskKey) -> bool:
        """True once the subtask has reported that it runs."""
        return self._is_started(self._phase[key])

    @property
    def started_ms(self) -> Mapping[SubtaskKey, int]:
        """When each subtask first reported. It does not change any more once all have started."""
        return self._started_ms

    @staticmethod
    def _is_started(phase: Phase) -> bool:
        return phase in (Phase.RUNNING, Phase.EXHAUSTED)

    @property
    def all_started(self) -> bool:
        """True when every subtask runs or has run to its end of input."""
        return self._not_started == 0

    @property
    def all_exhausted(self) -> bool:
        """True when every subtask has reached its end of input."""
        return self._not_exhausted == 0

    def missing(self) -> tuple[str, ...]:
        """Names of the subtasks that have not reported RUNNING yet, for people."""
        return tuple(f"{vertex}-{index}" for vertex, index in self._place if not self.started((vertex, index)))

    def task_manager_of(self, key: SubtaskKey) -> str:
        """The task manager of a subtask."""
        return self._place[key].task_manager_id

    def places(self) -> Mapping[SubtaskKey, SlotOffer]:
        """The slot of every subtask."""
        return dict(self._place)

    def task_managers(self) -> tuple[str, ...]:
        """Every task manager that has a subtask, sorted."""
        return self._used

    def source_task_managers(self) -> tuple[str, ...]:
        """Every task manager that has a subtask of a source vertex, sorted: where checkpoints are triggered."""
        return tuple(sorted({slot.task_manager_id for key, slot in self._place.items() if key[0] in self._sources}))

    def deployments(
        self, restore: Mapping[SubtaskKey, SubtaskState], restored_checkpoint_id: int, checkpoint_directory: str
    ) -> tuple[tuple[str, Deploy], ...]:
        """(task manager id, Deploy) for every task manager: the layout, and the state of the subtasks there."""
        layout = encode(self.layout())
        states: dict[str, list[SubtaskState]] = {name: [] for name in self.task_managers()}
        for key, slot in self._place.items():
            if key in restore:
                states[slot.task_manager_id].append(restore[key])
        return tuple(
            (
                name,
                Deploy(
                    attempt=self.attempt,
                    layout=layout,
                    restore=tuple(found),
                    restored_checkpoint_id=restored_checkpoint_id,
                    checkpoint_directory=checkpoint_directory,
                ),
            )
            for name, found in states.items()
        )

    def layout(self) -> Layout:
        """The graph, and which task manager has which slot."""
        used = self._slots[: slots_needed(self._graph)]
        places = [Participant(offer.task_manager_id, offer.exchange_address, offer.incarnation) for offer in used]
        return layout_for(self._graph, places)

    def backlog(self) -> Backlog:
        """What the sources have found and not read yet, all together."""
        loads: dict[str, list[SubtaskLoad | None]] = {vertex: [] for vertex in self._sources}
        for key, phase in self._phase.items():
            if key[0] in loads:
                loads[key[0]].append(self._loads.get(key) if phase is Phase.RUNNING else None)
        return sources_backlog(loads.values())

    def views(self) -> tuple[SubtaskStatusView, ...]:
        """One line per subtask for job status."""
        for key in self._outdated:
            self._views[key] = self._view(key)
        self._outdated.clear()
        return tuple(self._views.values())

    def _view(self, key: SubtaskKey) -> SubtaskStatusView:
        place, phase = self._place[key].task_manager_id, self._phase[key]
        load = self._loads.get(key) if phase is Phase.RUNNING else None
        return SubtaskStatusView(key[0], key[1], place, phase.value, load)


def _key(subtask: SubtaskId) -> SubtaskKey:
    return (subtask.vertex_id, subtask.subtask)
