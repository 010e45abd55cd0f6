"""The kit for authors of sources and sinks: it passes what is right, and names what is wrong with each broken one."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lockgate import CustomSink, CustomSource, Transaction
from lockgate.testing import check_sink, check_source
from tests.connectors import JsonFolder, Squares

pytestmark = pytest.mark.spark

ROWS = pa.table({"id": range(6), "city": list("abcdef")})
calls = itertools.count()


@pytest.mark.parametrize("form", ["arrow", "pandas"])
def test_a_source_that_can_be_replayed_passes(form: str) -> None:
    check_source(lambda: Squares(0, 1, 40, form=form))


def test_a_source_without_an_end_passes() -> None:
    check_source(lambda: Squares(None), rows=50)


def test_a_source_whose_offsets_have_gaps_passes() -> None:
    class Gaps(Squares):
        def plan(self, split: str, start: int, limit: int) -> int | None:  # noqa: ARG002
            return None if start >= 200 else min(200, (start // 10 + limit) * 10)

        def read(self, split: str, start: int, end: int) -> Any:
            return super().read(split, -(-start // 10), -(-end // 10))

    check_source(lambda: Gaps(None))


class Cursor(Squares):
    """Goes on from where it was instead of from `start`."""

    at = 0

    def read(self, split: str, start: int, end: int) -> Any:
        self.at += end - start
        return super().read(split, self.at - (end - start), self.at)


class Clock(Squares):
    """Gives other records each time."""

    def read(self, split: str, start: int, end: int) -> Any:
        return super().read(split, start, end).append_column("read", pa.array([next(calls)] * (end - start)))


class Swallow(Squares):
    """Loses the last record of larger ranges."""

    def read(self, split: str, start: int, end: int) -> Any:
        return super().read(split, start, end - (end - start > 5))


class Backwards(Squares):
    """Plans ranges that end before they begin."""

    def plan(self, split: str, start: int, limit: int) -> int | None:  # noqa: ARG002
        return start - 1


class Fickle(Squares):
    """Its splits have another end each time."""

    def splits(self) -> Mapping[str, int | None]:
        return {"a": 10 + next(calls)}


class Nameless(Squares):
    """Has no schema."""

    schema = ""


class Connected(Squares):
    """Holds what cannot be pickled."""

    def __init__(self, *ends: int | None) -> None:
        super().__init__(*ends)
        self.lock = threading.Lock()


@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        (Cursor, "Cursor cannot be replayed: from offset"),
        (Clock, "Clock cannot be replayed"),
        (Swallow, r"Swallow cannot be replayed: .* planned with limit 7, row 7 is"),
        (Backwards, "a range does not end before it begins"),
        (Fickle, "a split must keep its name and its end"),
        (Nameless, "has no schema"),
        (Connected, r"cannot be sent to a task manager: .* open files and connections in open\(\)"),
    ],
)
def test_a_broken_source_is_found_out(broken: type[Squares], sentence: str) -> None:
    with pytest.raises(AssertionError, match=sentence):
        check_source(lambda: broken(40))


def test_a_source_with_nothing_in_it_proves_nothing() -> None:
    with pytest.raises(AssertionError, match="two rows or more"):
        check_source(lambda: Squares(1))
    with pytest.raises(AssertionError, match="names no split"):
        check_source(lambda: Squares())


def test_a_sink_that_is_exact_passes(tmp_path: Path) -> None:
    check_sink(lambda: JsonFolder(tmp_path), JsonFolder(tmp_path).visible, ROWS)


class Hasty(JsonFolder):
    """Shows what is only staged."""

    def stage(self, transaction: Transaction, rows: pa.Table) -> None:
        super().stage(transaction, rows)
        super().commit(transaction)


class Doubling(JsonFolder):
    """Each commit shows the rows once more."""

    def commit(self, transaction: Transaction) -> None:
        text = self.place(transaction).read_text()
        (self.folder / f"{transaction.name}-{next(calls)}").write_text(text)

    def staged(self) -> Iterable[str]:
        return [name for name in super().staged() if not list(self.folder.glob(f"{name}-*"))]


class Appending(JsonFolder):
    """Staging again adds instead of replacing."""

    def stage(self, transaction: Transaction, rows: pa.Table) -> None:
        before = self.place(transaction).read_text() if self.place(transaction).exists() else ""
        super().stage(transaction, rows)
        self.place(transaction).write_text(before + self.place(transaction).read_text())


class Deaf(JsonFolder):
    """Aborts nothing."""

    def abort(self, transaction: Transaction) -> None:
        pass


class Destructive(JsonFolder):
    """Aborts what was committed, too."""

    def abort(self, transaction: Transaction) -> None:
        super().abort(transaction)
        (self.folder / transaction.name).unlink(missing_ok=True)


class Silent(JsonFolder):
    """Does not say what is staged."""

    def staged(self) -> Iterable[str]:
        return ()


class Narrow(JsonFolder):
    """Tells transactions apart by their checkpoint alone."""

    def place(self, transaction: Transaction) -> Path:
        return self.folder / "staged" / f"{transaction.checkpoint_id}"

    def staged(self) -> Iterable[str]:
        return [Transaction("a-run", "write_to-1", 0, 1, int(name)).name for name in super().staged()]


class Greedy(JsonFolder):
    """Commits everything that is staged."""

    def commit(self, transaction: Transaction) -> None:
        super().commit(transaction)
        for name in super().staged():
            os.replace(self.folder / "staged" / name, self.folder / name)


class Forgetful(JsonFolder):
    """Keeps rows in the process that staged them."""

    rows: pa.Table | None = None

    def stage(self, transaction: Transaction, rows: pa.Table) -> None:
        self.place(transaction).write_text("")
        self.rows = rows

    def commit(self, transaction: Transaction) -> None:
        if self.rows is not None:
            super().stage(transaction, self.rows)
        super().commit(transaction)


@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        (Hasty, r"Hasty is not exact: when rows are staged and not committed there are 1 row\(s\) too many"),
        (Doubling, "when a transaction is committed again by another process there are 1 row"),
        (Appending, r"after the commit of rows staged twice by other processes there are 1 row\(s\) too many"),
        (Deaf, r"Deaf\.staged\(\) still has .* which was committed or aborted"),
        (Destructive, r"when a committed transaction is aborted there are 1 row\(s\) too few"),
        (Silent, r"Silent\.staged\(\) lacks .* which was staged"),
        (Narrow, r"Narrow\.staged\(\) lacks"),
        (Greedy, r"when a zombie commits what was committed before it there are 3 row\(s\) too many"),
        (Forgetful, r"after the first commit there are 1 row\(s\) too few"),
    ],
)
def test_a_broken_sink_is_found_out(broken: type[JsonFolder], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=sentence):
        check_sink(lambda: broken(tmp_path), JsonFolder(tmp_path).visible, ROWS)


def test_the_interfaces_are_abstract() -> None:
    for kind, missing in ((CustomSource, "read"), (CustomSink, "stage")):
        with pytest.raises(TypeError, match=missing):
            kind()  # type: ignore[abstract]
