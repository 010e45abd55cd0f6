"""A ZooKeeper server from PySpark's own jars, as a child process: standalone, or as a member of an ensemble."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from lockgate_common import folder_lock, ports, private_folder
from lockgate_common.tls import TlsFiles, client_context
from lockgate_ha.errors import StoreUnavailable, ZooKeeperStartError
from lockgate_ha.zookeeper.closing import close_to_strangers, super_digest

from lockgate_devtools.zookeeper import tls as tls_side
from lockgate_devtools.zookeeper import zoo_cfg

logger = logging.getLogger(__name__)

MIN_JAVA = 17
MIN_FREE_BYTES = 64 * 1024 * 1024
_PATIENCE_S = 5.0  # seconds to wait for a server that is still ending in the same folder
_INSTALL_JAVA = "install OpenJDK 17 (Debian, Ubuntu: apt-get install openjdk-17-jre-headless) or set JAVA_HOME"
_JARS = (
    "zookeeper-*",
    "slf4j-api-*",
    "log4j-api-*",
    "log4j-core-*",
    "log4j-slf4j2-impl-*",
    "metrics-core-*",
    "snappy-java-*",
    "commons-io-*",
    "netty-handler-*",
    "netty-common-*",
    "netty-buffer-*",
    "netty-transport-*",
    "netty-codec-*",
    "netty-resolver-*",
)
_LOGGING = """\
status = warn
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.target = SYSTEM_ERR
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d %-5p %c{1} %m%n
"""


def jar_folder() -> Path:
    """The folder of PySpark's jars, found without importing PySpark. Raises ZooKeeperStartError."""
    found = importlib.util.find_spec("pyspark")
    if found is None or not found.submodule_search_locations:
        raise ZooKeeperStartError("PySpark is not installed here, so there is no ZooKeeper to start: install pyspark")
    folder = Path(found.submodule_search_locations[0]) / "jars"
    if not list(folder.glob("zookeeper-3*.jar")):
        raise ZooKeeperStartError(f"{folder} contains no ZooKeeper: install the complete pyspark (not pyspark-client)")
    return folder


def find_java(environ: Mapping[str, str] = os.environ) -> Path:
    """The `java` to run: from JAVA_HOME, otherwise from PATH.

    Raises ZooKeeperStartError when there is none or it is too old.
    """
    home = environ.get("JAVA_HOME")
    if home:
        java: Path | None = Path(home) / "bin" / "java"
        if java is not None and not os.access(java, os.X_OK):
            raise ZooKeeperStartError(f"JAVA_HOME is {home}, but {java} cannot be run: {_INSTALL_JAVA}")
    else:
        on_path = shutil.which("java", path=environ.get("PATH"))
        java = Path(on_path) if on_path else None
    if java is None:
        raise ZooKeeperStartError(f"Java was not found: {_INSTALL_JAVA}")
    version = java_version(java)
    if version is not None and version < MIN_JAVA:
        raise ZooKeeperStartError(f"{java} is Java {version}, but Java {MIN_JAVA} or later is needed: {_INSTALL_JAVA}")
    return java


def java_version(java: Path) -> int | None:
    """The major version, from the `release` file beside the runtime; None when it is not included."""
    try:
        text = (java.resolve().parent.parent / "release").read_text()
    except OSError:
        return None
    found = re.search(r'JAVA_VERSION="(?:1\.)?(\d+)', text)
    return int(found.group(1)) if found else None


def free_ports(count: int, bind: str = "127.0.0.1") -> tuple[int, ...]:
    """TCP ports that are currently free. Raises ZooKeeperStartError."""
    try:
        return ports.choose(bind, count)
    except ports.NoFreePort as error:
        raise ZooKeeperStartError(str(error)) from error


def is_serving(host: str, port: int, timeout_s: float = 1.0, tls: ssl.SSLContext | None = None) -> bool:
    """Whether the ZooKeeper server there answers requests now (in an ensemble: whether it is part of the quorum).

    Raises SSLCertVerificationError when it is not the server that it should be.
    """
    try:
        with contextlib.ExitStack() as stack:
            connection = stack.enter_context(socket.create_connection((host, port), timeout_s))
            if tls is not None:
                connection = stack.enter_context(tls.wrap_socket(connection, server_hostname=host))
            connection.sendall(b"srvr")
            answer = b"".join(iter(lambda: connection.recv(4096), b""))
    except ssl.SSLCertVerificationError:
        raise
    except OSError:
        return False
    return b"Mode: " in answer


