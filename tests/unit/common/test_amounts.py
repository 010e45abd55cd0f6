"""Numbers as people read them."""

from __future__ import annotations

import pytest
from lockgate_common.amounts import counted, size_text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (8669, "8.5 KiB"), (3 << 20, "3.0 MiB"), (5 << 40, "5.0 TiB")],
)
def test_sizes(count: int, text: str) -> None:
    assert size_text(count) == text


def test_one_has_no_s() -> None:
    assert [counted(count, "restart") for count in (0, 1, 2, 1200)] == [
        "0 restarts",
        "1 restart",
        "2 restarts",
        "1,200 restarts",
    ]
