"""Event time progress in the splits of one source subtask. Pure: time is passed in as monotonic milliseconds.

The mark of a split is the highest event time read from it; its watermark lies `out_of_orderness_ms` + 1 below. The
subtask's watermark is the minimum over the splits that may still deliver records. A split from which nothing was read
yet holds it back completely: its records would be late otherwise. A split is idle when it has had nothing to read for
`idle_after_ms`; one that only waits for its turn is not.

A subtask without splits has nothing to hold event time back for, and is idle until it gets one. This applies only once
the splits are assigned: before that, its splits may still be on their way, and the other subtasks must not run ahead.
As long as the source has no split at all, a subtask becomes idle after `idle_after_ms`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from lockgate_proto.messages import SplitState, Watermark

from lockgate_taskmanager.task.watermarks import MIN_WATERMARK


class SplitWatermarks:
    """Marks of all splits, and the watermark that follows from them. It never decreases."""

    def __init__(self, out_of_orderness_ms: int, idle_after_ms: int) -> None:
        """idle_after_ms: 0 means that no split is ever idle."""
        self._bound_ms = out_of_orderness_ms + 1
        self._idle_after_ms = idle_after_ms
        self._known: set[str] = set()
        self._marks: dict[str, int] = {}
        self._last_read_ms: dict[str, int | None] = {}  # of open splits; None: its idle time starts at the next look
        self._idle: set[str] = set()  # the other open splits, possibly very many
        self._highest_mark: int | None = None
        self._none_open_since_ms: int | None = None
        self._is_dealt = False
        self._last = Watermark(MIN_WATERMARK)

    def assign(self, splits: Sequence[SplitState]) -> None:
        """Splits that may be read from now on, with their marks where a snapshot has them."""
        for split in splits:
            if split.split in self._known:
                continue  # assigned twice
            self._known.add(split.split)
            if split.max_event_time_ms is not None:
                self._raise_mark(split.split, split.max_event_time_ms)
            if split.end < 0 or split.offset < split.end:
                self._last_read_ms.setdefault(split.split, None)
            else:
                self._end(split.split)

    def assigned(self) -> None:
        """The leader has said which splits this subtask has, possibly none."""
        self._is_dealt = True

    def read(self, split: str, ended: Sequence[str], max_event_time_ms: int | None, now_ms: int) -> None:
        """A batch was read. split: the only split in it that continues, empty for none; ended: the splits read to their
        ends.

        max_event_time_ms: the highest in the batch, None when no record had a time.
        """
        marked_split = split or (ended[-1] if ended else "")
        if marked_split and max_event_time_ms is not None:
            self._raise_mark(marked_split, max_event_time_ms)
        if split:
            self._idle.discard(split)
            self._last_read_ms[split] = now_ms
        for name in ended:
            self._end(name)

    def marked(self, splits: Sequence[SplitState]) -> tuple[SplitState, ...]:
        """The splits with their marks, for a snapshot."""
        return tuple(replace(split, max_event_time_ms=self._marks.get(split.split)) for split in splits)

    def news(self, now_ms: int, backlog: Callable[[], Collection[str]]) -> Watermark | None:
        """The new watermark, None when it has not changed.

        backlog: the splits with unread records; asked for only when a split may be idle.
        """
        self._separate_idle(now_ms, backlog)
        active = self._last_read_ms.keys()
        if active:
            time = min(self._watermark(self._marks.get(key)) for key in active)
        else:
            time = self._watermark(self._highest_mark)
        is_idle = not active and (bool(self._idle) or self._is_waiting_idle(now_ms))
        watermark = Watermark(max(time, self._last.event_time_ms), idle=is_idle)
        if watermark == self._last:
            return None
        self._last = watermark
        return watermark

    def _separate_idle(self, now_ms: int, backlog: Callable[[], Collection[str]]) -> None:
        """The cost depends on the splits that are not idle, and on those waiting for their turn."""
        for split, last_ms in self._last_read_ms.items():
            if last_ms is None:
                self._last_read_ms[split] = now_ms
        if not self._idle_after_ms:
            return
        quiet = [
            split
            for split, last_ms in self._last_read_ms.items()
            if last_ms is not None and now_ms - last_ms >= self._idle_after_ms
        ]
        for split in quiet:
            del self._last_read_ms[split]
        self._idle.update(quiet)
        for split in backlog() if self._idle else ():
            if split in self._idle:
                self._idle.discard(split)
                self._last_read_ms[split] = now_ms  # waits for its turn

    def _is_waiting_idle(self, now_ms: int) -> bool:
        """No split is open; true once that has lasted for `idle_after_ms`, or when this subtask has been assigned
        none.
        """
        if not self._known and self._is_dealt:
            return True
        if self._none_open_since_ms is None:
            self._none_open_since_ms = now_ms
        return bool(self._idle_after_ms) and now_ms - self._none_open_since_ms >= self._idle_after_ms

    def _end(self, split: str) -> None:
        self._last_read_ms.pop(split, None)
        self._idle.discard(split)
        self._none_open_since_ms = None

    def _raise_mark(self, split: str, mark: int) -> None:
        self._marks[split] = max(mark, self._marks.get(split, mark))
        self._highest_mark = max(mark, mark if self._highest_mark is None else self._highest_mark)

    def _watermark(self, mark: int | None) -> int:
        return MIN_WATERMARK if mark is None else mark - self._bound_ms
