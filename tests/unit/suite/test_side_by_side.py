"""`.ci/run` runs its parts side by side: a log that can be read, and no failure that is not seen."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PARTS = """
first second third:
\t@scripts/part.sh $@ bash -c 'echo $@ begins; {wait}; echo $@ ends; exit {code}'
"""
MEETING = "touch {folder}/$@; while [ $$(ls {folder} | wc -l) -lt 3 ]; do sleep 0.01; done"  # until all three run


def side_by_side(folder: Path, wait: str, code: str) -> subprocess.CompletedProcess[str]:
    makefile = folder / "parts.mk"
    makefile.write_text(PARTS.format(wait=wait, code=code))
    command = ["scripts/side_by_side.sh", str(makefile), "first", "second", "third"]
    environment = {**os.environ, "PARTS_AT_A_TIME": "3"}
    return subprocess.run(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )


def test_output_of_each_part_is_in_one_piece_although_all_run_at_once(tmp_path: Path) -> None:
    meeting = tmp_path / "meeting"
    meeting.mkdir()
    done = side_by_side(tmp_path, MEETING.format(folder=meeting), "0")
    assert done.returncode == 0, done.stdout
    for name in ("first", "second", "third"):
        assert re.search(rf"^{name} begins\n{name} ends\n== {name}: .* of processors$", done.stdout, re.MULTILINE)
    assert "failed" not in done.stdout


def test_a_part_that_fails_is_named_in_the_last_line_and_the_others_run(tmp_path: Path) -> None:
    order = f"[ $@ != second ] || while [ ! -e {tmp_path}/first ]; do sleep 0.01; done; touch {tmp_path}/$@"
    done = side_by_side(tmp_path, order, "$$([ $@ = third ]; echo $$((1 - $$?)))")
    assert done.returncode != 0
    assert "second ends" in done.stdout
    last = done.stdout.splitlines()[-1]
    assert last == "== failed, in this order: third", done.stdout


@pytest.mark.parametrize("code", [0, 3])
def test_a_part_exits_like_its_command_and_reports_its_cost(code: int, tmp_path: Path) -> None:
    parts = tmp_path / "parts"
    command = ["scripts/part.sh", "some tests", "bash", "-c", f"echo said; echo wrong >&2; exit {code}"]
    environment = {**os.environ, "PARTS_LOG": str(parts)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert done.stdout == "said\n"
    wrong, cost = done.stderr.splitlines()
    assert wrong == "wrong"
    end = f", FAILED with exit code {code}" if code else ""
    assert re.fullmatch(rf"== some tests: \dm\d+s on the clock, \dm\d+s \+ \dm\d+s of processors{end}", cost)
    assert parts.read_text() == f"{cost}\n"


def test_ci_knows_how_to_make_each_of_its_parts() -> None:
    text = (ROOT / ".ci" / "run").read_text()
    parts = {name for line in re.findall(r"parts=\(([^)]*)\)", text) for name in re.findall(r"\b[a-z]+\b", line)}
    parts -= {"parts"}
    assert {"docker", "chaos", "integration", "lint", "pure", "mutants", "examples"} <= parts
    known = (ROOT / ".ci" / "parts.mk").read_text()
    for part in parts:
        assert re.search(rf"^[a-z ]*\b{part}\b[a-z ]*:$", known, re.MULTILINE), part
