"""The containers of the compose cluster, what can be done to them, and a client from outside."""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lockgate_proto.security import Credentials, TlsFiles, load_secret

from lockgate.client import Client, ClientError
from tests.ledger_job import PATIENCE_S, LedgerJob

COORDINATORS = ("coordinator-1", "coordinator-2", "coordinator-3")
ZOOKEEPERS = ("zookeeper-1", "zookeeper-2", "zookeeper-3")
TASK_MANAGERS = 3
SHARED = Path("/var/lib/lockgate")
LOOK_EVERY_S = 0.1


def docker(*arguments: str) -> str:
    """Runs the engine's client; its output. Raises AssertionError with what it said."""
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"docker {' '.join(arguments)}: {done.stderr.strip()}"
    return done.stdout.strip()


@dataclass(frozen=True, slots=True)
class Container:
    """One container as it is now. address: empty while it is not on the network."""

    id: str
    service: str
    is_running: bool
    is_paused: bool
    address: str
    health: str


class Fleet:
    """Tasks see it as tests.ledger_job.Field."""

    def __init__(self, project: str, compose: Callable[[str], Any], ports: tuple[int, ...], folder: Path) -> None:
        self._project = project
        self._compose = compose
        self._ports = ports
        self._folder = folder
        self._jobs = 0
        self._never = threading.Event()
        self._client: Client | None = None
        self._cuts: list[tuple[str, list[str]]] = []  # container, addresses it is cut off from

    def __enter__(self) -> Fleet:
        self.wait_until(lambda: self._copy_credentials(), "the credentials are made")
        tls = TlsFiles(authority=str(self._folder / "ca.pem"))
        credentials = Credentials(secret=load_secret(self._folder / "secret", create=False), tls=tls)
        self._client = Client([f"localhost:{port}" for port in self._ports], credentials=credentials)
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()

    def _copy_credentials(self) -> bool:
        keeper = next((one for one in self.containers() if one.service in COORDINATORS), None)
        if keeper is None:
            return False
        try:
            for name in ("ca.pem", "secret"):
                docker("cp", f"{keeper.id}:/etc/lockgate/{name}", str(self._folder / name))
        except AssertionError:
            return False
        (self._folder / "secret").chmod(0o600)
        return True

    @property
    def client(self) -> Client:
        """From outside, through the published ports; follows the leader."""
        assert self._client is not None
        return self._client

    # -- containers ---------------------------------------------------------------------------------------------------

    def containers(self) -> tuple[Container, ...]:
        """All of them, also stopped ones."""
        ids = docker("ps", "-aq", "--filter", f"label=com.docker.compose.project={self._project}").split()
        found = json.loads(docker("inspect", *ids)) if ids else []
        return tuple(sorted((_container(one) for one in found), key=lambda one: (one.service, one.id)))

    def of(self, *services: str) -> tuple[Container, ...]:
        """The containers of these services."""
        return tuple(one for one in self.containers() if one.service in services)

    def one(self, service: str) -> Container:
        """The only container of a service."""
        (found,) = self.of(service)
        return found

    def leader(self) -> Container:
        """The container of the leading coordinator."""
        return self.one(self.leader_name())

    def leader_name(self) -> str:
        """Its service, which is its coordinator id, too."""
        names: list[str] = []

        def look() -> bool:
            leader = self.client.cluster().leader
            names.extend([leader.coordinator_id] if leader is not None else [])
            return leader is not None

        self.wait_until(look, "a coordinator leads")
        return names[-1]

    def zookeeper_leader(self) -> str:
        """The service of the ensemble's leader, once there is one."""
        found: list[str] = []

        def look() -> bool:
            found.extend(one.service for one in self.of(*ZOOKEEPERS) if one.is_running and _leads(one))
            return bool(found)

        self.wait_until(look, "a ZooKeeper server leads")
        return found[0]

    def serves(self, service: str) -> bool:
        """Whether a ZooKeeper server is part of the quorum."""
        return any("Mode: " in _srvr(one) for one in self.of(service) if one.is_running)

    def image_bytes(self) -> int:
        """The size of the image that all containers are made of."""
        image = docker("inspect", "--format", "{{.Image}}", self.one(COORDINATORS[0]).id)
        return int(docker("image", "inspect", "--format", "{{.Size}}", image))

    def compose(self, command: str) -> None:
        """A subcommand of compose for the project."""
        self._compose(command)

    def wait_until(self, condition: Callable[[], bool], what: str, timeout_s: float = PATIENCE_S) -> None:
        """Waits until the condition holds; errors of the client count as "not yet"."""
        deadline = time.monotonic() + timeout_s
        while True:
            with contextlib.suppress(ClientError):
                if condition():
                    return
            if time.monotonic() > deadline:
                told = ", ".join(f"{one.service} running={one.is_running} {one.health}" for one in self.containers())
                raise AssertionError(f"not within {timeout_s:g} s: {what} ({told})")
            self._never.wait(LOOK_EVERY_S)

    def wait_whole(self) -> None:
        """Every coordinator is in line, every task manager registered."""

        def is_whole() -> bool:
            status = self.client.cluster()
            managers = {one.id[:12] for one in self.of("taskmanager") if one.is_running}
            registered = {one.task_manager_id.removeprefix("tm-") for one in status.task_managers}
            return (
                {one.coordinator_id for one in status.coordinators} >= set(COORDINATORS)
                and status.leader is not None
                and len(managers) == TASK_MANAGERS
                and registered == managers
            )

        self.wait_until(is_whole, "the cluster is whole")

    # -- faults -------------------------------------------------------------------------------------------------------

    def kill(self, container: Container) -> int:
        """SIGKILL for everything in it; wall clock in microseconds right before."""
        unix_us = time.time_ns() // 1000
        docker("kill", "-s", "KILL", container.id)
        return unix_us

    def start(self, *containers: Container) -> None:
        """Starts stopped ones."""
        docker("start", *[one.id for one in containers])

    def stop(self, *containers: Container) -> None:
        """SIGTERM, as an operator does it."""
        docker("stop", *[one.id for one in containers])

    def pause(self, container: Container) -> None:
        """Freezes every process in it."""
        docker("pause", container.id)

    def unpause(self, container: Container) -> None:
        """Lets them go on."""
        docker("unpause", container.id)

    def cut(self, container: Container, others: tuple[Container, ...]) -> None:
        """Whatever the container sends to the others vanishes without a sound; nobody is told."""
        addresses = [other.address for other in others if other.id != container.id and other.address]
        self._cuts.append((container.id, addresses))
        _route("add", container.id, addresses)

    def heal(self) -> None:
        """Takes every cut back."""
        cuts, self._cuts = self._cuts, []
        for container, addresses in cuts:
            with contextlib.suppress(AssertionError):  # a container that was restarted has lost the cut by itself
                _route("del", container, addresses)

    def mend(self) -> None:
        """Every cut taken back, every container up."""
        self.heal()
        for one in self.containers():
            if one.is_paused:
                self.unpause(one)
        self.compose(f"up -d --scale taskmanager={TASK_MANAGERS}")

    # -- jobs ---------------------------------------------------------------------------------------------------------

    def ledger(self, seconds: float, interval_ms: int = 500) -> LedgerJob:
        """Submits, from outside, a job whose input takes so long."""
        self._jobs += 1
        return LedgerJob(self, f"ledger-{self._jobs}", seconds, interval_ms)

    def make_folder(self, key: str) -> Path:
        """See tests.ledger_job.Field."""
        folder = SHARED / "ledgers" / key
        docker("exec", self.of("taskmanager")[0].id, "mkdir", "-p", str(folder))
        return folder

    def fetch(self, folder: Path) -> Path:
        """See tests.ledger_job.Field."""
        copy = self._folder / folder.name
        docker("cp", f"{self.of('taskmanager')[0].id}:{folder}", str(copy))
        return copy


def _leads(zookeeper: Container) -> bool:
    return "Mode: leader" in _srvr(zookeeper)


def _srvr(zookeeper: Container) -> str:
    """What the server says of itself; empty while it does not listen."""
    script = "exec 3<>/dev/tcp/127.0.0.1/2181 && printf srvr >&3 && cat <&3"
    done = subprocess.run(["docker", "exec", zookeeper.id, "bash", "-c", script], capture_output=True, check=False)
    return done.stdout.decode(errors="replace")


def _route(change: str, container: str, addresses: list[str]) -> None:
    """One command for all addresses, so that they are cut in the same millisecond."""
    script = "\n".join(f"route {change} blackhole {address}/32" for address in addresses)
    docker("exec", "-u", "root", container, "sh", "-c", f"echo '{script}' | ip -batch -")


def _container(found: dict[str, Any]) -> Container:
    state = found["State"]
    addresses = [one["IPAddress"] for one in found["NetworkSettings"]["Networks"].values()]
    return Container(
        found["Id"],
        found["Config"]["Labels"]["com.docker.compose.service"],
        state["Running"],
        state["Paused"],
        next((one for one in addresses if one), ""),
        state.get("Health", {}).get("Status", ""),
    )
