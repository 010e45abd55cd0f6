"""Every kind of operator in the contract has an entry wherever one is needed."""

from __future__ import annotations

from types import NoneType
from typing import get_args, get_type_hints

import pytest
from lockgate_coordinator.graph import validate_operator
from lockgate_proto.messages import FileSink, KeyedAggregate, Operator, SqlTransform, Vertex
from lockgate_proto.operators import KINDS, Role, is_keyed, is_sink, is_source, is_transform
from lockgate_taskmanager.spark import layout, operators
from lockgate_taskmanager.task.program import UserError


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
