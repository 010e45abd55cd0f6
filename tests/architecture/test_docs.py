"""Links in the documentation lead to existing pages, files and headings, and the tests that it names exist."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEST = re.compile(r"\b(tests/[\w/]+\.py)(?:::(test_\w+))?")
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]+))?\)")


def _pages() -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    return [name for name in listed if (ROOT / name).is_file()]


def _text_without_code(page: Path) -> str:
    return re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


@cache
def _anchors(page: Path) -> frozenset[str]:
    return frozenset(_anchor(heading) for heading in re.findall(r"^#+ (.+)$", _text_without_code(page), re.MULTILINE))


def broken_links(page: Path) -> list[str]:
    """Targets that do not exist, as they are written."""
    broken = []
    for path, anchor in LINK.findall(_text_without_code(page)):
        target = page.parent / path if path else page
        if not target.exists() or (anchor and anchor not in _anchors(target)):
            broken.append(f"{path}#{anchor}" if anchor else path)
    return broken


def test_links_lead_somewhere() -> None:
    assert not [f"{name}: {target}" for name in _pages() for target in broken_links(ROOT / name)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[a](other.md)", ["other.md"]),
        ("[a](#nowhere)", ["#nowhere"]),
        ("# A `heading`, here\n\n[a](#a-heading-here)", []),
        ("[a](https://example.org/page.md)", []),
        ("```\n[a](other.md)\n```", []),
    ],
)
def test_broken_links_are_found(tmp_path: Path, text: str, expected: list[str]) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    assert broken_links(page) == expected


def unknown_tests(text: str) -> list[str]:
    """Test files, and tests in them, that a text names and that do not exist."""
    unknown = []
    for path, name in TEST.findall(text):
        file = ROOT / path
        if not file.is_file() or (name and not re.search(rf"^def {name}\(", file.read_text("utf-8"), re.MULTILINE)):
            unknown.append(f"{path}::{name}" if name else path)
    return unknown


def test_tests_named_in_pages_exist() -> None:
    assert not [f"{page}: {test}" for page in _pages() for test in unknown_tests((ROOT / page).read_text("utf-8"))]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("`tests/architecture/test_docs.py::test_links_lead_somewhere`", []),
        ("tests/architecture/test_docs.py", []),
        ("tests/architecture/test_docs.py::test_links", ["tests/architecture/test_docs.py::test_links"]),
        ("tests/unit/test_nowhere.py", ["tests/unit/test_nowhere.py"]),
    ],
)
def test_unknown_tests_are_found(text: str, expected: list[str]) -> None:
    assert unknown_tests(text) == expected


def statements_without_a_test(text: str) -> list[str]:
    """Rows of tables, without their headings, that name no test function."""
    rows = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| statement |")]
    return [row for row in rows if not any(name for _, name in TEST.findall(row))]


def test_each_statement_of_the_papers_has_a_test() -> None:
    text = (ROOT / "docs/papers.md").read_text("utf-8")
    assert len(TEST.findall(text)) > 60
    assert not statements_without_a_test(text)


def test_a_statement_without_a_test_is_found() -> None:
    table = "| statement | test |\n|---|---|\n| a | `tests/a.py::test_a` |\n| b | `tests/b.py` |"
    assert statements_without_a_test(table) == ["| b | `tests/b.py` |"]
