"""The house rules that a machine can check: layers, pure modules, homes of packages, sizes, docstrings, paths."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from lockgate.pipeline.pickled import _INSTALLED

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (
    "lockgate",
    "proto/lockgate_proto",
    "common/lockgate_common",
    "ha/lockgate_ha",
    "coordinator/lockgate_coordinator",
    "taskmanager/lockgate_taskmanager",
    "devtools/lockgate_devtools",
    "web/lockgate_web",
)
ROOMS = tuple(package.partition("/")[0] for package in PACKAGES)
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
# A module is pure when its docstring, or that of a package around it, says so.
PURE = re.compile(r"\bPure\b|\(pure\)|pure part")
SURELY_PURE = (
    "coordinator/lockgate_coordinator/graph/",
    "coordinator/lockgate_coordinator/checkpoint/",
    "coordinator/lockgate_coordinator/job/",
    "taskmanager/lockgate_taskmanager/barrier/",
    "taskmanager/lockgate_taskmanager/task/",
    "ha/lockgate_ha/election.py",
)
# Only here may these be imported, by a statement or by a string.
HOMES = {
    "opentelemetry": ("coordinator/lockgate_coordinator/runtime/trace_export.py",),
    "kazoo": ("ha/lockgate_ha/zookeeper/",),
    "py4j": ("taskmanager/lockgate_taskmanager/spark/",),
    "pyspark": ("taskmanager/lockgate_taskmanager/spark/", "devtools/"),
    "pyspark.cloudpickle": ("lockgate/pipeline/pickled.py", "lockgate/testing/travel.py"),
}
DOCUMENTS = ("README.md", "CONTRIBUTING.md", "docs/*.md", "*/README.md")
SOURCE_PATH = re.compile(r"`([\w./-]*\w\.(?:py|proto|sh))(?:::\w+|:\d+)?`")
READS_JSON = re.compile(r"\bjson(?:_format)?\.(?:loads?|Parse)\b")
MAX_LINES = 500
MAX_FUNCTION_LINES = 60


@cache
def _parsed() -> dict[str, tuple[str, ast.Module]]:
    """Source and tree of every module that is written by hand."""
    paths = [path for package in (*PACKAGES, "examples/frame") for path in sorted((ROOT / package).rglob("*.py"))]
    written = [path for path in paths if "lockgate_proto/v1" not in str(path) and path.name != "messages.py"]
    sources = {_name(path): path.read_text(encoding="utf-8") for path in written}
    return {name: (source, ast.parse(source)) for name, source in sources.items()}


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, check=False)


def _pure_modules() -> list[str]:
    said = {name for name, (_, tree) in _parsed().items() if PURE.search(ast.get_docstring(tree) or "")}
    packages = [name.removesuffix("__init__.py") for name in said if name.endswith("/__init__.py")]
    return [name for name in _parsed() if name in said or any(name.startswith(package) for package in packages)]


def _imports(tree: ast.Module) -> Iterator[str]:
    """Names of imported modules, also those that a string names for import_module() or __import__()."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
        elif isinstance(node, ast.Call) and node.args and _called(node.func) in ("import_module", "__import__"):
            argument = node.args[0]
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                yield argument.value


