"""Limits the number of open calls of one kind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from grpc import StatusCode

from lockgate_common.serving.refusals import Refused


class CallPlaces:
    """Used on the loop only. what: plural noun for the refusal; setting: the one that raises the limit, "" for none."""

    def __init__(self, limit: int, what: str, setting: str = "") -> None:
        self._limit = limit
        self._what = what
        self._setting = setting
        self.taken = 0

    @contextmanager
    def one(self) -> Iterator[None]:
        """Holds a place while the block runs. Raises Refused when all are taken."""
        if self.taken >= self._limit:
            hint = f" ({self._setting})" if self._setting else "; try again"
            text = f"{self._limit} {self._what}, the limit of this process{hint}"
            raise Refused(StatusCode.RESOURCE_EXHAUSTED, text)
        self.taken += 1
        try:
            yield
        finally:
            self.taken -= 1
