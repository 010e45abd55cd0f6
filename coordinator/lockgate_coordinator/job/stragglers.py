"""Detects subtasks that are slow because of the place where they run, and moves them.

    watched --slow for the whole window--> moved --slow there, too--> stays: it is the data
       ^                                     |
       +-----as quick as its siblings--------+

A subtask is slow when its operators take `factor` times as long for their input as those of its siblings on other task
managers did within the last window (the median, see pace.py), and when they run at least half of the time; otherwise it
keeps up, or waits for others. If a sibling on the same task manager is not slow, the place is not to blame. A whole
slot is moved, which is subtask i of every vertex; all others stay where they are.

Measurements are lost with the leader. The moves are stored (AttemptRecord.moves): a new leader waits before the next
one, avoids the places that were left, and knows which slots are on trial.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from lockgate_proto.messages import StragglerMove, StragglerReplacement, SubtaskEffort

from lockgate_coordinator.graph.execution_graph import SubtaskKey
from lockgate_coordinator.graph.slots import SlotOffer
from lockgate_coordinator.job.events import Spare
from lockgate_coordinator.job.pace import NOTHING, EffortWindow, effort_window, times_as_long, together

AVOID_MS = 600_000
"""How long the job avoids a task manager from which a subtask was moved away."""

KEPT_MOVES = 8
"""The most moves that are remembered; each doubles the pause before the next one."""

LEAST_BATCHES = 4
"""The least batches in a stretch: on few cores one batch may take several times as long as the next."""

BUSY_SHARE = 0.5
_STEPS = 4
"""Stretches in a window, so that a pause of the machine or of the garbage collector affects only one of them."""


@dataclass(frozen=True, slots=True)
class Relocation:
    """Restart the job with these slots elsewhere. places: task manager of each slot from then on."""

    slots: tuple[int, ...]
    source: str
    target: str
    places: tuple[str, ...]
    text: str


@dataclass(frozen=True, slots=True)
class MoveRejected:
    """A slow subtask is not moved; text: why, a sentence. Reported once."""

    text: str


@dataclass(slots=True)
class _Watched:
    """The measurements of one subtask in one attempt."""

    mark: SubtaskEffort | None = NOTHING  # None: not known yet
    mark_ms: int = 0
    done: deque[tuple[int, EffortWindow]] = field(default_factory=deque)  # with their ends, of this and the last window
    ratio: float = 0.0  # of the newest stretch; 0: nothing to compare with
    slow_since_ms: int | None = None
    fine_since_ms: int | None = None

    @property
    def newest_ms(self) -> int:
        """When its newest stretch ended."""
        return self.done[-1][0] if self.done else 0

    def add(self, ended: EffortWindow, now_ms: int, kept_ms: int) -> None:
        """Adds its newest effort window; drops windows that ended longer ago than kept_ms."""
        self.done.append((now_ms, ended))
        while self.done[0][0] < now_ms - kept_ms:
            self.done.popleft()


class Stragglers:
    """Straggler detection for one job under one leader. Pure."""

    def __init__(self, option: StragglerReplacement | None) -> None:
        """option: normalized; None: disabled."""
        self.is_wanted = option is not None
        self.text = ""  # the newest message about a subtask, for people
        self._option = option or StragglerReplacement()
        self._watched: dict[SubtaskKey, _Watched] = {}
        self._place: Mapping[SubtaskKey, SlotOffer] = {}
        self._moves: tuple[StragglerMove, ...] = ()
        self._on_trial: dict[int, StragglerMove] = {}  # by slot
        self._given_up: set[int] = set()
        self._avoided: dict[str, int] = {}  # task manager id to the end of it
        self._not_before_ms = 0
        self._reported: set[int] = set()  # slots without a better place, reported in this attempt

    @property
    def moves(self) -> tuple[StragglerMove, ...]:
        """The moves for the attempt's record."""
        return self._moves

    def recovered(self, moves: Sequence[StragglerMove], now_ms: int) -> None:
        """Takes over the moves of earlier leaders, as if they had happened now."""
        if not self.is_wanted:
            return
        self._moves = tuple(moves)
        for move in moves:
            self._on_trial |= dict.fromkeys(move.slots, move)
            self._avoided[move.from_task_manager] = now_ms + AVOID_MS
        if moves:
            self.text = moves[-1].text
            self._not_before_ms = now_ms + self._pause_ms()

    def avoided(self, now_ms: int) -> tuple[str, ...]:
        """Task managers to be used for the job's slots only if there is no other."""
        return tuple(sorted(name for name, until_ms in self._avoided.items() if now_ms < until_ms))

    def lost(self, task_manager_id: str) -> None:
        """Its process has ended; another one with the same id may be fast."""
        self._avoided.pop(task_manager_id, None)

    def running(self, place: Mapping[SubtaskKey, SlotOffer], now_ms: int, *, is_adopted: bool = False) -> None:
        """Every subtask of an attempt runs; discards earlier measurements. is_adopted: some have run for a while."""
        if not self.is_wanted:
            return
        if self._place and self._place.keys() != place.keys():  # another parallelism: each has other data now
            self._given_up.clear()
            self._on_trial.clear()
        self._place = dict(place)
        self._watched = {key: _Watched(None if is_adopted else NOTHING, now_ms) for key in place}
        self._reported = set()
        for slot, move in list(self._on_trial.items()):
            if all(offer.task_manager_id != move.to_task_manager for key, offer in place.items() if key[1] == slot):
                del self._on_trial[slot]  # another failure has moved it

    def reported(self, key: SubtaskKey, effort: SubtaskEffort, now_ms: int) -> None:
        """Takes the total effort of a subtask of the running attempt."""
        watched = self._watched.get(key)
        if watched is not None and watched.mark is None:
            watched.mark, watched.mark_ms = effort, now_ms
        if watched is None or watched.mark is None or now_ms - watched.mark_ms < self._option.window_ms // _STEPS:
            return
        if effort.batches - watched.mark.batches < LEAST_BATCHES:
            return
        began_ms = watched.mark_ms
        ended = effort_window(watched.mark, effort, now_ms - began_ms)
        watched.add(ended, now_ms, self._option.window_ms)
        watched.mark, watched.mark_ms = effort, now_ms
        self._judge(key, watched, ended, began_ms, now_ms)

    def look(self, spares: Sequence[Spare], now_ms: int) -> Relocation | MoveRejected | None:
        """The action to take now. spares: free slots that may be used. Call `moved` when it is done."""
        worst = max(self._slow(now_ms), key=lambda key: self._watched[key].ratio, default=None)
        self._discharge(now_ms)
        if worst is None:
            return None
        trial = self._on_trial.pop(worst[1], None)
        if trial is not None:
            self._given_up.add(worst[1])
            return self._rejected(
                f"{_subtasks(worst[0], [worst[1]])} {self._takes(worst)} on {trial.to_task_manager} as it did on "
                f"{trial.from_task_manager}: the work is slow, not the place, so it stays"
            )
        if now_ms < self._not_before_ms:
            return None
        return self._relocation(worst, spares, now_ms)

    def moved(self, relocation: Relocation, now_ms: int) -> None:
        """The job is being restarted for this relocation."""
        self.text = relocation.text
        move = StragglerMove(relocation.slots, relocation.source, relocation.target, relocation.text)
        self._moves = (*self._moves, move)[-KEPT_MOVES:]
        self._on_trial |= dict.fromkeys(relocation.slots, move)
        self._avoided[relocation.source] = now_ms + AVOID_MS
        self._not_before_ms = now_ms + self._pause_ms()
        self._watched = {}

    def impossible(self, relocation: Relocation, problem: str) -> MoveRejected:
        """The job can never be restarted for this relocation."""
        self._given_up.update(relocation.slots)
        return self._rejected(f"a slow subtask stays on {relocation.source}: {problem}")

    def may_read_again(self, age_ms: int | None) -> bool:
        """True when a move costs little, because its snapshot was begun only `age_ms` ago."""
        return age_ms is not None and age_ms <= self._option.pause_ms

    def _rejected(self, text: str) -> MoveRejected:
        self.text = text
        return MoveRejected(text)

    def _pause_ms(self) -> int:
        return self._option.pause_ms << max(0, len(self._moves) - 1)

    def _judge(self, key: SubtaskKey, watched: _Watched, done: EffortWindow, began_ms: int, now_ms: int) -> None:
        """Compares its newest stretch with those of its siblings elsewhere."""
        here = self._place[key].task_manager_id
        others = [other for sibling, other in self._siblings(key, now_ms) if self._at(sibling) != here]
        watched.ratio = median(times_as_long(done, other) for other in others) if others else 0.0
        is_slow = watched.ratio >= self._option.factor and done.busy_share >= BUSY_SHARE
        if not is_slow:
            watched.slow_since_ms = None
            if watched.ratio == 0:
                watched.fine_since_ms = None
            elif watched.fine_since_ms is None:
                watched.fine_since_ms = began_ms
        else:
            watched.fine_since_ms = None
            if watched.slow_since_ms is None:
                watched.slow_since_ms = began_ms

    def _siblings(self, key: SubtaskKey, now_ms: int) -> Iterable[tuple[SubtaskKey, EffortWindow]]:
        """The siblings with recent measurements, and their effort in the last window."""
        oldest_ms = now_ms - 2 * self._option.window_ms
        for sibling, watched in self._watched.items():
            if sibling[0] == key[0] and sibling != key and watched.done and watched.newest_ms >= oldest_ms:
                yield sibling, together([ended for _, ended in watched.done])

    def _at(self, key: SubtaskKey) -> str:
        return self._place[key].task_manager_id

    def _slow(self, now_ms: int) -> list[SubtaskKey]:
        """Subtasks that were slow for the whole window, on task managers where all their siblings are."""
        window_ms = self._option.window_ms
        return [
            key
            for key, watched in self._watched.items()
            if watched.slow_since_ms is not None
            and now_ms - watched.slow_since_ms >= window_ms
            and now_ms - watched.newest_ms < 2 * window_ms
            and key[1] not in self._given_up
            and not self._has_quick_neighbour(key, now_ms)
        ]

    def _has_quick_neighbour(self, key: SubtaskKey, now_ms: int) -> bool:
        near = [sibling for sibling, _ in self._siblings(key, now_ms) if self._at(sibling) == self._at(key)]
        return any(0 < self._watched[sibling].ratio < self._option.factor for sibling in near)

    def _discharge(self, now_ms: int) -> None:
        """Ends the trial of slots that have kept up for a whole window since their move: the place was to blame."""
        for slot in list(self._on_trial):
            mine = [watched for key, watched in self._watched.items() if key[1] == slot]
            known = [item.fine_since_ms for item in mine if item.fine_since_ms is not None]
            is_fine = bool(known) and all(item.slow_since_ms is None for item in mine)
            if is_fine and now_ms - max(known) >= self._option.window_ms:
                del self._on_trial[slot]

    def _relocation(self, worst: SubtaskKey, spares: Sequence[Spare], now_ms: int) -> Relocation | MoveRejected | None:
        source = self._place[worst]
        avoided = {source.task_manager_id, *self.avoided(now_ms)}
        open_to = [spare for spare in spares if spare.slots > 0 and spare.task_manager_id not in avoided]
        if not open_to:
            return self._no_place(worst)
        target = self._best(open_to, _host(source.exchange_address))
        alike = [key for key in self._slow(now_ms) if key[0] == worst[0] and self._at(key) == source.task_manager_id]
        ready = sorted(key[1] for key in alike if key[1] not in self._on_trial and key != worst)
        slots = tuple(sorted([worst[1], *ready[: target.slots - 1]]))
        ways = f"from {_named(source)} to {_named(SlotOffer(target.task_manager_id, target.exchange_address))}"
        text = f"{_subtasks(worst[0], slots)} {self._takes(worst, len(slots))}; moved {ways}"
        places = {key[1]: offer.task_manager_id for key, offer in self._place.items()}
        places |= dict.fromkeys(slots, target.task_manager_id)
        return Relocation(
            slots, source.task_manager_id, target.task_manager_id, tuple(places[slot] for slot in sorted(places)), text
        )

    def _best(self, open_to: Sequence[Spare], host: str) -> Spare:
        """The best spare: not avoided, on another host, with the most free slots."""
        left = {move.from_task_manager for move in self._moves}

        def rank(spare: Spare) -> tuple[bool, bool, int, str]:
            name = spare.task_manager_id
            return (name in left, _host(spare.exchange_address) == host, -spare.slots, name)

        return min(open_to, key=rank)

    def _no_place(self, worst: SubtaskKey) -> MoveRejected | None:
        if worst[1] in self._reported:
            return None
        self._reported.add(worst[1])
        return self._rejected(
            f"{_subtasks(worst[0], [worst[1]])} {self._takes(worst)} on {_named(self._place[worst])}, and stays: there "
            "is no free slot for it elsewhere"
        )

    def _takes(self, key: SubtaskKey, count: int = 1) -> str:
        verb, whose = ("takes", "its") if count == 1 else ("take", "their")
        return f"{verb} {self._watched[key].ratio:.1f} times as long per record as {whose} siblings"


def _subtasks(vertex: str, slots: Sequence[int]) -> str:
    if len(slots) == 1:
        return f"subtask {slots[0]} of '{vertex}'"
    return f"subtasks {', '.join(str(slot) for slot in slots[:-1])} and {slots[-1]} of '{vertex}'"


def _named(slot: SlotOffer) -> str:
    return f"{slot.task_manager_id} ({slot.exchange_address})"


def _host(address: str) -> str:
    return address.rpartition(":")[0]
