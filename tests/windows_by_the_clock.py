"""What holds for windows by processing time, whatever they keep of their records: see WindowsByTheClock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from lockgate_taskmanager.task.watermarks import MAX_WATERMARK

from tests.state_homes import GROUPS

NOON = 1_800_000_000_000  # a multiple of 20


def hash_of(key: str) -> int:
    """Of a key of one letter."""
    return ord(key) * 0x9E3779B97F4A7C15 % 2**63


def found_in(store: Any, first: pa.Table | None) -> list[dict[str, Any]]:
    """All that has ended, portion by portion."""
    portions = [] if first is None else [first]
    while store.has_more:
        portions.append(store.go_on())
    return [row for portion in portions for row in portion.to_pylist()]


@dataclass(frozen=True, slots=True)
class WindowsByTheClock:
    """Stores with windows of some kinds of 10 and 20 ms. Times are milliseconds after NOON.

    records: one for each letter, which is its key; results: what has ended, as sorted (key, start, end, content)
    """

    records: Callable[[str], pa.Table]
    results: Callable[[Any, pa.Table | None], list[Any]]

    def at(self, store: Any, ms: int) -> list[Any]:
        return self.results(store, store.tick(NOON + ms))

    def end(self, store: Any) -> list[Any]:
        """At the end of the input."""
        return self.results(store, store.advance(MAX_WATERMARK))

    def while_it_wakes(self, store: Any) -> list[Any]:
        found = []
        while (wakes := store.wakes_at()) is not None:
            found += self.results(store, store.tick(wakes))
        return found

    def check_event_time(self, store: Any, expected: list[Any]) -> None:
        """It has no effect, but its end ends all windows. expected: those of a record for each of a and b."""
        self.at(store, 5)
        store.merge(self.records("ab"))
        assert self.results(store, store.advance(NOON + 1_000_000)) == []
        assert self.end(store) == sorted(expected)
        assert store.wakes_at() is None
        assert self.end(store) == []

    def check_restore(self, windows: Any) -> Any:
        """A window ends once. Returns a store in which all have ended, at 100."""
        before = windows.fresh()
        self.at(before, 5)
        before.merge(self.records("aab"))
        kept = windows.stored(before)
        ended = self.at(before, 40)
        assert {row[0] for row in ended} == {"a", "b"}
        over = windows.stored(before)
        again, ended_before = windows.restored(kept), windows.restored(over)
        wakes = again.wakes_at()
        assert wakes is not None, "without a record"
        assert wakes <= NOON + 15
        assert self.at(again, 40) == ended, "again only from a snapshot in which it had not ended"
        assert self.at(ended_before, 100) == []
        return ended_before

    def check_rescale(self, windows: Any) -> None:
        """Divided and put together: nothing is lost and nothing comes twice."""
        before = windows.fresh()
        self.at(before, 5)
        before.merge(self.records("abcdefgh" * 3))
        kept = windows.stored(before)
        parts = [windows.restored(kept, groups=groups) for groups in (range(7), range(7, GROUPS))]
        first = self.at(parts[0], 30)  # is further on than the other
        whole = windows.restored(*(windows.stored(part) for part in parts))
        rest = self.at(whole, 30)
        assert not {row[0] for row in first} & {row[0] for row in rest}
        assert sorted(first + rest) == self.at(before, 30)
