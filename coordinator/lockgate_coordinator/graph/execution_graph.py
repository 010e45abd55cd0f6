"""One execution attempt of a job: its subtasks, where they are placed, and how far each has come.

DEPLOYING -> RUNNING -> EXHAUSTED
    \\__________\\__________\\______> ENDED (failed or cancelled)
     \\____________________^          a subtask may be exhausted before it was ever seen running
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from enum import Enum

from lockgate_common.amounts import listed
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
    PartPlace,
    RejoinPart,
    SubtaskId,
    SubtaskLoad,
    SubtaskState,
    SubtaskStatusView,
)

from lockgate_coordinator.graph.regions import exchanges_in_part
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

    def __init__(
        self, graph: JobGraph, attempt: AttemptId, slots: Sequence[SlotOffer], numbers: Sequence[int] = ()
    ) -> None:
        """slots[i] takes subtask i of every vertex; there are at least as many as the highest parallelism.

        numbers: of the attempt in which the subtasks in slot i began; empty: all in this one.
        """
        self.attempt = attempt
        self._graph = graph
        self._place: dict[SubtaskKey, SlotOffer] = {key: slots[key[1]] for key in subtasks(graph)}
        self._slots = slots
        known = {number: replace(attempt, attempt=number) for number in set(numbers)} | {attempt.attempt: attempt}
        began = [known[number] for number in numbers]
        self._id: dict[SubtaskKey, AttemptId] = {
            key: began[key[1]] if key[1] < len(began) else attempt for key in self._place
        }
        self._lost: dict[SubtaskKey, AttemptId] = {}
        self._runs: dict[str, tuple[AttemptId, ...]] = self._by_place()
        self._phase: dict[SubtaskKey, Phase] = dict.fromkeys(self._place, Phase.DEPLOYING)
        self._loads: dict[SubtaskKey, SubtaskLoad] = {}
        self._views: dict[SubtaskKey, SubtaskStatusView] = {}  # a status has all of them, and few have changed
        self._shown: tuple[SubtaskStatusView, ...] = ()
        self._outdated = set(self._place)  # of the views: made again when the next status is requested
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
        if subtask is None:
            return None
        key = (subtask.vertex_id, subtask.subtask)
        return key if (known := self._id.get(key)) is not None and known == subtask.attempt else None

    def runs_on(self, subtask: SubtaskId | None, task_manager_id: str) -> bool:
        """True when the id names a subtask of this attempt, and it is placed there."""
        key = self.key_of(subtask)
        return key is not None and self._place[key].task_manager_id == task_manager_id

    def uses(self, task_manager_id: str) -> bool:
        """True when a subtask is placed there."""
        return task_manager_id in self._runs

    def runs(self, attempt: AttemptId | None, task_manager_id: str) -> bool:
        """True when a subtask that began in this attempt is placed there."""
        return attempt in self._runs.get(task_manager_id, ())

    def ids_on(self, task_manager_id: str) -> tuple[AttemptId, ...]:
        """The attempts in which the subtasks placed there began, the newest last."""
        return self._runs.get(task_manager_id, ())

    def id_of(self, key: SubtaskKey) -> AttemptId:
        """The attempt in which a subtask began; of a lost one this attempt."""
        return self._id.get(key, self.attempt)

    @property
    def is_mixed(self) -> bool:
        """True when some of its subtasks began in earlier attempts."""
        return any(known is not self.attempt for known in self._id.values())

    def numbers(self) -> tuple[int, ...]:
        """As in the constructor."""
        return self.continued(self.attempt.attempt) if self.is_mixed else ()

    def continued(self, number: int) -> tuple[int, ...]:
        """`numbers` of the attempt `number` in which its lost subtasks begin again, and the others run on."""
        slots = range(slots_needed(self._graph))
        found = {key[1]: known.attempt for key, known in self._id.items()}
        return tuple(found.get(slot, number) for slot in slots)

    def fits(self, slots: Sequence[SlotOffer]) -> bool:
        """True when its subtasks that are not lost are in these slots already."""
        return all(key[1] < len(slots) and slots[key[1]] == self._place[key] for key in self._id)

    def slots_on(self, task_manager_id: str) -> frozenset[int]:
        """The slots of its subtasks that are placed there and not lost."""
        return frozenset(key[1] for key in self._id if self._place[key].task_manager_id == task_manager_id)

    def slots_beside(self, slots: Collection[int]) -> frozenset[int]:
        """The slots of its subtasks that are not lost, on all task managers of some slots."""
        places = {self._slots[slot].task_manager_id for slot in slots}
        return frozenset(key[1] for key in self._id if self._place[key].task_manager_id in places)

    def kept_slots(self) -> tuple[int, ...]:
        """The slots of its subtasks that are not lost, in order."""
        return tuple(sorted({key[1] for key in self._id}))

    def lose(self, slots: Collection[int], now_ms: int) -> Mapping[tuple[str, AttemptId], list[int]]:
        """Its subtasks there are over, and the others run on: reports of the lost ones are ignored from now on.

        Returns which slots they were in, by the task manager and the attempt in which they began.
        """
        found: dict[tuple[str, AttemptId], list[int]] = {}
        for key in sorted(key for key in self._id if key[1] in slots):
            self._phase[key] = self._story.move(ALLOWED, self._phase[key], Phase.ENDED, now_ms)
            self._outdated.add(key)
            self._lost[key] = self._id.pop(key)
            there = found.setdefault((self.task_manager_of(key), self._lost[key]), [])
            if key[1] not in there:
                there.append(key[1])
        self._runs = self._by_place()
        return found

    def was_lost_on(self, subtask: SubtaskId, task_manager_id: str) -> bool:
        """True when the id names a lost subtask, and it was placed there."""
        key = (subtask.vertex_id, subtask.subtask)
        return self._lost.get(key) == subtask.attempt and self.task_manager_of(key) == task_manager_id

    def is_lost(self, key: SubtaskKey) -> bool:
        """True for a subtask that is over while others run on."""
        return key not in self._id

    def carry_on(self, before: ExecutionGraph) -> None:
        """Takes over how far the subtasks are that began in earlier attempts. before: which this one replaces."""
        for key, known in self._id.items():
            if known == before._id.get(key):
                phase = before._phase[key]
                self._not_started -= self._is_started(phase)
                self._not_exhausted -= phase is Phase.EXHAUSTED
                self._phase[key] = phase
                self._outdated.add(key)
                if key in before._loads:
                    self._loads[key] = before._loads[key]

    @property
    def has_lost(self) -> bool:
        """True when some of its subtasks are lost while the others run on."""
        return len(self._id) < len(self._place)

    def lists(self, vertex_id: str, attempt: AttemptId | None, task_manager_id: str) -> bool:
        """True for the task manager that lists the splits of this source: that of the first of its newest subtasks."""
        newest = max((known.attempt for key, known in self._id.items() if key[0] == vertex_id), default=0)
        found = (key for key, known in self._id.items() if key[0] == vertex_id and known.attempt == newest)
        first = min(found, default=None)
        return first is not None and self._id[first] == attempt and self.task_manager_of(first) == task_manager_id

    def begun_before(self) -> frozenset[SubtaskKey]:
        """The subtasks that began in an earlier attempt."""
        return frozenset(key for key, known in self._id.items() if known != self.attempt)

    def _by_place(self) -> dict[str, tuple[AttemptId, ...]]:
        found: dict[str, set[AttemptId]] = {}
        for key, known in self._id.items():
            found.setdefault(self._place[key].task_manager_id, set()).add(known)
        return {name: tuple(sorted(ids, key=lambda known: known.attempt)) for name, ids in sorted(found.items())}

    def advance(self, subtask: SubtaskId, phase: Phase, now_ms: int) -> bool:
        """Moves a subtask of this attempt forward. False for a report that is late or repeated."""
        key = _key(subtask)
        before = self._phase[key]
        if _ORDER[phase] <= _ORDER[before]:
            return False
        self._story.note(f"{key[0]}-{key[1]} reports {phase.name}", now_ms)
        self._phase[key] = self._story.move(ALLOWED, before, phase, now_ms)
        self._outdated.add(key)
        if not self._is_started(before):  # one that runs on has started in an earlier attempt
            self._started_ms[key] = now_ms
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

    def is_exhausted(self, key: SubtaskKey) -> bool:
        """Whether a subtask has had all of its input; False for one that there is not."""
        return self._phase.get(key) is Phase.EXHAUSTED

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

    def missing(self) -> str:
        """Names of the first subtasks that have not reported RUNNING yet, for people."""
        return listed([f"{vertex}-{index}" for vertex, index in self._place if not self.started((vertex, index))])

    def task_manager_of(self, key: SubtaskKey) -> str:
        """The task manager of a subtask."""
        return self._place[key].task_manager_id

    def places(self) -> Mapping[SubtaskKey, SlotOffer]:
        """The slot of every subtask."""
        return dict(self._place)

    def task_managers(self) -> tuple[str, ...]:
        """Every task manager that has a subtask, sorted."""
        return tuple(self._runs)

    def source_task_managers(self) -> tuple[str, ...]:
        """Every task manager that has a subtask of a source vertex, sorted: where checkpoints are triggered."""
        return tuple(sorted({self._place[key].task_manager_id for key in self._id if key[0] in self._sources}))

    def deployments(
        self, restore: Mapping[SubtaskKey, SubtaskState], restored_checkpoint_id: int, checkpoint_directory: str
    ) -> tuple[tuple[str, Deploy], ...]:
        """(task manager id, Deploy) for every task manager where subtasks begin: the layout, and the state of those."""
        layout = encode(self.layout())
        states: dict[str, list[SubtaskState]] = {
            name: [] for name in self.task_managers() if self.runs(self.attempt, name)
        }
        for key, known in self._id.items():
            if known == self.attempt and key in restore:
                states[self.task_manager_of(key)].append(restore[key])
        return tuple(
            (
                name,
                Deploy(
                    attempt=self.attempt,
                    layout=layout,
                    restore=tuple(found),
                    restored_checkpoint_id=restored_checkpoint_id,
                    checkpoint_directory=checkpoint_directory,
                    beside=tuple(known.attempt for known in self.ids_on(name) if known != self.attempt),
                ),
            )
            for name, found in states.items()
        )

    def layout(self) -> Layout:
        """The graph, and which task manager has which slot in which subtasks begin."""
        used, elsewhere = self._slots[: slots_needed(self._graph)], Participant()
        places = [Participant(offer.task_manager_id, offer.exchange_address, offer.incarnation) for offer in used]
        numbers = self.numbers()
        if not numbers:
            return layout_for(self._graph, places)
        if exchanges_in_part(self._graph):  # those that begin exchange records with those that run on
            return layout_for(self._graph, places, numbers)
        began = [number == self.attempt.attempt for number in numbers]
        return layout_for(
            self._graph, [place if here else elsewhere for place, here in zip(places, began, strict=True)]
        )

    def rejoins(self, restored_checkpoint_id: int) -> tuple[tuple[str, RejoinPart], ...]:
        """(task manager id, RejoinPart) for those whose subtasks run on and exchange records with those that begin."""
        if not self.is_mixed or not exchanges_in_part(self._graph):
            return ()
        offers = {key[1]: self._place[key] for key, known in self._id.items() if known == self.attempt}
        places = tuple(
            PartPlace(slot, Participant(offer.task_manager_id, offer.exchange_address, offer.incarnation))
            for slot, offer in sorted(offers.items())
        )
        part = self.attempt.attempt
        return tuple(
            (name, RejoinPart(known, part, restored_checkpoint_id, places))
            for name in self.task_managers()
            for known in self.ids_on(name)
            if known != self.attempt
        )

    def backlog(self) -> Backlog:
        """What the sources have found and not read yet, all together."""
        loads: dict[str, list[SubtaskLoad | None]] = {vertex: [] for vertex in self._sources}
        for key, phase in self._phase.items():
            if key[0] in loads:
                loads[key[0]].append(self._loads.get(key) if phase is Phase.RUNNING else None)
        return sources_backlog(loads.values())

    def views(self) -> tuple[SubtaskStatusView, ...]:
        """One line per subtask for job status."""
        if self._outdated:
            for key in self._outdated:
                self._views[key] = self._view(key)
            self._outdated.clear()
            self._shown = tuple(map(self._views.__getitem__, self._place))
        return self._shown

    def _view(self, key: SubtaskKey) -> SubtaskStatusView:
        place, phase = self._place[key].task_manager_id, self._phase[key]
        load = self._loads.get(key) if phase is Phase.RUNNING else None
        began = self._id[key] if key in self._id else self._lost[key]
        return SubtaskStatusView(key[0], key[1], place, phase.value, load, began.attempt)


def _key(subtask: SubtaskId) -> SubtaskKey:
    return (subtask.vertex_id, subtask.subtask)
