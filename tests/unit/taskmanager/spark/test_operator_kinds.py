"""Every kind of operator in the contract has an entry wherever one is needed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_type_hints

import pytest
from lockgate_coordinator.graph import validate_operator
from lockgate_proto.messages import (
    FileFormat,
    FileSink,
    FileSource,
    GeneratorSource,
    KeyedAggregate,
    Operator,
    PythonSource,
    SocketSource,
    SplitState,
    SqlTransform,
    Vertex,
)
from lockgate_proto.operators import KINDS, Role, is_keyed, is_sink, is_source, is_transform
from lockgate_taskmanager.spark import layout, operators
from lockgate_taskmanager.spark.limits import UNLIMITED
from lockgate_taskmanager.task.program import UserError
from pyspark import cloudpickle

from tests.connectors import Squares


def _of(role: Role) -> set[type]:
    return {kind for kind, facts in KINDS.items() if facts.role is role}


def test_contract_facts_and_checks_know_the_same_kinds() -> None:
    contract = set(get_args(get_type_hints(Operator)["kind"])) - {NoneType}
    assert set(KINDS) == contract
    assert set(validate_operator._CHECKS) == contract


def test_spark_runs_every_source_and_sink() -> None:
    assert set(operators.SOURCES) == _of(Role.SOURCE)
    assert set(operators.SINKS) == _of(Role.SINK)


def test_only_sinks_commit_and_an_exact_one_does() -> None:
    assert {kind for kind, facts in KINDS.items() if facts.commits} < _of(Role.SINK)
    assert {kind for kind, facts in KINDS.items() if facts.is_exact} < _of(Role.SINK)
    assert all(facts.commits for facts in KINDS.values() if facts.is_exact)


def test_an_operator_has_one_role_and_one_of_no_known_kind_has_none() -> None:
    roles = (is_source, is_transform, is_keyed, is_sink)
    assert [is_role(Operator("x", kind=FileSink())) for is_role in roles] == [False, False, False, True]
    assert not any(is_role(Operator("x")) for is_role in roles)


@pytest.mark.parametrize(
    ("chain", "words"),
    [
        ((), "no operators"),
        ((Operator("newer"),), "does not support"),
        ((Operator("sql", kind=SqlTransform("SELECT 1")), Operator("sum", kind=KeyedAggregate())), "must be the first"),
    ],
)
def test_a_chain_that_cannot_run_is_refused(chain: tuple[Operator, ...], words: str) -> None:
    with pytest.raises(UserError, match=words):
        layout.check(Vertex("v", operators=chain))


def reopened(kind: Any, *splits: SplitState) -> tuple[SplitState, ...]:
    return operators.reopened(Operator("source", kind=kind), UNLIMITED, splits)


def test_files_of_another_run_end_where_they_end_now(tmp_path: Path) -> None:
    (tmp_path / "grown").write_text("1\n2\n")
    (tmp_path / "same").write_text("1\n")
    bounded = FileSource(str(tmp_path), FileFormat.TEXT)
    before = [SplitState(name, 2, 2, max_event_time_ms=7) for name in ("grown", "same", "gone")]
    assert [split.end for split in reopened(bounded, *before)] == [4, 2, 2]
    assert reopened(bounded, before[0]) == (replace(before[0], end=4),), "the rest of it stays"
    watched = [replace(split, end=-1) for split in before]
    assert [split.end for split in reopened(bounded, *watched)] == [4, 2, 2]
    lost = (SplitState("gone", 2, 9), SplitState("gone", 2, -1, seen=9))
    assert [split.end for split in reopened(bounded, *lost)] == [9, 9], "reading it says so"
    continuous = replace(bounded, continuous=True, poll_interval_ms=1)
    assert {split.end for split in reopened(continuous, *before, *watched)} == {-1}
    with pytest.raises(UserError, match="has shrunk to 2 bytes; it was read to 3"):
        reopened(bounded, SplitState("same", 3, 3))
    rows = SplitState("part.parquet", 10, 10)
    assert reopened(replace(bounded, format=FileFormat.PARQUET), rows) == (rows,)


def test_splits_of_another_run_that_are_no_files_end_where_the_source_says_it() -> None:
    at_end = SplitState("a", 3, 3)
    assert [split.end for split in reopened(PythonSource(cloudpickle.dumps(Squares(9, None))), at_end)] == [9]
    assert [split.end for split in reopened(PythonSource(cloudpickle.dumps(Squares(2, None))), at_end)] == [3]
    assert [split.end for split in reopened(PythonSource(cloudpickle.dumps(Squares(None))), at_end)] == [-1]
    gone = SplitState("z", 1, 5)
    assert reopened(PythonSource(cloudpickle.dumps(Squares(9))), gone) == (gone,)
    partition = SplitState("0", 100, 100)
    assert [split.end for split in reopened(GeneratorSource(rows_per_partition=150), partition)] == [150]
    assert [split.end for split in reopened(GeneratorSource(rows_per_partition=50), partition)] == [100]
    assert [split.end for split in reopened(GeneratorSource(), partition)] == [-1]
    socket = SplitState("host:1", 4, -1)
    assert reopened(SocketSource("host", 1), socket) == (socket,)


@pytest.mark.parametrize("continuous", [False, True])
def test_a_file_of_another_run_goes_on_behind_its_last_line(tmp_path: Path, continuous: bool) -> None:
    """That run took the last line as it was, with or without a newline."""
    source = FileSource(str(tmp_path), FileFormat.TEXT, continuous=continuous, poll_interval_ms=int(continuous))
    for before, more, offset in (("1\n2", "\n3\n", 4), ("1\n2", "\r\n3\n", 5), ("1\n2\n", "3\n", 4), ("1\n2", "", 3)):
        (tmp_path / "a").write_bytes(f"{before}{more}".encode())
        (split,) = reopened(source, SplitState("a", len(before), len(before)))
        assert split == SplitState("a", offset, -1 if continuous else len(before + more)), (before, more)
    (tmp_path / "a").write_text("1\n23\n")
    with pytest.raises(
        UserError, match=r"a was read to byte 3, which was its end, and the line that ended there goes on"
    ):
        reopened(source, SplitState("a", 3, 3))
    (split,) = reopened(source, SplitState("a", 2, 3))
    assert split.offset == 2, "the last line has not been read"


def test_a_split_that_a_source_no_longer_has_is_over_if_the_source_ends() -> None:
    source = PythonSource(cloudpickle.dumps(Squares(9)))
    assert [split.end for split in reopened(source, SplitState("z", 4, -1))] == [4]
    assert [split.end for split in reopened(replace(source, continuous=True), SplitState("z", 4, -1))] == [-1]
