"""How far event time has come in the splits of one source subtask. Pure: time comes in as monotonic milliseconds.

A split's mark is the highest event time read from it; its watermark lies `out_of_orderness_ms` + 1 below. The subtask's
is the least over the splits that still have or may get records. A split from which nothing was read yet holds it back
altogether: what is older there would come too late otherwise. A split is idle when there has been nothing to read in it
for `idle_after_ms`; one that only waits for its turn is not.

A subtask that got no split at all has nothing to hold event time back for, and is idle until it gets one. But only once
the leader has dealt: before that its splits may still be on their way, and the others must not run ahead. It has not
while there is no split for anybody; then a subtask waits as long as `idle_after_ms` says.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from lockgate_proto.messages import SplitState, Watermark

from taskmanager.task.watermarks import MIN_WATERMARK


class SplitWatermarks:
    """See the module. The result never falls."""

    def __init__(self, out_of_orderness_ms: int, idle_after_ms: int) -> None:
        """idle_after_ms: 0 means that no split is ever idle."""
        self._bound_ms = out_of_orderness_ms + 1
        self._idle_after_ms = idle_after_ms
        self._known: set[str] = set()
        self._marks: dict[str, int] = {}
        self._last_read_ms: dict[str, int | None] = {}  # of every open split; None: the clock starts at the next look
        self._ended_mark: int | None = None
        self._none_open_since_ms: int | None = None
        self._is_dealt = False
        self._told = Watermark(MIN_WATERMARK)

    def assign(self, splits: Sequence[SplitState]) -> None:
        """Splits that may be read from now on, with their marks where a snapshot knows them."""
        for split in splits:
            if split.split in self._known:
                continue  # said twice
            self._known.add(split.split)
            if split.max_event_time_ms is not None:
                self._raise_mark(split.split, split.max_event_time_ms)
            if split.end < 0 or split.offset < split.end:
                self._last_read_ms.setdefault(split.split, None)
            else:
                self._end(split.split)

    def dealt(self) -> None:
        """The leader has said which splits there are for this subtask, if any."""
        self._is_dealt = True

    def read(self, split: str, ended: Sequence[str], max_event_time_ms: int | None, now_ms: int) -> None:
        """A batch was read. split: the only one in it that goes on, empty for none; ended: those read to their ends.

        max_event_time_ms: the highest in the batch, None where it had no record with a time.
        """
        whose = split or (ended[-1] if ended else "")
        if whose and max_event_time_ms is not None:
            self._raise_mark(whose, max_event_time_ms)
        if split:
            self._last_read_ms[split] = now_ms
        for one in ended:
            self._end(one)

    def marked(self, splits: Sequence[SplitState]) -> tuple[SplitState, ...]:
        """The splits with their marks, for a snapshot."""
        return tuple(replace(split, max_event_time_ms=self._marks.get(split.split)) for split in splits)

    def news(self, now_ms: int, backlog: Callable[[], Collection[str]]) -> Watermark | None:
        """How far event time has come, None when that is what was said last.

        backlog: the splits in which records are waiting; asked for only when one may be idle.
        """
        active = self._active(now_ms, backlog)
        if active:
            time = min(self._watermark(self._marks.get(one)) for one in active)
        else:
            marks = [self._marks.get(one) for one in self._last_read_ms]
            time = max(map(self._watermark, [*marks, self._ended_mark]))
        is_idle = not active and (bool(self._last_read_ms) or self._is_waiting_idle(now_ms))
        told = Watermark(max(time, self._told.event_time_ms), idle=is_idle)
        if told == self._told:
            return None
        self._told = told
        return told

    def _active(self, now_ms: int, backlog: Callable[[], Collection[str]]) -> Collection[str]:
        for split, last_ms in self._last_read_ms.items():
            if last_ms is None:
                self._last_read_ms[split] = now_ms
        if not self._idle_after_ms:
            return self._last_read_ms.keys()
        quiet = {
            split
            for split, last_ms in self._last_read_ms.items()
            if last_ms is not None and now_ms - last_ms >= self._idle_after_ms
        }
        for split in quiet & set(backlog()) if quiet else ():
            quiet.discard(split)
            self._last_read_ms[split] = now_ms  # it waits for its turn
        return self._last_read_ms.keys() - quiet

    def _is_waiting_idle(self, now_ms: int) -> bool:
        """No split is open; true once that has been so for long, or where there is none for this subtask."""
        if not self._known and self._is_dealt:
            return True
        if self._none_open_since_ms is None:
            self._none_open_since_ms = now_ms
        return bool(self._idle_after_ms) and now_ms - self._none_open_since_ms >= self._idle_after_ms

    def _end(self, split: str) -> None:
        self._last_read_ms.pop(split, None)
        self._none_open_since_ms = None
        mark = self._marks.get(split)
        if mark is not None and (self._ended_mark is None or mark > self._ended_mark):
            self._ended_mark = mark

    def _raise_mark(self, split: str, mark: int) -> None:
        self._marks[split] = max(mark, self._marks.get(split, mark))

    def _watermark(self, mark: int | None) -> int:
        return MIN_WATERMARK if mark is None else mark - self._bound_ms