@dataclass(frozen=True, slots=True)
class Member:
    """One server of an ensemble: its number from 1, its two ports among servers, and its host.

    host: the name or address at which the other servers reach it; "" when all are on this machine.
    """

    number: int
    peer_port: int
    election_port: int
    host: str = ""


def parse_members(ensemble: str) -> tuple[Member, ...]:
    """`HOST[:PEER_PORT:ELECTION_PORT],...` as members, numbered from 1 in that order. Raises ZooKeeperStartError."""
    members = []
    for number, part in enumerate(ensemble.split(","), start=1):
        host, *ports = part.strip().split(":")
        peer, election = ports if len(ports) == 2 else ("2888", "3888")
        if not host or len(ports) not in (0, 2) or not (peer.isdigit() and election.isdigit()):
            raise ZooKeeperStartError(
                f"{part.strip()!r} does not name a server of the ensemble: give HOST or HOST:PEER_PORT:ELECTION_PORT"
            )
        members.append(Member(number, int(peer), int(election), host))
    return tuple(members)


class ZooKeeperServer:
    """One server process. `start` returns when it serves (or, in an ensemble, when it runs); `stop` ends it.

    data_dir: kept between starts; holds the data, the configuration and `zookeeper.log`
    port: 0 takes a free one (kept by later starts of the same object)
    members, number: all servers of the ensemble and this server's number; () for a standalone server
    bind: the address for clients; 0.0.0.0 for every address of this machine
    tls: its certificate, for clients and other servers, and the authority of theirs; None for plain text
    secret: only clusters with this secret may make nodes; "" for everyone
    shared: clusters with other secrets may make theirs, too
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        port: int = 0,
        bind: str = "127.0.0.1",
        tick_ms: int = 500,
        heap_mb: int = 256,
        members: Sequence[Member] = (),
        number: int = 0,
        tls: TlsFiles | None = None,
        secret: str = "",
        shared: bool = False,
    ) -> None:
        self.data_dir = data_dir
        self.port = port or free_ports(1, bind)[0]
        self.bind = bind
        self._tick_ms = tick_ms
        self._heap_mb = heap_mb
        self._members = tuple(members)
        self._number = number
        self._tls = tls
        self._secret = secret
        self._shared = shared
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """`host:port` for clients."""
        return f"{self.bind}:{self.port}"

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        return self._process.pid if self._process is not None and self.running else None

    @property
    def running(self) -> bool:
        """Whether the process exists (not whether it serves)."""
        return self._process is not None and self._process.poll() is None

    @property
    def log_file(self) -> Path:
        """The server's error output."""
        return self.data_dir / "zookeeper.log"

    def start(self, timeout_ms: int = 60_000) -> None:
        """Starts the process and waits until it serves. Raises ZooKeeperStartError with one sentence for the user."""
        self.launch()
        self.wait_serving(timeout_ms)

    def launch(self) -> None:
        """Starts the process without waiting. Raises ZooKeeperStartError."""
        if self.running:
            return
        java, jars = find_java(), jar_folder()
        if self._tls is not None:
            tls_side.check(self._tls)
        self._check_port()
        # The server inherits the lock of its folder, which lasts as long as the server, even without this process.
        with self._locked() as lock:
            self._launch(self._command(java, jars, self._write_files()), lock)
        logger.info("ZooKeeper started: address=%s pid=%s data=%s", self.address, self.pid, self.data_dir)

    def wait_serving(self, timeout_ms: float = 60_000, is_over: Callable[[], bool] = lambda: False) -> None:
        """Waits until it serves, closed to strangers; with an infinite limit, as long as it runs.

        Raises ZooKeeperStartError. is_over: polled; returns early once it is True.
        """
        process, deadline = self._process, time.monotonic() + timeout_ms / 1000
        if process is None:
            raise ZooKeeperStartError("this ZooKeeper server was not started")
        while not (self.is_serving() or is_over()):
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.03)  # a pause that ends early when the process does
                raise ZooKeeperStartError(self._why_it_ended())
            if time.monotonic() >= deadline:
                self.stop()
                raise ZooKeeperStartError(
                    f"ZooKeeper did not serve at {self.address} within {timeout_ms} ms; see {self.log_file}"
                )
        if self._secret and not is_over():
            self._close_to_strangers()

    def _close_to_strangers(self) -> None:
        try:
            close_to_strangers(self.address, self._secret, shared=self._shared, tls=self._tls)
        except StoreUnavailable as error:
            self.stop()
            raise ZooKeeperStartError(str(error)) from error

    def is_serving(self) -> bool:
        """Whether it answers requests now (in an ensemble: whether it is part of the quorum).

        Raises ZooKeeperStartError when its certificate is not of its own authority.
        """
        context = None
        if self._tls is not None:
            context = client_context(self._tls)
            context.check_hostname = False  # it may listen at addresses by which no client knows it
        try:
            return is_serving(self.bind, self.port, tls=context)
        except ssl.SSLCertVerificationError as error:
            self.stop()
            assert self._tls is not None
            raise ZooKeeperStartError(
                f"ZooKeeper's certificate {self._tls.certificate} is not signed by the authority "
                f"{self._tls.authority}, so nothing could connect: {error.verify_message}"
            ) from error

    def stop(self, timeout_ms: int = 5_000) -> None:
        """Ends the process: SIGTERM, and SIGKILL when it does not end in time. The data stays."""
        process = self._process
        if process is None:
            return
        process.send_signal(signal.SIGCONT)
        process.terminate()
        try:
            process.wait(timeout_ms / 1000)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def kill(self) -> None:
        """SIGKILL, as a crash."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Waits for the process to end; its exit code, None after `timeout_s`."""
        if self._process is None:
            return None
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    # -- inside -------------------------------------------------------------------------------------------------------

    def _command(self, java: Path, jars: Path, config: Path) -> list[str]:
        return [
            str(java),
            f"-Xmx{self._heap_mb}m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Xshare:auto",
            "-Dzookeeper.admin.enableServer=false",
            "-Dzookeeper.jmx.log4j.disable=true",
            "-Dzookeeper.preAllocSize=4096",
            f"-Dlog4j2.configurationFile={self.data_dir / 'log4j2.properties'}",
            "-cp",
            os.pathsep.join(_class_path(jars)),
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",
            str(config),
        ]

    def _launch(self, command: Sequence[str], lock: IO[bytes]) -> None:
        with self._open_log() as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                umask=0o077,
                pass_fds=(lock.fileno(),),
                env=_environment(),
            )

    def _check_port(self) -> None:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((self.bind, self.port))
            except OSError as error:
                raise ZooKeeperStartError(
                    f"ZooKeeper cannot listen at {self.address} ({error.strerror}): "
                    "stop the process that uses the port or choose another one"
                ) from error

    def _locked(self) -> IO[bytes]:
        try:
            private_folder.make(self.data_dir)
            return folder_lock.take(self.data_dir, _PATIENCE_S)
        except folder_lock.FolderInUse as error:
            raise ZooKeeperStartError(
                f"another ZooKeeper server uses {self.data_dir}: stop it or choose another folder"
            ) from error
        except OSError as error:
            raise ZooKeeperStartError(f"ZooKeeper cannot write to {self.data_dir}: {error.strerror}") from error

    def _write_files(self) -> Path:
        zoo_cfg.check_number([self.data_dir], max(1, len(self._members)))
        try:
            free = shutil.disk_usage(self.data_dir).free
            if free < MIN_FREE_BYTES:
                raise ZooKeeperStartError(
                    f"the disk of {self.data_dir} is full ({free // 1024 // 1024} MB free): make room, "
                    f"ZooKeeper needs {MIN_FREE_BYTES // 1024 // 1024} MB"
                )
            tls_side.write_files(self.data_dir, self._tls)
            config = zoo_cfg.write(self.data_dir, self._configuration())
            (self.data_dir / "log4j2.properties").write_text(_LOGGING)
            if self._members:
                (self.data_dir / "myid").write_text(f"{self._number}\n")
        except OSError as error:
            raise ZooKeeperStartError(f"ZooKeeper cannot write to {self.data_dir}: {error.strerror}") from error
        return config

    def _configuration(self) -> dict[str, object]:
        client = "clientPort" if self._tls is None else "secureClientPort"
        settings: dict[str, object] = {
            "tickTime": self._tick_ms,
            "initLimit": 20,
            "syncLimit": 6,
            "dataDir": f"{self.data_dir}/",  # ZooKeeper cuts off spaces at the end of a value
            client: self.port,
            f"{client}Address": self.bind,
            "minSessionTimeout": 2 * self._tick_ms,
            "maxSessionTimeout": 60_000,
            "maxClientCnxns": 0,
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "srvr,ruok,mntr",
            "autopurge.snapRetainCount": 3,
            "autopurge.purgeInterval": 1,
        }
        for member in self._members:
            host = member.host or self.bind
            settings[f"server.{member.number}"] = f"{host}:{member.peer_port}:{member.election_port}"
        if self._tls is not None:
            settings |= tls_side.settings(self.data_dir, self._tls, is_member=bool(self._members))
        if self._secret:
            settings["DigestAuthenticationProvider.superDigest"] = super_digest(self._secret)
        if any(member.host for member in self._members):
            # The server's own name may resolve to an address that this machine does not have: behind a name service,
            # for example.
            settings["quorumListenOnAllIPs"] = "true"
        return settings

    @contextlib.contextmanager
    def _open_log(self) -> Iterator[IO[bytes]]:
        try:
            # the previous log says why the server ended, and a supervisor restarts it at once
            if self.log_file.exists():
                self.log_file.replace(self.log_file.with_name(f"{self.log_file.name}.1"))
            self.log_file.touch(0o600)
            log = self.log_file.open("wb")
        except OSError as error:
            raise ZooKeeperStartError(f"ZooKeeper cannot write to {self.log_file}: {error.strerror}") from error
        with log:
            yield log

    def _why_it_ended(self) -> str:
        text = self.log_file.read_text(errors="replace")
        if "No space left on device" in text:
            return f"the disk of {self.data_dir} is full: make room and start ZooKeeper again"
        if "Address already in use" in text:
            return f"ZooKeeper's port {self.port} is taken: stop the process that uses it or choose another one"
        last = next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "no output")
        return f"ZooKeeper ended while starting ({last[:300]}); see {self.log_file}"


