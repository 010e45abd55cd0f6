"""The graph in docs/grpc-api.md is what `lockgate submit --dry-run` writes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from lockgate.cli import run

ROOT = Path(__file__).resolve().parents[3]


def test_the_graph_of_the_page_is_that_of_the_example(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (ROOT / "docs/grpc-api.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"^```json\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    monkeypatch.chdir(tmp_path)
    assert run(["submit", str(ROOT / "examples/wordcount.py"), "--dry-run", "--", "/data/books"]) == 0
    made = capsys.readouterr().out.replace(str(tmp_path), "/data")
    assert json.loads(made) == json.loads(shown)


def test_its_core_sends_the_secret_with_the_call() -> None:
    page = (ROOT / "docs/grpc-api.md").read_text(encoding="utf-8")
    (core,) = re.findall(r"Its core:\n\n```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    compile(core, "grpc-api.md", "exec")
    assert 'submit(request, metadata=(("authorization", f"Bearer {secret}"),))' in core
