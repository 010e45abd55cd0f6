"""Records per second, out of totals that are read now and then."""

from __future__ import annotations

_LEAST_S = 0.5  # between two totals: over less time a rate jumps


class Rates:
    """Of several named totals."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[float, int]] = {}
        self._rates: dict[str, float] = {}

    def add(self, name: str, total: int, now_s: float) -> float:
        """The rate with this total; 0 for the first one, and when the total has fallen since: its job has restarted."""
        at_s, before = self._last.setdefault(name, (now_s, total))
        if now_s - at_s >= _LEAST_S:
            self._rates[name] = max(0.0, (total - before) / (now_s - at_s))
            self._last[name] = (now_s, total)
        return self._rates.get(name, 0.0)
