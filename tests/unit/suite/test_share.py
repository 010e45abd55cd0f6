"""A share of the examples: as many are drawn as it says."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.share import draw_fewer_examples


def test_a_share_of_the_examples_is_drawn_for_every_occurrence_of_the_test() -> None:
    drawn = []

    @settings(max_examples=40)
    @given(st.integers())
    def example(number: int) -> None:
        drawn.append(number)

    items: Any = [SimpleNamespace(obj=example), SimpleNamespace(obj=example), SimpleNamespace(obj=print)]
    draw_fewer_examples(cast(list[pytest.Item], items), 10)
    example()
    assert len(drawn) == 4
