"""Values of state in numpy: what a damaged file may bring in place of them."""

from __future__ import annotations

import pyarrow as pa
import pytest
from lockgate_taskmanager.state.columns.physical import physical


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary()], ids=str)
def test_values_that_are_no_text_are_not_taken_for_it(kind: pa.DataType) -> None:
    form = physical(kind)
    with pytest.raises(pa.ArrowException):
        form.read(pa.array([{"a": 1}]))
    assert form.write(form.read(pa.array(["é", ""], kind)), None).equals(pa.array(["é", ""], kind))


def test_bytes_that_are_no_text_are_not_taken_for_it() -> None:
    with pytest.raises(pa.ArrowException):
        physical(pa.string()).read(pa.array([b"\xff"], pa.binary()))
