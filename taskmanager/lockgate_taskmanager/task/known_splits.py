"""The splits of one source that an attempt knows, on the task manager that lists them.

The leader sends the splits of the restored snapshot once, and then only asks for further ones: a listing costs by what
is new. Requests are numbered, and a request that arrives twice gets the same answer twice: otherwise a split whose
first answer was lost would be known here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from lockgate_proto.messages import DiscoverSplits, SplitState, StateHandle

Found = tuple[tuple[SplitState, ...], bool]
"""The new splits, and whether they are the last ones."""


class KnownSplits(set[str]):
    """Split names. notes: state that the source's lister keeps from one listing to the next, under its own names."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        super().__init__(names)
        self.notes: dict[str, Any] = {}


class SplitListing:
    """Lists the splits of one source vertex in one attempt. Used from one thread at a time."""

    def __init__(self, names_in: Callable[[Sequence[StateHandle]], Iterable[str]]) -> None:
        """names_in: reads the names of splits that are in files of a snapshot; its errors are raised."""
        self._names_in = names_in
        self._known = KnownSplits()
        self._round = 0
        self._answer: Found = ((), False)

    def answer(self, request: DiscoverSplits, look: Callable[[KnownSplits], Found]) -> Found:
        """The answer to `request`. look: lists splits beyond those it is given; its errors are raised."""
        if not request.round:  # an older leader sends all known splits each time
            return look(KnownSplits(request.known))
        if request.round != self._round:
            self._known.update(split.split for split in self._answer[0])
            self._known.update(request.known)
            self._known.update(self._names_in(request.files))
            self._answer = look(self._known)
            self._round = request.round
        return self._answer
