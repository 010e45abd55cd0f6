"""How a subtask spends its time: it works, waits for input, or waits until what it has put out is taken."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum


class Share(Enum):
    """What a subtask does now."""

    BUSY = "busy"
    IDLE = "idle"  # no input; or it holds its channels back until the last barrier has come
    BACKPRESSURED = "backpressured"  # those behind it do not keep up; or a checkpoint has to release what it has read


class TimeShares:
    """The subtask's thread changes it; any thread reads it. Costs about two microseconds for each wait."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._share = Share.BUSY
        self._since_ns = time.monotonic_ns()
        self._spent_ns = dict.fromkeys(Share, 0)

    @contextmanager
    def waits(self, share: Share) -> Iterator[None]:
        """The block waits; its time counts for this share."""
        self._change(share)
        try:
            yield
        finally:
            self._change(Share.BUSY)

    def seconds(self) -> dict[Share, float]:
        """The time since it was made, by share, the present one included."""
        with self._lock:
            spent = dict(self._spent_ns)
            spent[self._share] += time.monotonic_ns() - self._since_ns
        return {share: spent_ns / 1e9 for share, spent_ns in spent.items()}

    def _change(self, share: Share) -> None:
        with self._lock:
            now_ns = time.monotonic_ns()
            self._spent_ns[self._share] += now_ns - self._since_ns
            self._share, self._since_ns = share, now_ns
