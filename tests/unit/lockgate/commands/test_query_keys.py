"""How the keys of `lockgate query` are read."""

from __future__ import annotations

from typing import Any

import pytest

from lockgate.commands.query import _values


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("the", ["the"]),
        ('["EUR", 2024]', ["EUR", 2024]),
        ("[not json", ["[not json"]),
        ('["[1, 2]"]', ["[1, 2]"]),
    ],
)
def test_a_text_like_a_list_can_be_given(text: str, values: list[Any]) -> None:
    assert _values(text) == values
