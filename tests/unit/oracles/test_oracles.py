"""What the chaos tests judge by fails where something is lost, doubled, wrong, or not there at all."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest
from lockgate_devtools.drill.oracle import LedgerOracle
from lockgate_proto.messages import CompletedCheckpoint, JobRecord

from tests.chaos import test_chaos_mixed as mixed
from tests.chaos import test_chaos_straggler as straggler
from tests.chaos.history import Story
from tests.drained import generated

Row = tuple[str, int, int, int]


def test_a_ledger_of_nothing_is_not_exact() -> None:
    assert not LedgerOracle([]).check().is_exact
    assert not LedgerOracle([0, 0]).check().is_exact
    assert not LedgerOracle([1, 0]).check().is_exact


@pytest.mark.parametrize("offsets", [{}, {"0": 0, "1": 0}, {"0": 5}, {"0": 5, "1": 5, "2": 5}])
def test_offsets_that_prove_nothing_are_refused(offsets: dict[str, int]) -> None:
    with pytest.raises(AssertionError):
        generated(offsets, 2)


def test_offsets_are_read_in_the_order_of_the_partitions() -> None:
    assert generated({"1": 0, "0": 7}, 2) == [7, 0]


def totals(path: Path, rows: list[Row]) -> str:
    """A database as the straggler's job writes it."""
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE totals (k, n, total, work)")
        database.executemany("INSERT INTO totals VALUES (?, ?, ?, ?)", rows)
    return str(path)


def straggler_rows(rows: list[int]) -> list[Row]:
    return [(key, *values) for key, values in straggler.expected(rows).items()]


def test_the_stragglers_totals_are_those_of_the_input(tmp_path: Path) -> None:
    def work(sequence: int) -> int:
        return sum(x * sequence % 7 for x in range(1, 61))

    rows = straggler_rows([120, 3])
    straggler.check_exact(totals(tmp_path / "totals.db", rows), [120, 3])
    assert ("0-7", 3, 7 + 57 + 107, work(7) + work(57) + work(107)) in rows
    assert len(rows) == 53


@pytest.mark.parametrize(
    "damage",
    [
        lambda rows: rows[:0],
        lambda rows: rows[1:],
        lambda rows: [*rows, ("0-77", 1, 77, 1)],
        lambda rows: [*rows, rows[0]],
        lambda rows: [*rows[1:], (rows[0][0], rows[0][1], rows[0][2], rows[0][3] + 1)],
        lambda rows: [*rows[1:], (rows[0][0], rows[0][1] + 1, *rows[0][2:])],
    ],
    ids=["nothing", "a key lost", "a key too many", "a key twice", "wrong work", "wrong count"],
)
def test_the_stragglers_oracle_notices_errors(tmp_path: Path, damage: object) -> None:
    assert callable(damage)
    path = totals(tmp_path / "totals.db", damage(straggler_rows([120, 3])))
    with pytest.raises(AssertionError):
        straggler.check_exact(path, [120, 3])


def test_record_and_file_of_a_damaged_snapshot_have_to_exist(tmp_path: Path) -> None:
    file = tmp_path / "_metadata"
    damaged = CompletedCheckpoint(3, f"file://{file}", "sum")
    with pytest.raises(AssertionError):
        mixed.check_kept(damaged, [damaged])
    file.touch()
    mixed.check_kept(damaged, [damaged])
    with pytest.raises(AssertionError):
        mixed.check_kept(damaged, [])
    with pytest.raises(AssertionError):
        mixed.check_kept(damaged, [CompletedCheckpoint(4, "file:///elsewhere", "sum")])


def job(token: int, run: str = "run") -> JobRecord:
    return JobRecord("job", run, token=token)


def completed(number: int, token: int, pointer: str = "there") -> CompletedCheckpoint:
    return CompletedCheckpoint(number, pointer, "sum", token=token)


def test_a_story_in_which_tokens_and_ids_rise_is_sound() -> None:
    story = Story()
    story.look(1, [])
    story.look(1, [(job(1), [completed(1, 1)])])
    story.look(2, [(job(1), [completed(1, 1), completed(2, 1)])])  # written just before the grant
    story.look(2, [(job(1), [completed(2, 1), completed(4, 2)])])
    story.check()
    assert story.epochs == [1, 2]


def test_a_story_of_nothing_proves_nothing() -> None:
    for looks in ([], [(1, [])], [(1, [(job(1), [])])]):
        story = Story()
        for epoch, jobs in looks:
            story.look(epoch, jobs)
        with pytest.raises(AssertionError, match="was seen"):
            story.check()


@pytest.mark.parametrize(
    ("looks", "message"),
    [
        ([(2, job(2), completed(1, 2)), (1, job(2), completed(1, 2))], r"\[2, 1\]"),
        ([(1, job(1), completed(1, 1)), (2, job(1), completed(1, 1, "elsewhere"))], "two contents"),
        ([(1, job(1), completed(1, 2)), (1, job(1), completed(2, 1))], "1 has token 2, 2 has 1"),
        ([(2, job(2), completed(1, 2)), (2, job(2), completed(2, 1))], "completed under token 1 after 2"),
        ([(1, job(1), completed(1, 1)), (1, job(1, "another"), completed(1, 1))], "created twice"),
    ],
)
def test_a_history_that_violates_an_invariant_is_reported(
    looks: list[tuple[int, JobRecord, CompletedCheckpoint]], message: str
) -> None:
    story = Story()
    for epoch, record, checkpoint in looks:
        story.look(epoch, [(record, [checkpoint])])
    with pytest.raises(AssertionError, match=message):
        story.check()


def test_a_submission_under_a_replaced_token_is_reported() -> None:
    story = Story()
    story.look(2, [])
    story.look(2, [(job(1), [completed(1, 2)])])
    with pytest.raises(AssertionError, match="submitted under token 1 when 2 was known"):
        story.check()
