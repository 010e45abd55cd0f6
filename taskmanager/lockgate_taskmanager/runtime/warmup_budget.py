"""How much a warm-up with small micro-batches may take, and how fast any warm-up may go on."""

from __future__ import annotations

BATCHES = 400  # after 350 the JVM has compiled what takes its time
MOST_S = 60.0  # on a slow or busy machine
SHARE = 0.5  # of the time
SHARE_BESIDE_A_JOB = 0.1  # which may run on this machine, in another task manager


class Budget:
    """What is left of the micro-batches of a warm-up."""

    def __init__(self, batches: int = BATCHES, seconds: float = MOST_S) -> None:
        self._batches, self._seconds = batches, seconds

    @property
    def is_used_up(self) -> bool:
        """True when the warm-up is over."""
        return self._batches <= 0 or self._seconds <= 0

    def spend(self, took_s: float) -> None:
        """Counts a micro-batch that took so many seconds."""
        self._batches -= 1
        self._seconds -= took_s

    def close(self) -> None:
        """No more of them."""
        self._batches = 0


def rest_s(took_s: float, share: float, is_beside_a_job: bool) -> float:
    """Seconds until the next step of a warm-up, after one that took so many.

    share: of the time that it may take while the cluster has no job, above 0 to 1.
    """
    return took_s * (1 / (min(share, SHARE_BESIDE_A_JOB) if is_beside_a_job else share) - 1)
