"""When to check whether a file has grown. Pure: time is passed in as monotonic milliseconds.

The longer a file has not grown, the less often it is checked: again after a tenth of that time. So a file that is
complete costs little, and a poll checks few files however many there are. Files that arrived together do not stay in
step: each shortens its pauses by a different share.
"""

from __future__ import annotations

from heapq import heappop, heappush
from zlib import crc32

LONGEST_MS = 600_000
"""Growth is never detected later than this."""


AT_ONCE = 10_000
"""The maximum number of files checked in one poll: more would delay reading and barriers."""


class Growth:
    """The files that may grow, and when to check each of them next."""

    def __init__(self, poll_ms: int) -> None:
        """poll_ms: between two checks of a file that grows."""
        self._poll_ms = poll_ms
        self._grown_ms: dict[str, int] = {}
        self._due: list[tuple[int, str]] = []

    def add(self, name: str) -> None:
        """A file that is checked in the next poll, and then from time to time."""
        heappush(self._due, (-1, name))

    def due(self, now_ms: int) -> list[str]:
        """The files to check now; report the result for each with `looked`."""
        names: list[str] = []
        while self.is_due(now_ms) and len(names) < AT_ONCE:
            names.append(heappop(self._due)[1])
        return names

    def is_due(self, now_ms: int) -> bool:
        """Whether a file is to be checked."""
        return bool(self._due) and self._due[0][0] <= now_ms

    def looked(self, name: str, has_grown: bool, now_ms: int, quiet_ms: int = 0) -> None:
        """A file was checked. quiet_ms: for how long it had not grown at the first check."""
        if has_grown:
            self._grown_ms[name] = now_ms
        quiet_ms = now_ms - self._grown_ms.setdefault(name, now_ms - max(0, quiet_ms))
        pause_ms = min(quiet_ms // 10, LONGEST_MS)
        pause_ms -= pause_ms * (crc32(name.encode()) % 512) // 1024
        heappush(self._due, (now_ms + max(pause_ms, self._poll_ms), name))
