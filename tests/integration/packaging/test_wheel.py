"""The wheel in an environment of its own: it brings nothing but `lockgate*`, and an author's modules hurt nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[3]
BUILT_FROM = (
    "lockgate",
    "proto",
    "common",
    "ha",
    "coordinator",
    "taskmanager",
    "devtools",
    "web",
    "pyproject.toml",
    "README.md",
    "LICENSE",
)
PACKAGES = {
    "lockgate",
    "lockgate_proto",
    "lockgate_common",
    "lockgate_ha",
    "lockgate_coordinator",
    "lockgate_taskmanager",
    "lockgate_devtools",
    "lockgate_web",
}
ROOMS = ("common", "coordinator", "devtools", "ha", "proto", "taskmanager", "tests", "examples", "benchmarks", "web")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel, and with the dependencies of this one but none of its sources; its Python."""
    folder = tmp_path_factory.mktemp("wheel")
    sources = folder / "sources"
    for name in BUILT_FROM:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, sources / name, ignore=shutil.ignore_patterns("__pycache__"))
        elif (ROOT / name).exists():
            shutil.copy(ROOT / name, sources / name)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    _run(*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder / "dist", sources)
    [wheel] = (folder / "dist").iterdir()
    venv.create(folder / "venv")
    [packages] = (folder / "venv" / "lib").glob("python*/site-packages")
    _run(*pip, "install", "--no-deps", "--target", packages, wheel)
    (packages / "dependencies.pth").write_text(str(Path(pyspark.__file__).parents[1]))
    return folder / "venv" / "bin" / "python"


def _run(*command: str | Path, cwd: Path | None = None) -> str:
    result = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, env=_environment())
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@contextmanager
def _cluster(python: Path, folder: Path) -> Iterator[None]:
    """`lockgate cluster` in the author's folder; stopped as Ctrl-C does."""
    command = [python, "-m", "lockgate", "cluster", "--coordinators", "1", "--taskmanagers", "1"]
    with subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=_environment()
    ) as process:
        assert process.stdout is not None
        try:
            printed = []
            for line in process.stdout:
                printed.append(line)
                if "ready" in line:
                    break
            else:
                pytest.fail("".join(printed))
            yield
        finally:
            process.terminate()


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def test_nothing_but_lockgate_is_importable_from_it(installed: Path) -> None:
    [packages] = (installed.parents[1] / "lib").glob("python*/site-packages")
    names = {path.name for path in packages.iterdir() if path.is_dir()} - {"__pycache__", "bin"}
    assert {name for name in names if not name.endswith(".dist-info")} == PACKAGES
    found = _run(
        installed,
        "-c",
        f"from importlib.util import find_spec; print([n for n in {ROOMS} if find_spec(n)])",
        cwd=packages,
    )
    assert found == "[]\n"


def test_modules_of_an_author_with_the_names_of_rooms_hurt_nothing(installed: Path, tmp_path: Path) -> None:
    for name in ROOMS:
        (tmp_path / f"{name}.py").write_text("raise SystemExit('an author\\'s module took the place of one of ours')")
    (tmp_path / "ha.py").write_text(
        "from pyspark.sql.functions import upper\n\n"
        "def loud(batch):\n    return batch.select(upper('value').alias('word'))\n"
    )
    (tmp_path / "words").mkdir()
    (tmp_path / "words" / "a.txt").write_text("one\ntwo\n")
    pipeline = tmp_path / "pipeline.py"
    pipeline.write_text(
        "import ha\n"
        "from lockgate import Job\n\n"
        "job = Job('words')\n"
        f"job.read_text({str(tmp_path / 'words')!r}).transform(lambda batch: ha.loud(batch))"
        f".write_csv({str(tmp_path / 'out')!r})\n"
        "job.submit()\n"
    )
    with _cluster(installed, tmp_path):
        _run(installed, "-m", "lockgate", "submit", pipeline, "--wait", cwd=tmp_path)
    written = [line for path in sorted((tmp_path / "out").glob("*.csv")) for line in path.read_text().splitlines()]
    assert sorted(line.strip('"') for line in written if "word" not in line) == ["ONE", "TWO"]
