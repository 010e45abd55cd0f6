"""Plays the subtasks of one vertex for the judgement over stragglers: each with a place, a load, data of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from lockgate_coordinator.graph.slots import SlotOffer
from lockgate_coordinator.job.events import Spare
from lockgate_coordinator.job.stragglers import MoveRejected, Relocation, Stragglers
from lockgate_proto.messages import StragglerMove, StragglerReplacement, SubtaskEffort

OPTION = StragglerReplacement(factor=3.0, window_ms=4_000, pause_ms=10_000)
STEP_MS = 200
BATCH_US, RECORD_US, BYTES = 10_000, 10, 50


def spare(name: str, slots: int = 1) -> Spare:
    """Free slots on a task manager of its own host."""
    return Spare(name, f"{name}:1", slots)


@dataclass
class TestingStragglers:
    """speed: task manager to how many times as long everything takes there; cost: the same by subtask, its data.

    load: records a batch by subtask, 0 for idle; share: how much of the time a subtask's operators run.
    """

    places: list[str]
    speed: dict[str, float] = field(default_factory=dict)
    cost: dict[int, float] = field(default_factory=dict)
    load: dict[int, int] = field(default_factory=dict)
    share: dict[int, float] = field(default_factory=dict)
    spares: Sequence[Spare] = (spare("spare"),)
    may_move: Callable[[], bool] = lambda: True
    now: int = 1_000_000
    messages: list[str] = field(default_factory=list)
    moved: list[tuple[int, Relocation]] = field(default_factory=list)
    option: StragglerReplacement = OPTION

    def __post_init__(self) -> None:
        self.watch = Stragglers(self.option)
        self.start()

    def start(self) -> None:
        """An attempt runs at the places as they are."""
        self._done = dict.fromkeys(range(len(self.places)), SubtaskEffort())
        self._credit = dict.fromkeys(range(len(self.places)), 0.0)
        self.watch.running(self._offers(), self.now)

    def _offers(self) -> Mapping[tuple[str, int], SlotOffer]:
        return {("count", index): SlotOffer(name, f"{name}:1") for index, name in enumerate(self.places)}

    def new_leader(self) -> None:
        """Takes over with what is in the attempt's record."""
        moves: tuple[StragglerMove, ...] = self.watch.moves
        self.watch = Stragglers(self.option)
        self.watch.recovered(moves, self.now)
        self.start()

    def pass_ms(self, duration_ms: int) -> None:
        """Time goes by; what is decided is done."""
        for _ in range(duration_ms // STEP_MS):
            self.now += STEP_MS
            for index in range(len(self.places)):
                self._work(index)
                self.watch.reported(("count", index), self._done[index], self.now)
            self._look()

    def _work(self, index: int) -> None:
        records = self.load.get(index, 10_000)
        slower = self.speed.get(self.places[index], 1.0) * self.cost.get(index, 1.0)
        takes_us = int((BATCH_US + records * RECORD_US) * slower)
        self._credit[index] += STEP_MS * 1_000 * self.share.get(index, 1.0) if records else 0
        while records and self._credit[index] >= takes_us:
            self._credit[index] -= takes_us
            done = self._done[index]
            self._done[index] = SubtaskEffort(
                done.busy_us + takes_us,
                done.batches + 1,
                done.records + records,
                done.size_bytes + records * BYTES,
                min(done.quickest_us or takes_us, takes_us),
            )

    def _look(self) -> None:
        found = self.watch.look(self.spares, self.now)
        if isinstance(found, MoveRejected):
            self.messages.append(found.text)
        elif found is not None and self.may_move():
            self._move(found)

    def _move(self, found: Relocation) -> None:
        self.watch.moved(found, self.now)
        self.moved.append((self.now, found))
        left = {slot: self.places[slot] for slot in found.slots}
        self.places = list(found.places)
        taken = len(left)
        self.spares = [
            *(
                replace(spare, slots=spare.slots - taken * (spare.task_manager_id == found.target))
                for spare in self.spares
            ),
            spare(found.source, taken),
        ]
        self.start()
