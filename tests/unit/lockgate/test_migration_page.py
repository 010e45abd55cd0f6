"""The examples of docs/structured-streaming.md: what is written for Lockgate makes a valid job, the rest is Python."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from lockgate_coordinator.graph.validate import validate

from lockgate import Job

pytestmark = pytest.mark.spark  # functions are pickled with PySpark

PAGE = Path(__file__).resolve().parents[3] / "docs/structured-streaming.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
OURS = [text for text in EXAMPLES if "from lockgate import" in text]


def test_each_example_is_there_in_both() -> None:
    assert len(OURS) == len(EXAMPLES) - len(OURS) >= 4


@pytest.mark.parametrize("text", EXAMPLES, ids=range(len(EXAMPLES)))
def test_each_example_is_python(text: str) -> None:
    compile(text, str(PAGE), "exec")


@pytest.mark.parametrize("text", OURS, ids=[re.findall(r'Job\("(\w+)"', text)[0] for text in OURS])
def test_each_of_ours_makes_a_valid_job(text: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made: list[Any] = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Job, "submit", lambda job: made.append(job.graph()))
    exec(compile(text, str(tmp_path / "pipeline.py"), "exec"), {"__name__": "__main__"})
    (graph,) = made
    assert validate(graph) == ()