class ZooKeeperEnsemble:
    """One server or three on this machine, in one folder. `servers` can be stopped and started individually."""

    def __init__(
        self,
        folder: Path,
        count: int = 1,
        *,
        port: int = 0,
        tick_ms: int = 500,
        bind: str = "127.0.0.1",
        tls: TlsFiles | None = None,
        secret: str = "",
        shared: bool = False,
    ) -> None:
        if count not in (1, 3):
            raise ZooKeeperStartError(f"an ensemble has 1 or 3 servers, not {count}")
        zoo_cfg.check_number([folder / f"server-{number}" for number in (1, 2, 3)], count)
        clients, peers, elections = (free := free_ports(3 * count, bind))[::3], free[1::3], free[2::3]
        numbers = range(1, count + 1)
        members = tuple(map(Member, numbers, peers, elections)) if count > 1 else ()
        self.servers = tuple(
            ZooKeeperServer(
                folder / f"server-{number}",
                port=port + number - 1 if port else clients[number - 1],
                bind=bind,
                tick_ms=tick_ms,
                members=members,
                number=number,
                tls=tls,
                secret=secret,
                shared=shared,
            )
            for number in numbers
        )

    @property
    def address(self) -> str:
        """`host:port,host:port` for clients."""
        return ",".join(server.address for server in self.servers)

    def start(self, timeout_ms: int = 60_000) -> None:
        """Starts every server and waits until all serve. Raises ZooKeeperStartError, and leaves no server behind."""
        try:
            for server in self.servers:
                server.launch()
            for server in self.servers:
                server.wait_serving(timeout_ms)
        except ZooKeeperStartError:
            self.stop()
            raise

    def stop(self) -> None:
        """Stops every server."""
        for server in self.servers:
            server.stop()


def _environment() -> dict[str, str]:
    """With a locale in which Java finds every path, and reports errors in English, see `_why_it_ended`."""
    return {**os.environ, "LC_ALL": "C.UTF-8"}


def _class_path(folder: Path) -> list[str]:
    """Only the jars that ZooKeeper needs: the whole folder would double the start time."""
    return sorted({str(jar) for pattern in _JARS for jar in folder.glob(f"{pattern}.jar") if "-osx-" not in jar.name})
