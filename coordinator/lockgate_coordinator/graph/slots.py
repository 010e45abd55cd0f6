"""The cluster's slots and which job holds them.

    free --SlotsRequested--> held by a job --SlotsReleased | SlotsRequested again--> free
      \\____________________________|____________ TaskManagerRemoved ______________> gone

A request that cannot be met waits. Jobs that have run come before those that have not: the slots of a task manager that
failed are not given to a new job when it is back. Otherwise requests are served in order of arrival, and one that does
not fit blocks no other, so that a job that is too large for the cluster never stops another.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import assert_never


@dataclass(frozen=True, slots=True)
class SlotOffer:
    """One slot, granted to one job until it releases it or requests again."""

    task_manager_id: str
    exchange_address: str  # host:port
    incarnation: str = ""  # of its process


@dataclass(frozen=True, slots=True)
class TaskManagerAdded:
    """A task manager has registered. The same id again replaces the earlier entry; held slots of it stay held."""

    task_manager_id: str
    exchange_address: str
    slots: int
    incarnation: str = ""


@dataclass(frozen=True, slots=True)
class TaskManagerRemoved:
    """A task manager is lost, and all its slots."""

    task_manager_id: str


@dataclass(frozen=True, slots=True)
class SlotsRequested:
    """A job wants `count` slots in place of whatever it holds or has asked for (see effects.RequestSlots).

    preferred: the task manager wanted for slot i, "" where there is none; empty for a job that has never run.
    grace_ms: wait so long for preferred ones that are not registered yet. avoided: see effects.RequestSlots.
    """

    job_key: str
    request: int
    count: int
    preferred: tuple[str, ...] = ()
    grace_ms: int = 0
    avoided: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SlotsReleased:
    """A job releases all its slots and withdraws its request."""

    job_key: str


@dataclass(frozen=True, slots=True)
class TimePassed:
    """A grace period may have ended."""


SlotEvent = TaskManagerAdded | TaskManagerRemoved | SlotsRequested | SlotsReleased | TimePassed


@dataclass(frozen=True, slots=True)
class SlotsGranted:
    """The job holds these slots now; slot i is for subtask i of every vertex."""

    job_key: str
    request: int
    slots: tuple[SlotOffer, ...]


@dataclass(frozen=True, slots=True)
class SlotsShort:
    """The job has to wait; repeated when the numbers change."""

    job_key: str
    request: int
    free_slots: int
    task_managers: int


@dataclass(frozen=True, slots=True)
class WakePool:
    """Send TimePassed at this monotonic time. Replaces the previous request."""

    at_ms: int


SlotEffect = SlotsGranted | SlotsShort | WakePool


@dataclass(frozen=True, slots=True)
class SlotCount:
    """The slots of one task manager."""

    task_manager_id: str
    exchange_address: str
    slots: int
    free_slots: int


@dataclass(slots=True)
class _Waiting:
    request: SlotsRequested
    grace_until_ms: int
    reported: tuple[int, int] | None = None


@dataclass(slots=True)
class _TaskManager:
    address: str
    incarnation: str
    slots: int
    held: dict[str, int] = field(default_factory=dict)  # job key to number of slots

    @property
    def free(self) -> int:
        return max(0, self.slots - sum(self.held.values()))


class SlotPool:
    """All slots of the task managers that are registered with this leader. Pure."""

    def __init__(self) -> None:
        self._task_managers: dict[str, _TaskManager] = {}
        self._waiting: dict[str, _Waiting] = {}

    def handle(self, event: SlotEvent, now_ms: int) -> list[SlotEffect]:
        """The one entrance. Returns grants and shortages, in the order in which requests are served."""
        match event:
            case TaskManagerAdded(name, address, slots, incarnation):
                known = self._task_managers.get(name)
                held = known.held if known is not None else {}
                self._task_managers[name] = _TaskManager(address, incarnation, slots, held)
            case TaskManagerRemoved(name):
                self._task_managers.pop(name, None)
            case SlotsReleased(job_key):
                self._forget(job_key)
            case SlotsRequested(job_key, grace_ms=grace_ms):
                self._forget(job_key)
                self._waiting[job_key] = _Waiting(event, now_ms + grace_ms)
            case TimePassed():
                pass
            case _:
                assert_never(event)
        return self._serve(now_ms)

    def task_managers(self) -> tuple[SlotCount, ...]:
        """The slots of every registered task manager, by id."""
        return tuple(
            SlotCount(name, task_manager.address, task_manager.slots, task_manager.free)
            for name, task_manager in sorted(self._task_managers.items())
        )

    @property
    def free_slots(self) -> int:
        """Slots that no job holds."""
        return sum(task_manager.free for task_manager in self._task_managers.values())

    def spares(self, job_key: str) -> tuple[SlotCount, ...]:
        """Task managers with free slots that the job would get if it requested its slots again with some of these.

        Empty when the slots that it releases for a moment would go to a job that waits.
        """
        within_reach = self.free_slots + sum(self.held_by(job_key).values())
        if any(waiting.request.count <= within_reach for key, waiting in self._waiting.items() if key != job_key):
            return ()
        return tuple(task_manager for task_manager in self.task_managers() if task_manager.free_slots > 0)

    def held_by(self, job_key: str) -> dict[str, int]:
        """Task manager id to the number of slots that the job holds there."""
        return {
            name: task_manager.held[job_key]
            for name, task_manager in self._task_managers.items()
            if task_manager.held.get(job_key)
        }

    def _forget(self, job_key: str) -> None:
        self._waiting.pop(job_key, None)
        for task_manager in self._task_managers.values():
            task_manager.held.pop(job_key, None)

    def _serve(self, now_ms: int) -> list[SlotEffect]:
        effects: list[SlotEffect] = []
        kept = 0  # for jobs that have run and wait for their own task managers
        for job_key, waiting in sorted(self._waiting.items(), key=lambda item: not item[1].request.preferred):
            request = waiting.request
            free = self.free_slots if request.preferred else max(0, self.free_slots - kept)
            if free < request.count:
                numbers = (free, len(self._task_managers))
                if waiting.reported != numbers:
                    waiting.reported = numbers
                    effects.append(SlotsShort(job_key, request.request, *numbers))
            elif now_ms >= waiting.grace_until_ms or self._registered(request.preferred):
                del self._waiting[job_key]
                effects.append(SlotsGranted(job_key, request.request, self._allocate(request)))
            else:
                kept += request.count
        graces = [waiting.grace_until_ms for waiting in self._waiting.values() if waiting.grace_until_ms > now_ms]
        if graces:
            effects.append(WakePool(min(graces)))
        return effects

    def _registered(self, names: Sequence[str]) -> bool:
        return all(name in self._task_managers for name in names if name)

    def _allocate(self, request: SlotsRequested) -> tuple[SlotOffer, ...]:
        """Slots for one request that fits: the preferred places first, the rest spread evenly."""
        chosen: list[str | None] = [None] * request.count
        for index, name in enumerate(request.preferred[: request.count]):
            if name in self._task_managers and self._task_managers[name].free:
                chosen[index] = self._hold(name, request.job_key)
        spread = self._spread(request)
        places = [name if name is not None else next(spread) for name in chosen]
        offers = {
            name: SlotOffer(name, self._task_managers[name].address, self._task_managers[name].incarnation)
            for name in dict.fromkeys(places)
        }
        return tuple(offers[name] for name in places)

    def _spread(self, request: SlotsRequested) -> Iterator[str]:
        """Repeatedly takes a slot of the task manager with the fewest slots of the job, then the most free ones."""
        avoided = frozenset(request.avoided)

        def rank(name: str) -> tuple[bool, int, int, str]:
            task_manager = self._task_managers[name]
            return name in avoided, task_manager.held.get(request.job_key, 0), -task_manager.free, name

        waiting = [rank(name) for name, task_manager in self._task_managers.items() if task_manager.free]
        heapq.heapify(waiting)
        while waiting:
            *_, name = waiting[0]
            yield self._hold(name, request.job_key)
            if self._task_managers[name].free:
                heapq.heapreplace(waiting, rank(name))  # no other rank has changed
            else:
                heapq.heappop(waiting)

    def _hold(self, name: str, job_key: str) -> str:
        held = self._task_managers[name].held
        held[job_key] = held.get(job_key, 0) + 1
        return name


def slot_shortage(slots_needed: int, task_manager_slots: Sequence[int]) -> str | None:
    """A sentence when the cluster as it is can never run a job of this size, else None.

    task_manager_slots: slots of every registered task manager, busy or not. Without any task manager the answer is
    unknown, and the job may wait for them.
    """
    total = sum(task_manager_slots)
    if not task_manager_slots or slots_needed <= total:
        return None
    return (
        f"The job needs {slots_needed} slots (its highest parallelism), but the cluster has {total} in "
        f"{len(task_manager_slots)} task managers: lower the parallelism, or start task managers with more slots."
    )
