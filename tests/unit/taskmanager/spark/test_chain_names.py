"""What messages call an operator."""

from __future__ import annotations

import pytest
from lockgate_proto.messages import Operator
from lockgate_taskmanager.spark.chain import named, naming
from lockgate_taskmanager.task.program import UserError


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


@pytest.mark.parametrize("message", ["its schema is wrong", "operator 'sql' (id 'sql-2'): its schema is wrong"])
def test_an_error_names_its_operator_once(message: str) -> None:
    with pytest.raises(UserError) as caught, naming(Operator("sql-2", "sql")):
        raise UserError(message)
    assert str(caught.value) == "operator 'sql' (id 'sql-2'): its schema is wrong"
