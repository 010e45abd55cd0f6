"""Every target."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.fuzz import files, records, state
from tests.fuzz.rpcs import open_rpcs
from tests.fuzz.takeover import takeover
from tests.fuzz.target import Target


@contextmanager
def open_targets(folder: Path) -> Iterator[list[Target]]:
    """folder: an empty one of their own."""
    places = [folder / name for name in ("files", "records", "state", "rpcs", "takeover")]
    for place in places:
        place.mkdir(mode=0o700)
    readers = [*files.targets(places[0]), *records.targets(places[1]), *state.targets(places[2])]
    with open_rpcs(places[3]) as rpcs:
        yield [*readers, *rpcs, takeover(places[4])]
