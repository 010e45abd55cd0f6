"""A cluster in containers, controlled with the available compose command: `docker compose` or `docker-compose`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from lockgate_common.security import Credentials, TlsFiles, load_secret

from lockgate.errors import UserError
from lockgate.settings import ENVIRONMENT_PREFIX
from lockgate_devtools.cluster.ports import choose
from lockgate_devtools.equipment.container_links import Endpoint
from lockgate_devtools.equipment.engine import docker, last_lines

COORDINATORS = ("coordinator-1", "coordinator-2", "coordinator-3")
ZOOKEEPERS = ("zookeeper-1", "zookeeper-2", "zookeeper-3")
_JOB_PORT = "7070"
_CREDENTIALS = "/etc/lockgate"
_STOP_S = 10
# The only setting of a user that applies to these clusters, too.
_KEPT = "LOCKGATE_IMAGE"
_PROFILES = "COMPOSE_PROFILES"


class ComposeCluster:
    """`with ComposeCluster(...)`: up at the start, removed at the end, volumes included.

    folder: for an override file, the client's credentials, and `containers.log` at the end
    file: the compose file
    project: the name of its containers, volumes and network
    task_manager: settings of `[taskmanager]` that differ from the defaults
    input_folder: a folder of this machine, mounted read-only at /input in every container
    Settings of the shell and of the `.env` beside the compose file are ignored, see `own_settings`. Every method raises
    UserError with the engine's message when it fails.
    """

    def __init__(
        self, folder: Path, file: Path, project: str, *, task_manager: Mapping[str, object], input_folder: Path
    ) -> None:
        if not file.is_file():
            raise UserError(f"{file} is missing: containers are started from a copy of Lockgate's sources")
        self._folder = folder
        override = folder / "compose.override.json"
        folder.mkdir(parents=True, exist_ok=True)
        override.write_text(json.dumps(_override(task_manager)))
        self._compose = compose_command()
        files = ["-f", str(file), "-f", str(override)]
        self._command = [*self._compose, "--env-file", str(empty_settings(folder)), "-p", project, *files]
        # Free ports, to avoid conflicts with a running cluster; chosen here, because the engine would choose others
        # each time that a container is started.
        ports = {f"LOCKGATE_PORT_{number}": str(port) for number, port in enumerate(choose(len(COORDINATORS)), 1)}
        self._environment = own_settings(os.environ) | ports | {"LOCKGATE_INPUT": str(input_folder)}

    def __enter__(self) -> ComposeCluster:
        try:
            self.compose("down", "--volumes", "--timeout", "0")  # left by an interrupted run
            self.compose("up", "--detach")
        except BaseException:
            self._take_down()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._take_down()

    def addresses(self) -> tuple[str, ...]:
        """The coordinators' addresses as seen from this machine."""
        return tuple(self.compose("port", name, _JOB_PORT).strip() for name in COORDINATORS)

    def credentials(self) -> Credentials:
        """Credentials for external clients: copies of the secret and of the authority's certificate."""
        folder = self._folder / "credentials"
        folder.mkdir(mode=0o700)
        for name in ("secret", "ca.pem"):
            path = folder / name
            path.touch(mode=0o600)
            path.write_text(self.compose("exec", "-T", COORDINATORS[0], "cat", f"{_CREDENTIALS}/{name}"))
        secret = load_secret(folder / "secret", create=False)
        return Credentials(secret=secret, tls=TlsFiles(authority=str(folder / "ca.pem")))

    def containers(self, service: str) -> tuple[str, ...]:
        """The ids of a service's containers."""
        return tuple(self.compose("ps", "-q", service).split())

    def kill(self, container: str) -> None:
        """SIGKILL for every process in the container. The engine does not restart it."""
        docker("kill", container)

    def start(self, container: str) -> None:
        """Starts a killed container."""
        docker("start", container)

    def endpoints(self) -> tuple[Endpoint, ...]:
        """Every container on the cluster's network."""
        ids = self.compose("ps", "-q").split()
        form = "{{.Id}} {{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}"
        found = (line.partition(" ") for line in docker("inspect", "--format", form, *ids).splitlines())
        return tuple(Endpoint(container, address) for container, _, address in found if address)

    def is_healthy(self) -> bool:
        """Whether the engine reports every running container as healthy."""
        ids = self.compose("ps", "-q").split()
        form = "{{if .State.Running}}{{.State.Health.Status}}{{end}}"
        return set(docker("inspect", "--format", form, *ids).split()) == {"healthy"}

    def run(self, *command: str) -> None:
        """Runs a command to its end in a new container."""
        self.compose("run", "--rm", "-T", "client", *command)

    def copy(self, container: str, path: str, target: Path) -> None:
        """Copies a file out of a container."""
        docker("cp", f"{container}:{path}", str(target))

    def compose(self, *arguments: str) -> str:
        """One compose command on this cluster; returns its output."""
        done = subprocess.run(
            [*self._command, *arguments],
            env=self._environment,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        if done.returncode != 0:
            words = " ".join([*self._compose, *arguments])
            raise UserError(f"`{words}` failed: {last_lines(done.stderr + done.stdout)}")
        return done.stdout

    def _take_down(self) -> None:
        try:
            logs = self.compose("logs", "--no-color", "--timestamps")
            (self._folder / "containers.log").write_text(logs)
        finally:
            self.compose("down", "--volumes", "--remove-orphans", "--timeout", str(_STOP_S))


def own_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without variables that would change a cluster of the compose file.

    These are all `LOCKGATE_...` variables except LOCKGATE_IMAGE, and the profiles. For clusters that a tool starts for
    itself.
    """
    return {
        name: value
        for name, value in environment.items()
        if name == _KEPT or not (name == _PROFILES or name.startswith(ENVIRONMENT_PREFIX))
    }


def empty_settings(folder: Path) -> Path:
    """An empty file for compose's `--env-file`, which replaces the `.env` beside the compose file."""
    path = folder / "no.env"
    path.touch()
    return path


def compose_command() -> list[str]:
    """`docker compose` if the client has it, otherwise `docker-compose`. Raises UserError."""
    if shutil.which("docker") is None:
        raise UserError("no container engine: install docker (Debian: apt-get install docker.io docker-compose)")
    if subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode == 0:
        return ["docker", "compose"]
    if shutil.which("docker-compose") is None:
        raise UserError("neither `docker compose` nor `docker-compose` is installed: install one of them")
    return ["docker-compose"]


def _override(task_manager: Mapping[str, object]) -> dict[str, Any]:
    """Settings as variables, in a file that is read after the compose file. JSON is valid YAML."""
    variables = {f"LOCKGATE_TASKMANAGER_{name.upper()}": str(value) for name, value in task_manager.items()}
    return {"version": "3.8", "services": {"taskmanager": {"environment": variables}}}
