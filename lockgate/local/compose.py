"""A cluster in containers, driven through whatever compose there is: `docker compose` or `docker-compose`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from lockgate_proto.security import Credentials, TlsFiles, load_secret

from lockgate.errors import UserError
from lockgate.local.ports import choose

COORDINATORS = ("coordinator-1", "coordinator-2", "coordinator-3")
ZOOKEEPERS = ("zookeeper-1", "zookeeper-2", "zookeeper-3")
_JOB_PORT = "7070"
_CREDENTIALS = "/etc/lockgate"
_STOP_S = 10


class ComposeCluster:
    """`with ComposeCluster(...)`: up at the start, everything gone at the end, volumes too.

    folder: kept here: an override file, the client's credentials, and `containers.log` at the end
    file: the compose file
    project: the name that its containers, volumes and network carry
    task_manager: settings of `[taskmanager]` that differ from the defaults
    input_folder: a folder of this machine that every process finds, read-only, under /input
    Every method raises UserError with the engine's own words where it refuses.
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
        self._command = [*compose_command(), "-p", project, "-f", str(file), "-f", str(override)]
        # Free ones, so that a cluster that runs already is not in the way; chosen here, because the engine would choose
        # others each time that a container is started.
        ports = {f"LOCKGATE_PORT_{number}": str(port) for number, port in enumerate(choose(len(COORDINATORS)), 1)}
        self._environment = {**os.environ, **ports, "LOCKGATE_INPUT": str(input_folder)}

    def __enter__(self) -> ComposeCluster:
        try:
            self.compose("down", "--volumes", "--timeout", "0")  # what an interrupted run has left
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
        """Where this machine reaches the coordinators."""
        return tuple(self.compose("port", name, _JOB_PORT).strip() for name in COORDINATORS)

    def credentials(self) -> Credentials:
        """What a client outside needs: copies of the secret and of the authority's certificate."""
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
        """SIGKILL for every process in it. The engine does not start it again."""
        self._run(["docker", "kill", container])

    def start(self, container: str) -> None:
        """Starts one that was killed."""
        self._run(["docker", "start", container])

    def network_addresses(self) -> dict[str, str]:
        """Container id to address inside the cluster's network; empty for one that is not on it."""
        ids = self.compose("ps", "-q").split()
        form = "{{.Id}} {{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}"
        lines = self._run(["docker", "inspect", "--format", form, *ids]).splitlines()
        return {line.partition(" ")[0]: line.partition(" ")[2] for line in lines}

    def is_healthy(self) -> bool:
        """Whether every container that runs has been found healthy by the engine."""
        ids = self.compose("ps", "-q").split()
        form = "{{if .State.Running}}{{.State.Health.Status}}{{end}}"
        return set(self._run(["docker", "inspect", "--format", form, *ids]).split()) == {"healthy"}

    def cut(self, container: str, addresses: Sequence[str]) -> None:
        """Whatever the container sends to these addresses vanishes without a sound from now on."""
        self._route("add", container, addresses)

    def heal(self, container: str, addresses: Sequence[str]) -> None:
        """Takes a `cut` back."""
        self._route("del", container, addresses)

    def _route(self, change: str, container: str, addresses: Sequence[str]) -> None:
        script = "\n".join(f"route {change} blackhole {address}/32" for address in addresses)
        # One command for all of them, so that they are cut in the same millisecond.
        self._run(["docker", "exec", "-u", "root", container, "sh", "-c", f"echo '{script}' | ip -batch -"])

    def run(self, *command: str) -> None:
        """Runs a command to its end in a container of its own."""
        self.compose("run", "--rm", "-T", "client", *command)

    def copy(self, container: str, path: str, target: Path) -> None:
        """Copies a file out of a container."""
        self._run(["docker", "cp", f"{container}:{path}", str(target)])

    def compose(self, *arguments: str) -> str:
        """One compose command on this cluster; what it prints."""
        return self._run([*self._command, *arguments])

    def _run(self, command: Sequence[str]) -> str:
        done = subprocess.run(
            command, env=self._environment, capture_output=True, text=True, errors="replace", check=False
        )
        if done.returncode != 0:
            said = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
            words = " ".join(one for one in command if one not in self._command[-6:])  # without -p and -f
            raise UserError(f"`{words}` failed: {'; '.join(said[-3:]) or 'without a word'}")
        return done.stdout

    def _take_down(self) -> None:
        try:
            logs = self.compose("logs", "--no-color", "--timestamps")
            (self._folder / "containers.log").write_text(logs)
        finally:
            self.compose("down", "--volumes", "--remove-orphans", "--timeout", str(_STOP_S))


def compose_command() -> list[str]:
    """`docker compose` where the client has it, else `docker-compose`. Raises UserError."""
    if shutil.which("docker") is None:
        raise UserError("no container engine: install docker (Debian: apt-get install docker.io docker-compose)")
    if subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode == 0:
        return ["docker", "compose"]
    if shutil.which("docker-compose") is None:
        raise UserError("neither `docker compose` nor `docker-compose` is here: install one of them")
    return ["docker-compose"]


def _override(task_manager: Mapping[str, object]) -> dict[str, Any]:
    """Settings as variables, in a file that is read after the real one. JSON is YAML."""
    variables = {f"LOCKGATE_TASKMANAGER_{name.upper()}": str(value) for name, value in task_manager.items()}
    return {"version": "3.8", "services": {"taskmanager": {"environment": variables}}}
