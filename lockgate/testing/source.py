"""The contract of a source: the same records from every offset, for any ranges and any reader."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from lockgate.connectors import CustomSource
from lockgate.testing.travel import pickled_copy, require

Row = dict[str, Any]
_LIMITS = (1, 7, 1000)


def check_source(make: Callable[[], CustomSource], *, rows: int = 500, offsets: int = 10, seed: int = 1) -> None:
    """Reads every split repeatedly, from many offsets, in ranges of several sizes, each time with a new copy.

    make: returns a new object; its input must not change meanwhile, and must have at least two rows in some split.
    rows: how many of each split are compared; offsets: how many of each split are tried, drawn with `seed`. Raises
    AssertionError with one sentence that says what would go wrong in a job.
    """
    name = type(make()).__name__
    require(bool(make().schema.strip()), f"{name} has no schema, such as schema = 'id BIGINT, city STRING'")
    with _opened(make()) as first, _opened(make()) as second:
        splits = dict(first.splits())
        again = dict(second.splits())
    require(bool(splits), f"{name}.splits() names no split, so there is nothing to check")
    require(
        all(again.get(split) == end for split, end in splits.items()),
        f"{name}.splits() gave {splits}, and then {again}: a split must keep its name and its end",
    )
    choice = random.Random(seed)
    longest = max(_check_split(make, split, end, rows, offsets, choice) for split, end in splits.items())
    require(longest > 1, f"no split of {name} has two rows or more, so replaying it cannot be checked")


def _check_split(
    make: Callable[[], CustomSource], split: str, end: int | None, most: int, offsets: int, choice: random.Random
) -> int:
    """Returns how many rows were compared."""
    with _opened(make()) as source:
        whole = list(_walk(source, split, 0, end, 1, most))
    records = [row for _, found in whole for row in found]
    starts = [start for start, _ in whole]
    before = dict(zip(starts, _counts(whole), strict=True))
    for start in choice.sample(starts, min(offsets, len(starts))):
        for limit in _LIMITS:
            _compare(make, split, start, end, limit, records[before[start] :])
    return len(records)


def _compare(
    make: Callable[[], CustomSource], split: str, start: int, end: int | None, limit: int, wanted: list[Row]
) -> None:
    with _opened(make()) as source:
        ranges = _walk(source, split, start, end, limit, len(wanted))
        found = [row for _, rows in ranges for row in rows][: len(wanted)]
    if found == wanted:
        return
    place = next((n for n, pair in enumerate(zip(found, wanted, strict=False)) if pair[0] != pair[1]), len(found))
    difference = f"row {place + 1} is {found[place]}" if place < len(found) else f"there are {len(found)} rows"
    once = f"was {wanted[place]}" if place < len(wanted) else f"were {len(wanted)}"
    raise AssertionError(
        f"{type(make()).__name__} cannot be replayed: from offset {start} of split {split!r}, planned with limit"
        f" {limit}, {difference}; read from 0 with limit 1 it {once}"
    )


def _walk(
    source: CustomSource, split: str, start: int, end: int | None, limit: int, most: int
) -> Iterator[tuple[int, list[Row]]]:
    """(offset, rows of the range that begins there), until the split's end or `most` rows."""
    name, count = type(source).__name__, 0
    while count < most and start != end:
        planned = source.plan(split, start, limit)
        if planned is None or planned == start:
            return
        require(
            isinstance(planned, int) and planned > start,
            f"{name}.plan({split!r}, {start}, {limit}) returned {planned!r}: a range does not end before it begins",
        )
        stop = planned if end is None else min(planned, end)
        rows = _rows(name, source.read(split, start, stop))
        yield start, rows
        count += len(rows)
        start = stop


def _rows(name: str, found: Any) -> list[Row]:
    if hasattr(found, "toArrow"):  # a Spark DataFrame
        found = found.toArrow()
    if hasattr(found, "to_pylist"):
        listed: list[Row] = found.to_pylist()
        return listed
    require(hasattr(found, "to_dict"), f"{name}.read() returned a {type(found).__name__}, not a table or DataFrame")
    records: list[Row] = found.to_dict("records")
    return records


def _counts(ranges: list[tuple[int, list[Row]]]) -> list[int]:
    """Rows before each range."""
    counts = [0]
    for _, rows in ranges[:-1]:
        counts.append(counts[-1] + len(rows))
    return counts[: len(ranges)]


@contextmanager
def _opened(source: CustomSource) -> Iterator[CustomSource]:
    copy = pickled_copy(source)
    copy.open()
    try:
        yield copy
    finally:
        copy.close()
