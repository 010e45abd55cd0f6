"""The cluster's slots and which job holds them.

    free --RequestSlots--> held by a job --ReleaseSlots | RequestSlots again--> free
      \\____________________________|____________ TaskManagerRemoved ______________> gone

An attempt that an earlier leader has deployed, and that still runs, has a claim on its slots: no other job gets them
until its own job has asked for slots and got them, or it has ended.

A request that cannot be met waits. Jobs that have run come before those that have not: the slots of a task manager that
failed are not given to a new job when it is back. Otherwise requests are served in order of arrival, and one that does
not fit blocks no other, so that a job that is too large for the cluster never stops another.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import assert_never

from lockgate_common.amounts import counted

REPORT_MS = 100
"""Between two SlotsMissing of one request: with a takeover thousands of task managers register within a second."""


@dataclass(frozen=True, slots=True)
class SlotOffer:
    """One slot, granted to one job until it releases it or requests again."""

    task_manager_id: str
    exchange_address: str  # host:port
    incarnation: str = ""  # of its process


@dataclass(frozen=True, slots=True)
class RunningAttempt:
    """An attempt that a new leader may adopt, and the number of slots that it takes on one task manager."""

    job_key: str
    attempt: int
    slots: int


@dataclass(frozen=True, slots=True)
class TaskManagerAdded:
    """A task manager has registered. The same id again replaces the earlier entry; held slots of it stay held.

    running: what it runs; of no account for jobs that hold slots already.
    """

    task_manager_id: str
    exchange_address: str
    slots: int
    incarnation: str = ""
    running: tuple[RunningAttempt, ...] = ()


@dataclass(frozen=True, slots=True)
class TaskManagerRemoved:
    """A task manager is lost, and all its slots."""

    task_manager_id: str


@dataclass(frozen=True, slots=True)
class TaskManagerEnded:
    """The process of a task manager that has not registered with this leader has ended: it will not."""

    task_manager_id: str


@dataclass(frozen=True, slots=True)
class RequestSlots:
    """A job wants `count` slots; replaces its slots and its previous request.

    request: rises; returned in the answer. preferred: the task manager wanted for slot i, best effort, "" for any;
    empty for a job that has never run. grace_ms: how long to wait for preferred task managers that are not registered
    yet. avoided: task managers whose slots are used only by slots that prefer them, as long as others have any.
    running_attempt: may be adopted where it still runs, 0 for none; running_grace_ms: how long to wait for them
    instead, and again for each that comes, unless one that is registered does not run it (any more). addresses: (task
    manager id, exchange address) of preferred ones; one that refuses connections is not waited for. keeps: slots in
    which subtasks run on; the job holds all it has until the request is met, and these get their places before others.
    running_since: the earliest attempt in which something of running_attempt began; 0: all in itself.
    """

    job_key: str
    request: int
    count: int
    preferred: tuple[str, ...] = ()
    grace_ms: int = 0
    avoided: tuple[str, ...] = ()
    running_attempt: int = 0
    running_grace_ms: int = 0
    addresses: tuple[tuple[str, str], ...] = ()
    keeps: tuple[int, ...] = ()
    running_since: int = 0


@dataclass(frozen=True, slots=True)
class AttemptEnded:
    """An attempt that a task manager still ran has ended there, or belongs to no job that this leader knows."""

    task_manager_id: str
    job_key: str
    attempt: int


@dataclass(frozen=True, slots=True)
class ReleaseSlots:
    """A job releases all its slots and withdraws its request."""

    job_key: str


@dataclass(frozen=True, slots=True)
class TimePassed:
    """A grace period may have ended."""


SlotEvent = (
    TaskManagerAdded | TaskManagerRemoved | TaskManagerEnded | RequestSlots | ReleaseSlots | AttemptEnded | TimePassed
)


@dataclass(frozen=True, slots=True)
class SlotsOffered:
    """The job holds these slots now; slot i is for subtask i of every vertex. Stale requests are ignored."""

    job_key: str
    request: int
    slots: tuple[SlotOffer, ...]


@dataclass(frozen=True, slots=True)
class SlotsMissing:
    """The job has to wait; repeated when the numbers change, at most each REPORT_MS. Display only."""

    job_key: str
    request: int
    free_slots: int
    task_managers: int


@dataclass(frozen=True, slots=True)
class WakePool:
    """Send TimePassed at this monotonic time. Replaces the previous request."""

    at_ms: int


SlotEffect = SlotsOffered | SlotsMissing | WakePool


@dataclass(frozen=True, slots=True)
class SlotCount:
    """The slots of one task manager."""

    task_manager_id: str
    exchange_address: str
    slots: int
    free_slots: int


@dataclass(frozen=True, slots=True)
class Spare:
    """A task manager with free slots, and their number."""

    task_manager_id: str
    exchange_address: str  # host:port
    slots: int


@dataclass(slots=True)
class _Waiting:
    request: RequestSlots
    grace_until_ms: int
    attempt_until_ms: int
    wanted: frozenset[str]  # preferred task managers
    absent: set[str] = field(default_factory=set)  # those of them that may still register
    doubtful: set[str] = field(default_factory=set)  # those that are, without a claim of the attempt
    is_attempt_over: bool = False  # it cannot go on, whichever task manager registers
    reported: tuple[int, int] | None = None
    report_at_ms: int = 0  # before that, no other numbers

    @property
    def until_ms(self) -> int:
        """When it need not wait for its own task managers any more: sooner if its attempt certainly cannot go on."""
        return self.grace_until_ms if self.doubtful or self.is_attempt_over else self.attempt_until_ms

    def came(self, name: str, now_ms: int) -> None:
        """A task manager registers. While they come, one after the other, the rest are on their way as well."""
        if name in self.absent:
            self.attempt_until_ms = max(self.attempt_until_ms, now_ms + self.request.running_grace_ms)


@dataclass(slots=True)
class _TaskManager:
    address: str
    incarnation: str
    slots: int
    held: dict[str, int] = field(default_factory=dict)  # job key to number of slots
    claims: dict[str, RunningAttempt] = field(default_factory=dict)  # by job key, of jobs that hold none

    @property
    def free(self) -> int:
        taken = sum(self.held.values()) + sum(claim.slots for claim in self.claims.values())
        return max(0, self.slots - taken)


class SlotPool:
    """All slots of the task managers that are registered with this leader. Pure.

    Sums over all task managers are kept: a registration costs the same in a large cluster.
    """

    def __init__(self) -> None:
        self._task_managers: dict[str, _TaskManager] = {}
        self._waiting: dict[str, _Waiting] = {}
        self._free = 0
        self._held: dict[str, dict[str, int]] = {}  # by job key: task manager id to number of slots
        self._claims: dict[str, dict[str, int]] = {}  # the same of claims
        self._claimed: dict[str, int] = {}  # by job key: the sum of its claims

    def handle(self, event: SlotEvent, now_ms: int) -> list[SlotEffect]:
        """The one entrance. Returns grants and shortages, in the order in which requests are served."""
        match event:
            case TaskManagerAdded(name, address, slots, incarnation, running):
                known = self._task_managers.get(name)
                held = known.held if known is not None else {}
                claims = self._claims_of(running)
                for waiting in self._waiting.values():
                    waiting.came(name, now_ms)
                self._enter(name, _TaskManager(address, incarnation, slots, held, claims))
            case TaskManagerRemoved(name):
                self._enter(name, None)
                self._end_attempts_on(name)
            case TaskManagerEnded(name):
                if name not in self._task_managers:
                    for waiting in self._end_attempts_on(name):
                        waiting.absent.discard(name)
            case ReleaseSlots(job_key):
                self._forget(job_key)
                self._drop_claims(job_key)
            case RequestSlots():
                self._request(event, now_ms)
            case AttemptEnded(name, job_key, attempt):
                task_manager = self._task_managers.get(name)
                claim = task_manager.claims.get(job_key) if task_manager is not None else None
                if claim is not None and claim.attempt == attempt:
                    self._leave(name, job_key)
            case TimePassed():
                pass
            case _:
                assert_never(event)
        return self._serve(now_ms)

    def _claims_of(self, running: Sequence[RunningAttempt]) -> dict[str, RunningAttempt]:
        """By job key. A job of which a part was restarted runs in several attempts, the newest one last."""
        claims: dict[str, RunningAttempt] = {}
        for claim in running:
            if not self._held.get(claim.job_key):
                earlier = claims.get(claim.job_key)
                claims[claim.job_key] = replace(claim, slots=claim.slots + earlier.slots) if earlier else claim
        return claims

    def _request(self, event: RequestSlots, now_ms: int) -> None:
        if not event.keeps:
            self._forget(event.job_key)
        until = (now_ms + event.grace_ms, now_ms + max(event.grace_ms, event.running_grace_ms))
        self._waiting[event.job_key] = waiting = _Waiting(event, *until, frozenset(event.preferred) - {""})
        for name in waiting.wanted:
            self._note(name, waiting)

    def task_managers(self) -> tuple[SlotCount, ...]:
        """The slots of every registered task manager, by id."""
        return tuple(
            SlotCount(name, task_manager.address, task_manager.slots, task_manager.free)
            for name, task_manager in sorted(self._task_managers.items())
        )

    @property
    def free_slots(self) -> int:
        """Slots that no job holds."""
        return self._free

    def free_on(self, task_manager_id: str) -> int:
        """Free slots of one task manager; 0 for one that is not registered."""
        known = self._task_managers.get(task_manager_id)
        return known.free if known is not None else 0

    def spares(self, job_key: str) -> tuple[Spare, ...]:
        """Task managers with free slots that the job would get if it requested its slots again with some of these.

        Empty when the slots that it releases for a moment would go to a job that waits.
        """
        within_reach = self.free_slots + sum(self.held_by(job_key).values())
        if any(waiting.request.count <= within_reach for key, waiting in self._waiting.items() if key != job_key):
            return ()
        return tuple(
            Spare(name, task_manager.address, task_manager.free)
            for name, task_manager in sorted(self._task_managers.items())
            if task_manager.free > 0
        )

    def held_by(self, job_key: str) -> dict[str, int]:
        """Task manager id to the number of slots that the job holds there."""
        return dict(self._held.get(job_key, {}))

    def _enter(self, name: str, task_manager: _TaskManager | None) -> None:
        """Replaces the entry of a task manager, or removes it (None), and keeps the sums."""
        known = self._task_managers.get(name)
        if known is not None:
            self._free -= known.free
            for job_key in known.held:
                del self._held[job_key][name]
            for job_key in known.claims:
                self._claimed[job_key] -= self._claims[job_key].pop(name)
        if task_manager is not None:
            self._task_managers[name] = task_manager
            self._free += task_manager.free
            for job_key, count in task_manager.held.items():
                self._held.setdefault(job_key, {})[name] = count
            for job_key, claim in task_manager.claims.items():
                self._claims.setdefault(job_key, {})[name] = claim.slots
                self._claimed[job_key] = self._claimed.get(job_key, 0) + claim.slots
        else:
            self._task_managers.pop(name, None)
        for waiting in self._waiting.values():
            if name in waiting.wanted:
                self._note(name, waiting)

    def _note(self, name: str, waiting: _Waiting) -> None:
        """Notes whether a preferred task manager is registered, and whether the job's attempt still runs there."""
        known, request = self._task_managers.get(name), waiting.request
        waiting.absent.discard(name)
        waiting.doubtful.discard(name)
        if known is None:
            waiting.absent.add(name)
            return
        claim = known.claims.get(request.job_key)
        oldest = request.running_since or request.running_attempt
        if claim is None or not oldest <= claim.attempt <= request.running_attempt:
            waiting.doubtful.add(name)

    def _leave(self, name: str, job_key: str) -> None:
        """The job neither holds nor claims slots of this task manager any more."""
        known = self._task_managers[name]
        held = {key: count for key, count in known.held.items() if key != job_key}
        claims = {key: claim for key, claim in known.claims.items() if key != job_key}
        self._enter(name, replace(known, held=held, claims=claims))

    def _end_attempts_on(self, task_manager_id: str) -> list[_Waiting]:
        """The jobs that prefer it: their attempts cannot continue, whichever task manager registers."""
        found = [waiting for waiting in self._waiting.values() if task_manager_id in waiting.wanted]
        for waiting in found:
            waiting.is_attempt_over = True
        return found

    def _forget(self, job_key: str) -> None:
        """Withdraws its request, and releases its slots. A job that holds slots has no claims."""
        self._waiting.pop(job_key, None)
        for name in self.held_by(job_key):
            self._leave(name, job_key)
        self._held.pop(job_key, None)

    def _drop_claims(self, job_key: str) -> None:
        for name in self._claims.pop(job_key, ()):
            known = self._task_managers[name]
            self._free -= known.free
            del known.claims[job_key]
            self._free += known.free
        self._claimed.pop(job_key, None)

    def _serve(self, now_ms: int) -> list[SlotEffect]:
        effects: list[SlotEffect] = []
        wakes: list[int] = []
        kept = 0  # for jobs that have run and wait for their own task managers
        for job_key, waiting in sorted(self._waiting.items(), key=lambda item: not item[1].request.preferred):
            request, claimed = waiting.request, self._claimed.get(job_key, 0)
            own = claimed + (sum(self.held_by(job_key).values()) if request.keeps else 0)
            free = self.free_slots + own if request.preferred else max(0, self.free_slots - kept)
            if free < request.count:
                numbers = (free, len(self._task_managers))
                if waiting.reported != numbers and now_ms < waiting.report_at_ms:
                    wakes.append(waiting.report_at_ms)
                elif waiting.reported != numbers:
                    waiting.reported, waiting.report_at_ms = numbers, now_ms + REPORT_MS
                    effects.append(SlotsMissing(job_key, request.request, *numbers))
            elif now_ms >= waiting.until_ms or not waiting.absent:
                self._forget(job_key)
                self._drop_claims(job_key)
                effects.append(SlotsOffered(job_key, request.request, self._allocate(request)))
            else:
                kept += max(0, request.count - own)
        wakes += [waiting.until_ms for waiting in self._waiting.values() if waiting.until_ms > now_ms]
        if wakes:
            effects.append(WakePool(min(wakes)))
        return effects

    def awaits(self, task_manager_id: str, now_ms: int) -> bool:
        """Whether a job waits for this task manager to register, and for nothing else."""
        found = self._waiting.values()
        return any(task_manager_id in waiting.absent and now_ms < waiting.until_ms for waiting in found)

    def _allocate(self, request: RequestSlots) -> tuple[SlotOffer, ...]:
        """Slots for one request that fits: the preferred places first, the rest spread evenly."""
        chosen: list[str | None] = [None] * request.count
        kept = frozenset(request.keeps)  # first: an heir of a lost place may be a task manager where others run on
        wanted = sorted(enumerate(request.preferred[: request.count]), key=lambda item: item[0] not in kept)
        for index, name in wanted:
            if name in self._task_managers and self._task_managers[name].free:
                chosen[index] = self._hold(name, request.job_key)
        spread = self._spread(request)
        places = [name if name is not None else next(spread) for name in chosen]
        offers = {
            name: SlotOffer(name, self._task_managers[name].address, self._task_managers[name].incarnation)
            for name in dict.fromkeys(places)
        }
        return tuple(offers[name] for name in places)

    def _spread(self, request: RequestSlots) -> Iterator[str]:
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
        known = self._task_managers[name]
        known.held[job_key] = self._held.setdefault(job_key, {})[name] = known.held.get(job_key, 0) + 1
        self._free -= 1  # only free slots are taken
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
        f"The job needs {counted(slots_needed, 'slot')} (its highest parallelism), but the cluster has {total} in "
        f"{counted(len(task_manager_slots), 'task manager')}: lower the parallelism, or start task managers with more "
        "slots."
    )
