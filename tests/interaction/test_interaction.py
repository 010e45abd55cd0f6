"""What each machine decides, event by event, is what the files say: see docs/traces.md."""

from __future__ import annotations

import difflib
from pathlib import Path

import pytest

from tests.interaction.interpreter import TESTDATA, played


@pytest.mark.parametrize("path", sorted(TESTDATA.glob("*.txt")), ids=lambda path: path.stem)
def test_a_script_leaves_the_trace_in_its_file(path: Path) -> None:
    before, now = path.read_text(encoding="utf-8"), played(path)
    if now != before:
        lines = difflib.unified_diff(before.splitlines(), now.splitlines(), path.name, "this code", lineterm="", n=1)
        again = f"if it is meant: python -m tests.interaction --rewrite {path.stem}"
        pytest.fail("\n".join([*lines, again]), pytrace=False)
