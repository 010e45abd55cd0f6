"""Which files `-m` leaves out before they are imported."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).parent
SPARK_FOLDERS = tuple(ROOT / name for name in ("unit/taskmanager/spark", "integration", "chaos", "docker"))
"""Every test in them is marked `spark`."""
_WRITTEN = ("integration", "chaos", "docker", "soak")  # marks that stand in the test's own file, or are its folder's
_EXPRESSION = re.compile(r"(?:(?P<wanted>\w+)|not \w+)(?: and not \w+)*")
_OF_ALL = re.compile(r"^pytestmark = (.*)$", re.MULTILINE)
_MARK = re.compile(r"\bmark\.(\w+)")


def has_nothing_for(expression: str, path: Path) -> bool:
    """Whether no test of a file or folder is meant by what `-m` says; False where that takes more than a look."""
    found = _EXPRESSION.fullmatch(expression)
    if found is None:
        return False
    wanted, unwanted = found["wanted"], set(re.findall(r"not (\w+)", expression))
    if path in SPARK_FOLDERS and "spark" in unwanted:
        return True
    if not (path.name.startswith("test_") and path.suffix == ".py"):
        return False
    text = path.read_text(encoding="utf-8")
    of_all = {mark for line in _OF_ALL.findall(text) for mark in _MARK.findall(line)}
    return bool(of_all & unwanted) or (wanted in _WRITTEN and not _may_have(path, text, wanted))


def check_marks(items: Iterable[pytest.Item]) -> None:
    """Raises pytest.UsageError where a mark stands in a place at which `has_nothing_for` does not look."""
    marked = {(item.path, mark) for item in items for mark in _WRITTEN if item.get_closest_marker(mark)}
    for path, mark in sorted(marked):
        if not _may_have(path, path.read_text(encoding="utf-8"), mark):
            raise pytest.UsageError(
                f"{path} has tests marked {mark}, but -m {mark} would not import it: write mark.{mark} into that file"
            )


def _may_have(path: Path, text: str, mark: str) -> bool:
    """Whether one of the file's tests may be marked so."""
    return path.is_relative_to(ROOT / mark) or mark in _MARK.findall(text)
