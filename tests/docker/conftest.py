"""The compose cluster for all tests of this folder: built, brought up once, taken down at the end with its volumes."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lockgate_devtools.cluster.ports import choose
from lockgate_devtools.equipment.compose import compose_command, empty_settings, own_settings

from tests.docker.fleet import Fleet

ROOT = Path(__file__).parents[2]
REQUIRED = "LOCKGATE_TEST_DOCKER"
"""Set to `required` where a skip is to count as a failure."""


@pytest.fixture(scope="session")
def docker_compose_command(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """`docker compose` or `docker-compose`; skips with the reason where no engine runs.

    Of the settings in the shell and in docker/.env only LOCKGATE_IMAGE reaches the cluster.
    """
    reason = _why_not()
    if reason:
        if os.environ.get(REQUIRED) == "required":
            pytest.fail(reason)
        pytest.skip(reason)
    with pytest.MonkeyPatch.context() as patch:
        for name in set(os.environ) - set(own_settings(os.environ)):
            patch.delenv(name)
        yield " ".join([*compose_command(), "--env-file", str(empty_settings(tmp_path_factory.mktemp("settings")))])


def _why_not() -> str:
    if shutil.which("docker") is None:
        return "no container engine: docker is not installed"
    said = subprocess.run(
        ["docker", "version", "--format", "{{.Server.Version}}"], capture_output=True, text=True, check=False
    )
    if said.returncode != 0:
        return f"the container engine does not answer: {said.stderr.strip().splitlines()[-1:]}"
    v2 = subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode == 0
    if not v2 and shutil.which("docker-compose") is None:
        return "neither docker compose nor docker-compose is installed"
    return ""


@pytest.fixture(scope="session")
def docker_compose_file() -> list[str]:
    """The one that users have, and what makes it cheaper for tests."""
    return [str(ROOT / "docker" / "compose.yaml"), str(Path(__file__).with_name("tests.yaml"))]


@pytest.fixture(scope="session")
def docker_compose_project_name() -> str:
    """Of this run alone: containers, volumes and networks that an earlier one has left are not its own."""
    return f"lockgate-test-{secrets.token_hex(4)}"


@pytest.fixture(scope="session")
def ports() -> tuple[int, ...]:
    """Three free ports of this machine, the same for a coordinator each time that it starts."""
    return choose(3)  # none that an outgoing connection could take while a coordinator is down


@pytest.fixture(scope="session")
def docker_setup(docker_compose_command: str, ports: tuple[int, ...]) -> list[str]:
    """Builds the image first, unless LOCKGATE_IMAGE names one.

    Compose v1 does not know `up --wait`, so the fleet waits itself.
    """
    del docker_compose_command  # it skips before anything is built
    os.environ.update({f"LOCKGATE_PORT_{number}": str(port) for number, port in enumerate(ports, 1)})
    if "LOCKGATE_IMAGE" not in os.environ:
        subprocess.run([str(ROOT / "docker" / "build.sh")], cwd=ROOT, check=True)
    return ["up -d --scale taskmanager=3"]


@pytest.fixture(scope="session")
def docker_cleanup() -> list[str]:
    """Containers, networks and volumes."""
    return ["down -v -t 5"]


@pytest.fixture(scope="session")
def fleet(
    docker_services: Any,
    docker_compose_project_name: str,
    ports: tuple[int, ...],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Fleet]:
    """The running cluster."""
    compose = docker_services._docker_compose
    with Fleet(docker_compose_project_name, compose.execute, ports, tmp_path_factory.mktemp("fleet")) as made:
        yield made


@pytest.fixture
def whole(fleet: Fleet) -> Iterator[Fleet]:
    """The cluster with every process up and every cut healed; also afterwards, whatever a test has done."""
    fleet.restore()
    fleet.wait_complete()
    yield fleet
    fleet.restore()
