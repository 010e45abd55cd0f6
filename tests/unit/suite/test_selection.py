"""A run imports the files that it may need, and every mark is written where that is decided."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.selection import ROOT, check_marks, has_nothing_for

PURE = "not docker and not integration and not chaos and not soak"
MIXED = "import pytest\n\n@pytest.mark.integration\ndef test_it(): ...\n"
MARKED = "import pytest\n\npytestmark = [pytest.mark.chaos, pytest.mark.timeout(9)]\ndef test_it(): ...\n"


@pytest.fixture
def written(tmp_path: Path) -> Any:
    def write(text: str, name: str = "test_it.py") -> Path:
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


@pytest.mark.parametrize(
    ("expression", "text", "left_out"),
    [
        ("chaos and not docker and not soak", MARKED, False),
        ("integration and not soak", MARKED, True),
        (PURE, MARKED, True),
        ("not spark and not slow", MARKED, False),
        ("integration", MIXED, False),
        (PURE, MIXED, False),
        ("chaos", MIXED, True),
        ("slow", MIXED, False),
        ("chaos or slow", MIXED, False),
        ("", MARKED, False),
    ],
)
def test_a_file_without_a_test_for_the_marks_is_not_imported(
    written: Any, expression: str, text: str, left_out: bool
) -> None:
    assert has_nothing_for(expression, written(text)) is left_out


def test_files_without_tests_are_left_to_pytest(written: Any) -> None:
    assert not has_nothing_for("chaos", written("", "conftest.py"))
    assert not has_nothing_for("chaos", ROOT / "unit")
    assert has_nothing_for("not spark", ROOT / "chaos")


def test_a_file_in_the_marks_own_folder_may_be_marked_from_elsewhere() -> None:
    path = next((ROOT / "integration/ha").glob("test_ha_contract.py"))
    assert not has_nothing_for("integration", path)


def test_a_mark_from_elsewhere_stops_the_run(written: Any) -> None:
    path = written("from helpers import MARKS as pytestmark\n")
    item = SimpleNamespace(path=path, get_closest_marker=lambda name: name == "chaos" or None)
    with pytest.raises(pytest.UsageError, match=r"test_it\.py has tests marked chaos, .*: write mark\.chaos into"):
        check_marks([cast(pytest.Item, item)])
    item.path = written(MARKED)
    check_marks([cast(pytest.Item, item)])
