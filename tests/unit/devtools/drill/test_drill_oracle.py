"""The oracle must catch a lost, a doubled and an invented record."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from lockgate_devtools.drill.model import RecordCheck
from lockgate_devtools.drill.oracle import LedgerOracle, Total, check_totals
from lockgate_devtools.drill.pipeline import CHECKSUM_FACTOR, DrillPipeline


def _whole_input(partitions: int, rows: int) -> tuple[np.ndarray, np.ndarray]:
    return np.repeat(np.arange(partitions), rows), np.tile(np.arange(rows), partitions)


def _check(partition: np.ndarray, sequence: np.ndarray, partitions: int = 3, rows: int = 100) -> RecordCheck:
    oracle = LedgerOracle([rows] * partitions)
    middle = len(partition) // 2
    oracle.add(partition[:middle], sequence[:middle])  # as from two files
    oracle.add(partition[middle:], sequence[middle:])
    return oracle.check()


def test_a_whole_ledger_is_exact_in_any_order() -> None:
    partition, sequence = _whole_input(3, 100)
    order = np.random.default_rng(1).permutation(300)
    check = _check(partition[order], sequence[order])
    assert check == RecordCheck(300, 0, 0)
    assert check.is_exact


def test_one_lost_record_is_caught() -> None:
    partition, sequence = _whole_input(3, 100)
    check = _check(np.delete(partition, 137), np.delete(sequence, 137))
    assert check == RecordCheck(300, 1, 0)
    assert not check.is_exact


def test_one_duplicated_record_is_caught() -> None:
    partition, sequence = _whole_input(3, 100)
    check = _check(np.append(partition, 1), np.append(sequence, 37))
    assert check == RecordCheck(300, 0, 1)
    assert not check.is_exact


def test_a_duplicate_does_not_make_up_for_a_loss() -> None:
    partition, sequence = _whole_input(3, 100)
    sequence[0] = 1
    assert _check(partition, sequence) == RecordCheck(300, 1, 1)


def test_the_last_records_of_a_partition_count() -> None:
    partition, sequence = _whole_input(3, 100)
    assert _check(partition[:-20], sequence[:-20]) == RecordCheck(300, 20, 0)


def test_records_that_were_never_in_the_input_count_as_too_many() -> None:
    partition, sequence = _whole_input(3, 100)
    check = _check(np.append(partition, [3, 0, -1]), np.append(sequence, [0, 100, 5]))
    assert check == RecordCheck(300, 0, 3)


def test_an_empty_ledger_has_lost_everything() -> None:
    assert LedgerOracle([10, 10]).check() == RecordCheck(20, 20, 0)


def test_partitions_may_be_of_different_lengths() -> None:
    def check(partition: list[int], sequence: list[int]) -> RecordCheck:
        oracle = LedgerOracle([2, 0, 3])
        oracle.add(np.array(partition), np.array(sequence))
        return oracle.check()

    assert check([2, 0, 2, 0, 2], [2, 0, 0, 1, 1]) == RecordCheck(5, 0, 0)
    assert check([2, 0, 2, 0], [1, 0, 0, 1]) == RecordCheck(5, 1, 0), "the last one of the longest"
    assert check([2, 0, 2, 0, 2, 0], [2, 0, 0, 1, 1, 2]) == RecordCheck(5, 0, 1), "beyond the end of a shorter one"
    assert check([2, 0, 2, 0, 2, 1], [2, 0, 0, 1, 1, 0]) == RecordCheck(5, 0, 1), "of one that is empty"
    assert check_totals([2, 0, 3], {0: Total(2, 1, 1), 2: Total(3, 3, 2)}) == ()


def test_an_empty_expectation_does_not_pass() -> None:
    assert not RecordCheck(0, 0, 0).is_exact


def test_right_totals_raise_no_problem() -> None:
    assert check_totals([4, 4], {0: Total(4, 6, 3), 1: Total(4, 6, 3)}) == ()


def test_every_wrong_missing_or_unknown_total_is_named() -> None:
    problems = check_totals([4, 4, 4], {0: Total(4, 6, 3), 1: Total(5, 6, 3), 7: Total(1, 0, 0)})
    assert [problem.split(":")[0] for problem in problems] == [
        "partition 1",
        "partition 2",
        "partition 7 was never in the input",
    ]


def test_a_row_with_another_column_wrong_is_lost_and_invented(tmp_path: Path) -> None:
    pipeline = DrillPipeline(tmp_path, partitions=2, rows=3, rate=1, parallelism=1, checkpoint_interval_ms=100)
    pipeline.ledger.mkdir()
    partition, sequence = _whole_input(2, 3)
    checksum = partition * CHECKSUM_FACTOR + sequence
    checksum[4] += 1
    table = pa.table({"partition": partition, "sequence": sequence, "checksum": checksum})
    pq.write_table(table, pipeline.ledger / "part.parquet")
    oracle = LedgerOracle([3, 3])
    pipeline.read_ledger(oracle)
    assert oracle.check() == RecordCheck(6, 1, 1)
