"""Samples of one scrape."""

from __future__ import annotations

from collections.abc import Iterator

from lockgate_common.metrics.family import Family, Histogram


class Samples:
    """What one scrape finds. A family without samples is not shown."""

    def __init__(self) -> None:
        self._values: dict[Family, list[tuple[tuple[str, ...], float | Histogram]]] = {}

    def add(self, family: Family, value: float, *labels: object) -> None:
        """A value of a counter or gauge. labels: their values, as many as the family has."""
        self._add(family, value, labels)

    def add_histogram(self, family: Family, value: Histogram, *labels: object) -> None:
        """As `add`, for a histogram."""
        self._add(family, value, labels)

    def _add(self, family: Family, value: float | Histogram, labels: tuple[object, ...]) -> None:
        assert len(labels) == len(family.labels), family.name
        self._values.setdefault(family, []).append((tuple(map(str, labels)), value))

    def __iter__(self) -> Iterator[tuple[Family, list[tuple[tuple[str, ...], float | Histogram]]]]:
        return iter(self._values.items())
