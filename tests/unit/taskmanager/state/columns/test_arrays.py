"""Helpers for arrays."""

from __future__ import annotations

import numpy as np
import pytest
from lockgate_taskmanager.state.columns.arrays import distinct


@pytest.mark.parametrize("values", [[], [7], [3, 3, 3], [5, -2, 5, 0, -2, 9]])
def test_each_integer_once_in_order(values: list[int]) -> None:
    found = distinct(np.array(values, np.int64))
    assert found.dtype == np.int64
    assert found.tolist() == sorted(set(values))