def _called(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def test_generated_code_matches_the_proto_files() -> None:
    result = _run(sys.executable, "proto/generate.py", "--check")
    assert result.returncode == 0, result.stderr


def test_the_layers_hold() -> None:
    result = _run(str(Path(sys.executable).with_name("lint-imports")))
    assert result.returncode == 0, result.stdout


def test_the_kazoo_contract_names_every_module_of_ha() -> None:
    settings = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    modules = {path.stem for path in (ROOT / "ha/lockgate_ha").iterdir() if not path.name.startswith("__")}
    named = set(re.findall(r'"lockgate_ha\.(\w+)"', settings))
    assert named == modules - {"zookeeper"}


def test_pure_modules_are_found() -> None:
    assert {name for name in _parsed() if name.startswith(SURELY_PURE)} <= set(_pure_modules())


def test_pure_modules_import_nothing_that_touches_the_world() -> None:
    guilty = [
        f"{name} imports {module}"
        for name in _pure_modules()
        for module in _imports(_parsed()[name][1])
        if module.partition(".")[0] in IMPURE_MODULES
    ]
    assert not guilty


def test_imports_by_a_string_are_found() -> None:
    tree = ast.parse("import importlib\nimportlib.import_module('pyspark.sql')\n__import__('kazoo')\nfrom a import b")
    assert list(_imports(tree)) == ["importlib", "a", "pyspark.sql", "kazoo"]


def test_packages_are_imported_in_their_homes_alone() -> None:
    def homes(module: str) -> tuple[str, ...]:
        """Of a package and of the modules in it; none for what may be imported anywhere."""
        return tuple(home for package in HOMES if f"{module}.".startswith(f"{package}.") for home in HOMES[package])

    guilty = [
        f"{name} imports {module}"
        for name, (_, tree) in _parsed().items()
        if not name.startswith("examples/")
        for module in _imports(tree)
        if homes(module) and not name.startswith(homes(module))
    ]
    assert not guilty


def test_files_and_functions_stay_small() -> None:
    large = [name for name, (source, _) in _parsed().items() if source.count("\n") > MAX_LINES]
    assert not large, "more than one noun in these files?"
    long = [
        f"{name}:{node.lineno} {node.name}"
        for name, (_, tree) in _parsed().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or node.lineno) - node.lineno >= MAX_FUNCTION_LINES
    ]
    assert not long


def test_modules_and_public_names_have_docstrings() -> None:
    silent = [name for name, (_, tree) in _parsed().items() if not ast.get_docstring(tree)]
    silent += [
        f"{name}:{node.lineno} {node.name}"
        for name, (_, tree) in _parsed().items()
        for node in tree.body
        if isinstance(node, ast.ClassDef | ast.FunctionDef)
        and not node.name.startswith("_")
        and not ast.get_docstring(node)
    ]
    assert not silent


def test_pickling_leaves_out_every_package_of_the_project() -> None:
    assert not [package for package in PACKAGES if not _INSTALLED.match(package.rpartition("/")[2])]


def test_every_room_states_its_purpose() -> None:
    assert not [room for room in ROOMS if not (ROOT / room / "README.md").is_file()]


def _is_found(path: str, document: str, files: set[str]) -> bool:
    """Whether a path, or the end of one, names one source file. In a room's README it is looked for in the room."""
    room = document.rpartition("/")[0] if document.endswith("/README.md") else ""
    packages = [package for package in PACKAGES if room and package.partition("/")[0] == room]
    if any(f"{folder}/{path}" in files for folder in (room, *packages)) or path in files:
        return True
    return sum(name.startswith(room) and name.endswith(f"/{path}") for name in files) == 1


def test_json_is_read_in_one_place() -> None:
    found = {name for name, (source, _) in _parsed().items() if READS_JSON.search(source)}
    assert found == {"common/lockgate_common/json_input.py", "examples/frame/example.py"}, "use parse_json"


def test_source_files_that_documents_name_exist() -> None:
    files = set(_run("git", "ls-files").stdout.split())
    documents = sorted({_name(path) for pattern in DOCUMENTS for path in ROOT.glob(pattern)} & files)
    named = {
        (document, path)
        for document in documents
        for path in SOURCE_PATH.findall((ROOT / document).read_text(encoding="utf-8"))
    }
    assert len(named) > 50
    assert not sorted(f"{document}: {path}" for document, path in named if not _is_found(path, document, files))


def test_a_short_path_in_a_document_names_one_file() -> None:
    files = {"ha/README.md", "ha/lockgate_ha/store.py", "ha/lockgate_ha/zookeeper/session.py", "lockgate/store.py"}
    found = [path for path in ("store.py", "zookeeper/session.py", "gone.py") if _is_found(path, "docs/x.md", files)]
    assert found == ["zookeeper/session.py"]
    assert _is_found("store.py", "ha/README.md", files)
    assert _is_found("lockgate/store.py", "ha/README.md", files)


def test_the_project_contains_no_path_of_one_machine() -> None:
    pattern = re.compile(r"(^|[^A-Za-z0-9_.])/(work|farm|root|home/[a-z]+)/")
    guilty = []
    for name in _run("git", "ls-files").stdout.split():
        path = ROOT / name
        if name != _name(Path(__file__)) and path.is_file():
            lines = path.read_text(encoding="utf-8", errors="ignore").splitlines()
            guilty += [f"{name}:{number}" for number, line in enumerate(lines, 1) if pattern.search(line)]
    assert not guilty
