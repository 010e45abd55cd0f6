"""The containers of the compose cluster, what can be done to them, and a client from outside."""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lockgate_common.security import Credentials, TlsFiles, load_secret
from lockgate_devtools.equipment import container_links
from lockgate_devtools.equipment.container_links import Endpoint
from lockgate_devtools.equipment.engine import docker
from lockgate_proto.messages import RestartStrategy

from lockgate.client import Client, ClientError
from lockgate.errors import UserError
from tests.drained import PATIENCE_S
from tests.ledger_job import LedgerJob

COORDINATORS = ("coordinator-1", "coordinator-2", "coordinator-3")
ZOOKEEPERS = ("zookeeper-1", "zookeeper-2", "zookeeper-3")
TASK_MANAGERS = 3
WHOLE = Counter({**dict.fromkeys((*COORDINATORS, *ZOOKEEPERS), 1), "taskmanager": TASK_MANAGERS})
"""How many containers of each service run; the others have ended."""
SHARED = Path("/var/lib/lockgate")
LOOK_EVERY_S = 0.5  # a look calls the engine several times, on processors that everything here waits for


_HEAR_ONE = """
import socket
own = socket.socket(type=socket.SOCK_DGRAM)
own.bind(("", 0))
print(own.getsockname()[1])
print(own.recv(9).decode())
"""
_KNOCK = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], 9), 1)
except OSError as error:
    print(error)
