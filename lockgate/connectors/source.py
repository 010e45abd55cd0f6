"""A source of the author's own: `Job.read_from(source)`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any


class CustomSource(ABC):
    """Reads ranges of splits. Pickled once, and used by every subtask of the source in a copy of its own.

    A split is a part of the input that is read in order: a file, a partition, a table. Within it an offset, a whole
    number from 0 on, says how far it is read; what it counts is the source's choice. The offsets are part of every
    snapshot. After a failure reading goes on from an older offset, in ranges that may be cut elsewhere, and must then
    give the same records in the same order: else they are not counted once. `lockgate.testing.check_source` tries that.

    An exception is a fault: the job restarts, as its restart strategy says, and shows the exception's text.

    schema: of the rows, as Spark DDL, such as "id BIGINT, city STRING".
    new_splits_every_ms: 0 when `splits` always gives the same; else it is asked again that often, and the job never
    ends.
    idle_ms: pause after `plan` found nothing in any split.
    """

    schema: str = ""
    new_splits_every_ms: int = 0
    idle_ms: int = 100

    def open(self) -> None:  # noqa: B027  most sources need nothing
        """Called on the task manager before anything else: the place to connect."""

    @abstractmethod
    def splits(self) -> Mapping[str, int | None]:
        """Names of the splits, each with the offset behind its last record; None: it has no end yet.

        A split keeps its name for ever, and the end that it had when it was named first.
        """

    def plan(self, split: str, start: int, limit: int) -> int | None:
        """Where the range that begins at `start` ends: with about `limit` rows in it.

        `start` itself: there is nothing to read yet. None: there never will be. An end beyond that of the split is cut
        off. Unless overridden an offset counts rows, and there is always more until the split's end.
        """
        del split
        return start + limit

    @abstractmethod
    def read(self, split: str, start: int, end: int) -> Any:
        """The records of a range that `plan` gave: a pyarrow Table, a pandas or a Spark DataFrame.

        It has the columns of `schema`, in any order. A Spark DataFrame is made with `SparkSession.active()`.
        """

    def close(self) -> None:  # noqa: B027  most sources hold nothing
        """Called when the subtask ends; not when its process dies."""
