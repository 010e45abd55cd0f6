"""The peers of one subtask that are lost while it runs on, in a job that may restart in part.

The leader says which of them start again (AwaitPart), and in which attempt (RejoinPart). Without its word the loss of a
channel ends the subtask after a moment, as in any other job: then the task manager at the other end is there, and only
the connection is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from threading import Lock, Timer

GRACE_S = 2.0
"""The leader notices the end of a process at once, or after a second if its address still answers."""


@dataclass(frozen=True, slots=True)
class _Awaited:
    """token: of the leader whose word it is. part: the attempt in which it starts again; None: not known yet."""

    token: int
    part: int | None = None


class AbsentPeers:
    """Thread safe. give_up: called with a sentence, from any thread, when a peer stays away without the leader's word.

    token: of the present leader; the word of an earlier one does not count, as it may be about an attempt that was
    never made. grace_s: how long the word may take.
    """

    def __init__(
        self, give_up: Callable[[str], None], token: Callable[[], int] = lambda: 0, grace_s: float = GRACE_S
    ) -> None:
        self._give_up, self._token, self._grace_s = give_up, token, grace_s
        self._lock = Lock()
        self._awaited: dict[int, _Awaited] = {}
        self._timers: set[Timer] = set()
        self._is_closed = False

    def lost(self, slot: int, attempt: int, reason: str, is_back: Callable[[], bool]) -> None:
        """The channel to or from the subtask in this slot broke.

        attempt: of that subtask; is_back: whether another attempt of it has come.
        """
        with self._lock:
            if self._is_closed or self._is_awaited(slot, attempt):
                return
            timer = Timer(self._grace_s, lambda: self._decide(timer, slot, attempt, reason, is_back))
            timer.daemon = True
            self._timers.add(timer)
        timer.start()

    def await_part(self, slots: Collection[int], token: int) -> None:
        """The word of the leader with this token: the subtasks in these slots start again."""
        with self._lock:
            self._awaited.update((slot, _Awaited(token)) for slot in slots)

    def starts(self, slots: Collection[int], token: int, part: int) -> None:
        """They start in the attempt `part`, whose own loss is another one."""
        with self._lock:
            self._awaited.update((slot, _Awaited(token, part)) for slot in slots)

    def close(self) -> None:
        """The subtask ends."""
        with self._lock:
            self._is_closed = True
            timers, self._timers = self._timers, set()
        for timer in timers:
            timer.cancel()

    def _is_awaited(self, slot: int, attempt: int) -> bool:
        known = self._awaited.get(slot)
        return known is not None and known.token >= self._token() and (known.part is None or attempt < known.part)

    def _decide(self, timer: Timer, slot: int, attempt: int, reason: str, is_back: Callable[[], bool]) -> None:
        with self._lock:
            self._timers.discard(timer)
            is_over = self._is_closed or self._is_awaited(slot, attempt)
        if not is_over and not is_back():
            self._give_up(reason)
