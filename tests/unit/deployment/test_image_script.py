"""docker/build.sh: when a base image is made here, made anew, or left alone. No engine and no mirror is asked."""

from __future__ import annotations

import re
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
DAY_S = 86_400
# `docker` as far as the script asks it about the base: LABEL is unset without an image, empty for one without a label.
ENGINE = """
docker() {
    case "$1 $2" in
    "image inspect") [ -n "${LABEL+x}" ] && echo "$LABEL" ;;
    "pull --quiet") return 1 ;;
    esac
}
timeout() { shift; "$@"; }
make_base() { echo made; }
"""
SECURITY = 'wget() { echo "asked ${*: -1}"; return "$MISSING"; }; as_root() { if [ "$1" = tee ]; then "$@"; fi; }'


def in_script(commands: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """The script's functions, then these commands."""
    script = f"source docker/build.sh\n{commands}"
    environment = {"PATH": "/usr/bin:/bin", **variables}
    return subprocess.run(
        ["bash", "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


def ensured(commands: str = "", **variables: str) -> tuple[list[str], str]:
    """What happens to the base, and what is said to stderr."""
    done = in_script(f"{ENGINE}\n{commands}\nensure_base", **variables)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines(), done.stderr


def test_without_an_image_and_a_registry_the_base_is_made() -> None:
    assert ensured()[0] == ["pulling debian:bookworm-slim ...", "made"]


@pytest.mark.parametrize("age_s", [None, DAY_S])
def test_a_recent_base_image_is_left_alone(age_s: int | None) -> None:
    label = "" if age_s is None else str(int(time.time()) - age_s)
    assert ensured(LABEL=label) == ([], "")


def test_an_old_own_one_is_created_again() -> None:
    printed, _ = ensured(LABEL=str(int(time.time()) - 8 * DAY_S))
    assert printed[0] == "debian:bookworm-slim was built here 8 days ago: rebuilding it ..."
    assert printed[-1] == "made"
    assert ensured(LABEL=str(int(time.time()) - 8 * DAY_S), BASE_DAYS="9") == ([], "")


def test_an_old_one_stays_when_no_other_can_be_made() -> None:
    _, errors = ensured('make_base() { fail "no mirror"; }', LABEL=str(int(time.time()) - 8 * DAY_S))
    assert errors == "error: no mirror\nwarning: still using the debian:bookworm-slim of 8 days ago\n"


@pytest.mark.parametrize(
    ("mirror", "named", "expected"),
    [
        ("http://mirror.example/debian", "", "http://mirror.example/debian-security"),
        ("https://mirror.example/pub/debian/", "", "https://mirror.example/pub/debian-security"),
        ("http://mirror.example/debian", "http://other.example/updates", "http://other.example/updates"),
    ],
)
def test_security_updates_come_from_the_neighbouring_mirror(
    tmp_path: Path, mirror: str, named: str, expected: str
) -> None:
    sources = _sources(tmp_path, mirror)
    done = in_script(f"{SECURITY}\nadd_security_updates {tmp_path}", DEBIAN_SECURITY_MIRROR=named, MISSING="0")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"asked {expected}/dists/bookworm-security/InRelease\n"
    assert sources.read_text() == f"deb {mirror} bookworm main\ndeb {expected} bookworm-security main\n"


def test_without_updates_the_build_continues_and_says_so(tmp_path: Path) -> None:
    sources = _sources(tmp_path, "http://mirror.example/debian")
    done = in_script(f"{SECURITY}\nadd_security_updates {tmp_path}", MISSING="8")
    assert done.returncode == 0
    assert "warning: no security updates at http://mirror.example/debian-security:" in done.stderr
    assert sources.read_text() == "deb http://mirror.example/debian bookworm main\n"


def _sources(folder: Path, mirror: str) -> Path:
    """What debootstrap has left."""
    path = folder / "tree/etc/apt/sources.list"
    path.parent.mkdir(parents=True)
    path.write_text(f"deb {mirror} bookworm main\n")
    return path


def test_prepare_only_fetches_and_builds_nothing() -> None:
    script = """
    check_engine() { :; }; flock() { :; }; mkdir() { :; }; docker() { echo 1000000; }; context=/tmp
    ensure_base() { echo base; }; gather_dependencies() { echo wheels; }
    build_wheel() { echo own; }; build_image() { echo "image $1"; }
    main
    """
    for what, expected in (
        ("--prepare", ["base", "wheels"]),
        ("other:tag", ["base", "wheels", "own", "image other:tag"]),
    ):
        done = in_script(f"what={what}; python=/bin/true; {script}")
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.splitlines()[: len(expected)] == expected
        assert len(done.stdout.splitlines()) == len(expected) + (what != "--prepare")


@pytest.mark.spark  # the script reads the versions that are installed, PySpark's among them
def test_the_image_has_every_extra_that_the_documentation_says_it_has() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for python in ("3.11", "3.99"):  # the versions of this environment, and those of the project
        done = in_script(f"cd {ROOT}; python={sys.executable}; image_python={python}; requirements")
        assert done.returncode == 0, done.stderr
        names = {_package(line) for line in done.stdout.splitlines()}
        for extra in ("connect", "jwt", "kafka", "otel", "postgresql", "rocksdb"):
            assert {_package(wanted) for wanted in extras[extra]} <= names, (extra, python)
        assert "deltalake" not in names


def _package(requirement: str) -> str:
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert found is not None
    return found[0].lower().replace("_", "-")
