"""How much a subtask takes out of its input at a time when a barrier must not wait long for the batch to end."""

from __future__ import annotations

TARGET_MS = 200
LEAST_BYTES = 64 * 1024
SMOOTHING = 0.5


class BatchPace:
    """Pure. Sizes batches so that one takes about TARGET_MS, from LEAST_BYTES up to `most_bytes`."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._limit = float(LEAST_BYTES)

    @property
    def limit_bytes(self) -> int:
        """Take about so much next time."""
        return int(self._limit)

    def processed(self, size_bytes: int, took_ms: float) -> None:
        """A batch of `size_bytes` took so long. A small one says little about what a large one would have taken."""
        fits = size_bytes * TARGET_MS / max(took_ms, 1.0)
        wanted = fits if fits < self._limit else max(self._limit, min(fits, self._limit * 2))
        smooth = self._limit + SMOOTHING * (wanted - self._limit)
        self._limit = min(max(smooth, LEAST_BYTES), self._most)
