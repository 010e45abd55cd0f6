"""Names of sink transactions."""

from __future__ import annotations

import pytest
from lockgate_proto.transactions import Transaction


def test_a_name_says_everything() -> None:
    transaction = Transaction("20261121-183624-1a2b3c4d", "write_to-1", 3, 12, 7)
    assert transaction.name == "20261121-183624-1a2b3c4d~write_to-1~3~12~7"
    assert Transaction.parse(transaction.name) == transaction


@pytest.mark.parametrize(
    "name", ["", "run~op~1~1", "run~op~1~1~x", "run~op~1~1~1~1", "../run~op~1~1~1", "a b~op~1~1~1"]
)
def test_an_invalid_transaction_name_parses_to_none(name: str) -> None:
    assert Transaction.parse(name) is None
