"""Prints the requirements of the pure tests, one a line: those of pyproject.toml, without large ones.

`make setup-pure` installs that; tests/unit/suite/test_quick_selection.py proves that the tests import nothing else.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

# The tests of these, and those that need Spark or Java, are marked `spark`.
LEFT_OUT = {"pyspark", "pandas"}
OF_EXTRAS = {
    "grpcio-tools",
    "hypothesis",
    "import-linter",
    "pyjwt",
    "pytest",
    "pytest-timeout",
    "pytest-xdist",
    "pyyaml",
    "rocksdict",
}


def requirements() -> tuple[list[str], list[str]]:
    """The requirements to install, and the others, as in pyproject.toml."""
    text = (Path(__file__).resolve().parents[1] / "pyproject.toml").read_text(encoding="utf-8")
    project = tomllib.loads(text)["project"]
    extras = [line for group in project["optional-dependencies"].values() for line in group]
    needed = [line for line in project["dependencies"] if name_of(line) not in LEFT_OUT]
    needed += [line for line in extras if name_of(line) in OF_EXTRAS]
    return needed, [line for line in (*project["dependencies"], *extras) if line not in needed]


def name_of(requirement: str) -> str:
    """Of the distribution."""
    return re.split(r"[\[<>=! ]", requirement, maxsplit=1)[0].lower()


if __name__ == "__main__":
    print("\n".join(requirements()[0]))
