"""The house rules that a machine can check: layers, pure rooms, file sizes, generated code, no machine's paths."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("lockgate", "coordinator", "taskmanager", "ha", "lockgate_process", "proto/lockgate_proto", "examples/frame")
PURE = (
    "coordinator/graph",
    "coordinator/checkpoint",
    "coordinator/recovery",
    "taskmanager/barrier",
    "taskmanager/task",
    "ha/election.py",
)
IMPURE_MODULES = {
    "time",
    "random",
    "secrets",
    "threading",
    "queue",
    "logging",
    "socket",
    "subprocess",
    "os",
    "grpc",
    "kazoo",
    "asyncio",
    "uuid",
}
MAX_LINES = 500
MAX_FUNCTION_LINES = 60


def _python_files(*places: str) -> list[Path]:
    found: list[Path] = []
    for place in places:
        path = ROOT / place
        found += [path] if path.is_file() else sorted(path.rglob("*.py"))
    return [path for path in found if "lockgate_proto/v1" not in str(path) and path.name != "messages.py"]


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, check=False)


def test_generated_code_is_what_the_proto_files_give() -> None:
    result = _run(sys.executable, "proto/generate.py", "--check")
    assert result.returncode == 0, result.stderr


def test_the_layers_hold() -> None:
    result = _run(str(Path(sys.executable).with_name("lint-imports")))
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize("path", _python_files(*PURE), ids=_name)
def test_pure_rooms_import_nothing_that_touches_the_world(path: Path) -> None:
    imported = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            imported |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            imported.add(node.module.split(".")[0])
    assert not imported & IMPURE_MODULES


@pytest.mark.parametrize("path", _python_files(*ROOMS), ids=_name)
def test_files_and_functions_stay_small(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    assert source.count("\n") <= MAX_LINES, "more than one noun in this file?"
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            assert length <= MAX_FUNCTION_LINES, f"{node.name} has {length} lines"


@pytest.mark.parametrize("path", _python_files(*ROOMS), ids=_name)
def test_public_names_have_docstrings(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert ast.get_docstring(tree), "the module says nothing of what it is for"
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
            assert ast.get_docstring(node), f"{node.name} has no docstring"


def test_no_path_of_one_machine_stands_in_the_project() -> None:
    tracked = _run("git", "ls-files").stdout.split()
    pattern = re.compile(r"(^|[^A-Za-z0-9_.])/(work|farm|root|home/[a-z]+)/")
    here = _name(Path(__file__))
    guilty = []
    for name in tracked:
        path = ROOT / name
        if name != here and path.is_file():
            text = path.read_text(encoding="utf-8", errors="ignore")
            guilty += [f"{name}:{number}" for number, line in enumerate(text.splitlines(), 1) if pattern.search(line)]
    assert not guilty