"""


@dataclass(frozen=True, slots=True)
class Container:
    """One container as it is now.

    address: empty while it is not on the network; exit_code: of its last end, if any
    """

    id: str
    service: str
    is_running: bool
    is_paused: bool
    address: str
    health: str
    exit_code: int

    @property
    def endpoint(self) -> Endpoint:
        """What a cut takes."""
        return Endpoint(self.id, self.address)


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
        self._cuts: list[tuple[Endpoint, list[Endpoint]]] = []  # the victim, and what it is cut off from

    def __enter__(self) -> Fleet:
        self.wait_until(lambda: self._copy_credentials(), "the credentials are made")
        tls = TlsFiles(authority=str(self._folder / "ca.pem"))
        credentials = Credentials(secret=load_secret(self._folder / "secret", create=False), tls=tls)
        addresses = [f"localhost:{port}" for port in self._ports]
        self._client = Client(addresses, credentials=credentials, patience_ms=int(PATIENCE_S * 1000))
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()

    def _copy_credentials(self) -> bool:
        keeper = next((container for container in self.containers() if container.service in COORDINATORS), None)
        if keeper is None:
            return False
        try:
            for name in ("ca.pem", "secret"):
                docker("cp", f"{keeper.id}:/etc/lockgate/{name}", str(self._folder / name))
        except UserError:
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
        return tuple(
            sorted((_container(load) for load in found), key=lambda container: (container.service, container.id))
        )

    def of(self, *services: str) -> tuple[Container, ...]:
        """The containers of these services."""
        return tuple(container for container in self.containers() if container.service in services)

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
            found.extend(
                container.service for container in self.of(*ZOOKEEPERS) if container.is_running and _leads(container)
            )
            return bool(found)

        self.wait_until(look, "a ZooKeeper server leads")
        return found[0]

    def serves(self, service: str) -> bool:
        """Whether a ZooKeeper server is part of the quorum."""
        return any("Mode: " in _srvr(container) for container in self.of(service) if container.is_running)

    def is_in_line(self, coordinator: Container) -> bool:
        """Whether it takes part in the election: its session lives, whether it leads or stands by."""
        return coordinator.service in {coordinator.coordinator_id for coordinator in self.client.cluster().coordinators}

    def image_bytes(self) -> int:
        """The size of the image that all containers are made of."""
        image = docker("inspect", "--format", "{{.Image}}", self.one(COORDINATORS[0]).id).strip()
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
                states = ", ".join(
                    f"{container.service} running={container.is_running} {container.health}"
                    for container in self.containers()
                )
                raise AssertionError(f"not within {timeout_s:g} s: {what} ({states})")
            self._never.wait(LOOK_EVERY_S)

    def wait_complete(self) -> None:
        """Every coordinator is in line, every task manager registered."""

        def is_whole() -> bool:
            status = self.client.cluster()
            managers = {container.id[:12] for container in self.of("taskmanager") if container.is_running}
            registered = {task_manager.task_manager_id.removeprefix("tm-") for task_manager in status.task_managers}
            return (
                {coordinator.coordinator_id for coordinator in status.coordinators} >= set(COORDINATORS)
                and status.leader is not None
                and len(managers) == TASK_MANAGERS
                and registered == managers
            )

        try:
            self.wait_until(is_whole, "the cluster is whole", 2 * PATIENCE_S)  # after a start of every container
        except AssertionError as error:
            raise AssertionError(f"{error}; it tells of itself: {self.client.cluster()}") from None

    # -- faults -------------------------------------------------------------------------------------------------------

    def kill(self, container: Container) -> int:
        """SIGKILL for everything in it; wall clock in microseconds right before."""
        unix_us = time.time_ns() // 1000
        docker("kill", "-s", "KILL", container.id)
        return unix_us

    def start(self, *containers: Container) -> None:
        """Starts stopped ones."""
        docker("start", *[container.id for container in containers])

    def stop(self, *containers: Container) -> None:
        """SIGTERM, as an operator does it; returns when all have ended."""
        docker("stop", *[container.id for container in containers])

    def log(self, container: Container, since_unix_us: int = 0) -> str:
        """What it has said since then (wall clock), also in an earlier life."""
        since = f"{since_unix_us // 1_000_000}.{since_unix_us % 1_000_000:06}"
        command = ["docker", "logs", "--since", since, container.id]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return done.stdout + done.stderr

    def pause(self, container: Container) -> None:
        """Freezes every process in it. The engine gives up soon where they are busy; then it is asked again."""

        def frozen() -> bool:
            try:
                docker("pause", container.id)
            except UserError as error:
                if "unable to freeze" not in str(error):
                    raise
                return False
            return True

        self.wait_until(frozen, f"{container.service} is paused")

    def unpause(self, container: Container) -> None:
        """Lets them go on."""
        docker("unpause", container.id)

    def cut(self, container: Container, others: tuple[Container, ...]) -> None:
        """Packets between the container and the others are dropped silently."""
        sides = [other.endpoint for other in others if other.id != container.id and other.address]
        self._cuts.append((container.endpoint, sides))
        container_links.cut(container.endpoint, sides)

    def lets_out(self, container: Container, target: Container) -> bool:
        """Whether what the container sends to the other one arrives there.

        No time limit tells: a datagram that the other one sends to itself afterwards is there first, or is not.
        """
        command = ["docker", "exec", target.id, "python3", "-u", "-c", _HEAR_ONE]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as listener:
            assert listener.stdout is not None
            port = listener.stdout.readline().strip()
            docker("exec", container.id, "bash", "-c", f"printf other >/dev/udp/{target.address}/{port}")
            docker("exec", target.id, "bash", "-c", f"printf own >/dev/udp/127.0.0.1/{port}")
            return listener.stdout.readline().strip() == "other"

    def hears_nothing(self, container: Container, target: Container) -> bool:
        """Whether a new connection to a port without a listener hangs instead of being refused."""
        return "timed out" in docker("exec", container.id, "python3", "-c", _KNOCK, target.address)

    def heal(self) -> None:
        """Takes every cut back."""
        cuts, self._cuts = self._cuts, []
        for victim, others in cuts:
            container_links.heal(victim, others)

    def restore(self) -> None:
        """Every cut taken back, every container up; compose, which takes seconds, is asked only where one is not."""
        found = self.containers()
        for container in found:
            if container.is_paused:
                self.unpause(container)
        self.heal()
        if Counter(container.service for container in found if container.is_running) != WHOLE:
            self.compose(f"up -d --scale taskmanager={TASK_MANAGERS}")

    # -- jobs ---------------------------------------------------------------------------------------------------------

    def ledger(self, restart: RestartStrategy | None = None, seconds: float | None = None) -> LedgerJob:
        """Submits, from outside, a job; see LedgerJob for when it ends."""
        self._jobs += 1
        return LedgerJob(self, f"ledger-{self._jobs}", 500, restart=restart, seconds=seconds)

    def make_folder(self, key: str) -> Path:
        folder = SHARED / "ledgers" / key
        docker("exec", self.of("taskmanager")[0].id, "mkdir", "-p", str(folder))
        return folder

    def fetch(self, folder: Path) -> Path:
        copy = self._folder / folder.relative_to(SHARED)
        copy.parent.mkdir(parents=True, exist_ok=True)
        docker("cp", f"{self.of('taskmanager')[0].id}:{folder}", str(copy))
        return copy


def _leads(zookeeper: Container) -> bool:
    return "Mode: leader" in _srvr(zookeeper)


def _srvr(zookeeper: Container) -> str:
    """What the server says of itself; empty while it does not listen."""
    files = "-CAfile /etc/lockgate/ca.pem -cert /run/lockgate/host.pem -key /run/lockgate/host.key"
    script = f"printf srvr | openssl s_client -quiet -connect 127.0.0.1:2181 {files}"
    done = subprocess.run(["docker", "exec", zookeeper.id, "bash", "-c", script], capture_output=True, check=False)
    return done.stdout.decode(errors="replace")


def _container(found: dict[str, Any]) -> Container:
    state = found["State"]
    addresses = [network["IPAddress"] for network in found["NetworkSettings"]["Networks"].values()]
    return Container(
        found["Id"],
        found["Config"]["Labels"]["com.docker.compose.service"],
        state["Running"],
        state["Paused"],
        next((address for address in addresses if address), ""),
        state.get("Health", {}).get("Status", ""),
        state["ExitCode"],
    )
