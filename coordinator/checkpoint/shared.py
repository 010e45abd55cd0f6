"""Files that several snapshots of a job refer to, counted: one goes when the last snapshot that refers to it goes."""

from __future__ import annotations

from collections import Counter


class SharedFiles:
    """Names in the run's `shared` folder, by snapshot. Pure."""

    def __init__(self) -> None:
        self._of: dict[int, frozenset[str]] = {}
        self._count: Counter[str] = Counter()
        self._unknown: set[int] = set()

    def add(self, checkpoint_id: int, files: frozenset[str] | None) -> None:
        """A snapshot is kept that refers to these files. None: nobody has read what it refers to."""
        if files is None:
            self._unknown.add(checkpoint_id)
            return
        self._of[checkpoint_id] = files
        self._count.update(files)

    def remove(self, checkpoint_id: int) -> tuple[str, ...]:
        """A snapshot goes. Returns the files that none is left to refer to, sorted.

        None of them as long as a snapshot is kept that may refer to any file; what is left behind then is found by
        whoever looks for leftovers.
        """
        self._unknown.discard(checkpoint_id)
        files = self._of.pop(checkpoint_id, frozenset())
        self._count.subtract(files)
        free = tuple(sorted(name for name in files if not self._count[name]))
        for name in free:
            del self._count[name]
        return () if self._unknown else free
