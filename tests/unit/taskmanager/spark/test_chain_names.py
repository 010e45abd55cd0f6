"""What messages call an operator."""

from __future__ import annotations

import pytest
from lockgate_proto.messages import Operator
from lockgate_taskmanager.spark.chain import named


@pytest.mark.parametrize(
    ("operator", "name"),
    [
        (Operator("sql-2", "sql"), "operator 'sql' (id 'sql-2')"),
        (Operator("sql-2", "sql-2"), "operator 'sql-2'"),
        (Operator("sql-2"), "operator 'sql-2'"),
    ],
)
def test_two_operators_of_one_name_are_distinguished(operator: Operator, name: str) -> None:
    assert named(operator) == name
