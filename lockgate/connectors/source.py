"""Custom sources: `Job.read_from(source)`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any


class CustomSource(ABC):
    """Reads ranges of splits. Pickled once, and used by every subtask of the source as a separate copy.

    A split is a part of the input that is read in order: a file, a partition, a table. An offset, a whole number from 0
    on, is the position in a split; its unit is the source's choice. Offsets are part of every snapshot. After a failure
    reading continues from an older offset, in ranges that may have other boundaries, and must return the same records
    in the same order: otherwise results are not exactly once. `lockgate.testing.check_source` tests that.

    After an exception the job restarts according to its restart strategy, and shows the exception's text.

    schema: of the rows, as Spark DDL, such as "id BIGINT, city STRING".
    new_splits_every_ms: 0 when `splits` always returns the same; otherwise it is called again at that interval, and the
    job never ends.
    idle_ms: pause after `plan` found nothing in any split.
    """

    schema: str = ""
    new_splits_every_ms: int = 0
    idle_ms: int = 100

    def open(self) -> None:  # noqa: B027  most sources need nothing
        """Called on the task manager before any other method: the place to connect."""

    @abstractmethod
    def splits(self) -> Mapping[str, int | None]:
        """Names of the splits, each with the offset after its last record; None: it has no end yet.

        A split keeps its name forever, and the end with which it was first returned.
        """

    def plan(self, split: str, start: int, limit: int) -> int | None:
        """The end of the range that begins at `start`, with about `limit` rows in it.

        `start` itself: there is nothing to read yet. None: there never will be. An end beyond that of the split is cut
        off. By default an offset counts rows, and there are always more until the split's end.
        """
        del split
        return start + limit

    @abstractmethod
    def read(self, split: str, start: int, end: int) -> Any:
        """The records of a range returned by `plan`: a pyarrow Table, a pandas or a Spark DataFrame.

        It has the columns of `schema`, in any order. A Spark DataFrame is made with `SparkSession.active()`.
        """

    def close(self) -> None:  # noqa: B027  most sources hold nothing
        """Called when the subtask ends; not when its process dies."""
