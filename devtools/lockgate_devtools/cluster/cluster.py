"""A whole cluster on one machine: ZooKeeper, coordinators and task managers as real processes."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import IO, Any

from lockgate_common.security import Credentials, SecurityError, load_secret
from lockgate_common.uris import absolute
from lockgate_proto.messages import LeaderRecord

from lockgate_devtools.cluster import ensemble as zookeeper
from lockgate_devtools.cluster import inquiry, ports
from lockgate_devtools.cluster.backoff import Backoff
from lockgate_devtools.cluster.errors import ClusterError
from lockgate_devtools.cluster.files import lock_directory, prepare_directory, write_atomically
from lockgate_devtools.cluster.links import Links
from lockgate_devtools.cluster.options import ROLES, ClusterOptions
from lockgate_devtools.cluster.process import ChildProcess

log = logging.getLogger(__name__)

_REGISTRATION_LIMIT_S = 120.0
_TURN_S = 0.5
_STOPPED = "the cluster was stopped while it started"


def child_command(role: str) -> list[str]:
    """The command line of one process, see lockgate_devtools.cluster.child."""
    return [sys.executable, "-m", "lockgate_devtools.cluster.child", role]


class LocalCluster:
    """Starts, watches and stops the processes. Also a context manager: `with LocalCluster(path) as cluster`.

    directory: data, logs (`logs/<role>-<n>.log`) and `cluster.json` live in it; created if missing.
    options: see ClusterOptions; keyword arguments replace single fields of it.
    Processes are numbered from 0 in each role; role is "zookeeper", "coordinator" or "taskmanager".
    """

    def __init__(
        self,
        directory: str | Path,
        options: ClusterOptions | None = None,
        *,
        notice: Callable[[str], None] = lambda _line: None,
        **changes: Any,
    ) -> None:
        """notice: gets a line for each process that is ready or has ended, from several threads."""
        self._notice = notice
        self.options = replace(options or ClusterOptions(), **changes)
        self.options.check()
        self.directory = Path(absolute(os.fspath(directory)))
        self.links: Links | None = None  # once it has started, where ClusterOptions.relayed asks for it
        self.secret_file = Path(absolute(self.options.secret_file or str(self.directory / "secret")))
        self._condition = threading.Condition()
        self._events: queue.SimpleQueue[ChildProcess | None] = queue.SimpleQueue()
        self._children: dict[str, ChildProcess] = {}
        self._announced: set[int] = set()  # pids whose ready line has been processed, including port and description
        self._ports: dict[str, int] = {}
        self._dashboards: dict[str, str] = {}  # URLs
        self._first_leader = ""
        self._starts: dict[str, int] = {}
        self._backoffs: dict[str, Backoff] = {}
        self._respawn_at: dict[str, float] = {}
        self._ensemble: zookeeper.EnsemblePlan | None = None
        self._is_complete = False
        self._is_stopping = False
        self._failure: ClusterError | None = None
        self._supervisor: threading.Thread | None = None
        self._lock: IO[bytes] | None = None

    # --- life cycle -------------------------------------------------------------------------------------------

    def __enter__(self) -> LocalCluster:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Starts everything and returns when every process is ready.

        Raises ClusterError, and leaves no process behind.
        """
        try:
            self._prepare()
            self._supervisor = threading.Thread(target=self._supervise, name="cluster-supervisor", daemon=True)
            self._supervisor.start()
            with self._condition:
                limit_s = self.options.start_timeout_ms / 1000
                done = self._condition.wait_for(self._is_settled, limit_s)
                if self._failure or self._is_stopping:
                    raise self._failure or ClusterError(_STOPPED)
                if not done:
                    raise ClusterError(f"the cluster was not ready within {limit_s:g} s: {self._unready_processes()}")
            self._await_registration()
            self._first_leader = f"coordinator-{self.leader_number()}"
            self._write_description()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """SIGTERM for all, SIGKILL for those still running at the deadline. Idempotent."""
        with self._condition:
            self._is_stopping = True
            self._condition.notify_all()
        self._events.put(None)
        if self._supervisor is not None and self._supervisor is not threading.current_thread():
            self._supervisor.join()
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.close()
        if self.links is not None:
            self.links.close()

    def wait(self) -> None:
        """Blocks until `stop` is called by another thread or the cluster has failed (raises ClusterError)."""
        with self._condition:
            # With a timeout, for signals: one delivered to another thread does not wake up the main thread.
            while not (self._condition.wait_for(lambda: self._is_stopping or self._failure, _TURN_S)):
                pass
            if self._failure:
                raise self._failure

    # --- queries and commands ---------------------------------------------------------------------------------

    @property
    def coordinators(self) -> tuple[str, ...]:
        """`host:port` of every coordinator that has ever been ready; a restarted one keeps its address."""
        with self._condition:
            found = [self._ports.get(f"coordinator-{n}") for n in range(self.options.coordinators)]
        return tuple(f"{ports.HOST}:{port}" for port in found if port)

    @property
    def dashboard(self) -> str:
        """URL of the web dashboard of the coordinator that led first, or of another one that runs; "" for none."""
        with self._condition:
            running = [name for name, child in sorted(self._children.items()) if child.is_running]
            found = {name: self._dashboards[name] for name in running if name in self._dashboards}
            return found.get(self._first_leader, "") or next(iter(found.values()), "")

    @property
    def zookeeper(self) -> str:
        """The connect string of ZooKeeper."""
        return self._ensemble.connect_string if self._ensemble else self.options.zookeeper

    @property
    def storage(self) -> str:
        """Path or URI of the HA storage."""
        return absolute(self.options.storage or str(self.directory / "storage"))

    def credentials(self) -> Credentials:
        """Credentials for clients of this cluster."""
        try:
            secret = load_secret(self.secret_file, create=True)
        except (SecurityError, OSError) as error:
            raise ClusterError(str(error)) from error
        return Credentials(secret=secret, tls=self.options.tls, zookeeper=self.options.zookeeper_tls)

    def pids(self) -> Mapping[str, int]:
        """Process id by process name ("coordinator-0"), for running processes."""
        with self._condition:
            return {name: child.main_pid for name, child in sorted(self._children.items()) if child.is_running}

    @property
    def metrics(self) -> dict[str, str]:
        """`host:port` of the page of metrics by process name, for running processes."""
        with self._condition:
            found = {name: child.ready for name, child in sorted(self._children.items()) if child.is_running}
        return {name: ready["metrics"] for name, ready in found.items() if ready is not None and "metrics" in ready}

    def kill(self, role: str, number: int, signal_number: int = signal.SIGKILL) -> int:
        """Sends a signal to one process and returns its pid. Raises ClusterError when it is not running."""
        with self._condition:
            child = self._children.get(f"{role}-{number}")
            if child is None or not child.is_running:
                raise ClusterError(f"{role}-{number} is not running")
            child.send(signal_number)
            return child.main_pid

    def leader(self, timeout_s: float = 2.0) -> LeaderRecord | None:
        """The leader as the coordinators report it; None when none of them reports one."""
        return inquiry.leader(self.coordinators, self.credentials(), timeout_s)

    def leader_number(self, timeout_s: float = 2.0) -> int | None:
        """The number of the coordinator process that is the leader; None when no live process of this cluster is."""
        record = self.leader(timeout_s)
        for name, pid in self.pids().items():
            if record is not None and pid == record.pid and name.startswith("coordinator-"):
                return int(name.rpartition("-")[2])
        return None

    def wait_ready(self, role: str, number: int, timeout_s: float = 60.0, *, other_than: int = 0) -> int:
        """Waits until a process is ready and its pid is not `other_than`; returns the pid. Raises ClusterError."""
        name = f"{role}-{number}"

        def ready() -> bool:
            child = self._children.get(name)
            return bool(child and child.is_running and child.pid in self._announced and child.main_pid != other_than)

        with self._condition:
            if not self._condition.wait_for(ready, timeout_s):
                raise ClusterError(f"{name} was not ready within {timeout_s:g} s: {self._failure_text(name)}")
            return self._children[name].main_pid

    def respawn(self, role: str, number: int) -> None:
        """Starts a dead process at once; for clusters that are not supervised, or to cut the delay short."""
        with self._condition:
            name = f"{role}-{number}"
            child = self._children.get(name)
            if child is None or not child.is_running:
                self._respawn_at[name] = time.monotonic()
        self._events.put(None)

    # --- preparation ------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        options = self.options
        if options.taskmanagers or options.zookeepers:
            zookeeper.require_java()
        for number, port in enumerate(options.coordinator_ports):
            ports.require_free(port, f"coordinator {number}", "--port")
        for number, port in enumerate(options.zookeeper_ports):
            ports.require_free(port, f"ZooKeeper server {number}", "--zookeeper-port")
        prepare_directory(self.directory, ("logs", "storage"))
        self._lock = lock_directory(self.directory)
        self.credentials()
        if options.zookeepers:
            self._ensemble = zookeeper.EnsemblePlan.make(
                self.directory / "zookeeper", options.zookeepers, options.zookeeper_ports
            )
        for number, port in enumerate(options.coordinator_ports):
            self._ports[f"coordinator-{number}"] = port
        if options.relayed:
            names = (f"{role}-{number}" for role in ROLES[1:] for number in range(options.count(role)))
            self.links = Links(tuple(names), self.zookeeper, self.pids)
            self._ports = {(n := f"coordinator-{number}"): self.links.port(n) for number in range(options.coordinators)}

    # --- the supervisor's thread ------------------------------------------------------------------------------
    # This thread starts every process: the kernel's "die with the parent" refers to the thread that forked.

    def _supervise(self) -> None:
        try:
            self._start_role("zookeeper")
            self._start_role("taskmanager")  # Spark takes longest; it uses ZooKeeper only when it is warm
            if self._ensemble is None:
                self._start_role("coordinator")
            while not self._is_stopping:
                child = self._next_event()
                if child is not None:
                    self._on_child(child)
                self._respawn_due()
        except ClusterError as error:
            self._fail(error)
        except Exception as error:  # an internal error must reach the caller
            log.exception("the supervisor failed")
            self._fail(ClusterError(f"the supervisor failed: {error}"))
        finally:
            self._stop_all()

    def _next_event(self) -> ChildProcess | None:
        with self._condition:
            due = min(self._respawn_at.values(), default=None)
        try:
            return self._events.get(timeout=None if due is None else max(0.0, due - time.monotonic()))
        except queue.Empty:
            return None

    def _start_role(self, role: str) -> None:
        for number in range(self.options.count(role)):
            if not self._is_stopping:
                self._spawn(role, number)

    def _spawn(self, role: str, number: int) -> None:
        name = f"{role}-{number}"
        options = self.options
        first = {} if name in self._starts else options.first_environment.get(name, {})
        spec = {
            "parent": os.getpid(),
            "secret_file": str(self.secret_file),
            "tls": self._tls(),
            "zookeeper_tls": self._zookeeper_tls(),
            "settings": self._settings(role, number),
        }
        child = ChildProcess(
            name,
            child_command(role),
            self.directory / "logs" / f"{name}.log",
            {"PYTHONUNBUFFERED": "1", **options.environment, **first},
            self._events.put,
            json.dumps(spec),
        )
        with self._condition:
            self._children[name] = child
            self._starts[name] = self._starts.get(name, 0) + 1
        self._write_description()

    def _settings(self, role: str, number: int) -> dict[str, Any]:
        options, name = self.options, f"{role}-{number}"
        if role == "zookeeper":
            assert self._ensemble is not None
            return self._ensemble.settings(number)
        tls_key = [options.tls.key] if options.tls else []
        tokens = options.coordinator.get("tokens_file", "")
        private = [str(self.directory), str(self.secret_file), self._storage_folder(), tokens, *tls_key]
        common = {"cluster": options.cluster, "zookeeper": self.zookeeper, "private": private}
        common["metrics"] = f"{ports.HOST}:0"
        relayed = self.links.settings(name) if self.links else {}
        own: dict[str, Any]
        if role == "coordinator":
            bind = f"{ports.HOST}:{self._ports.get(name, 0)}"
            own = {"coordinator_id": name, "bind": bind, "dashboard": self._dashboard_bind(name)}
            return {**common, **own, "storage": self.storage, **relayed, **options.coordinator}
        own = {"task_manager_id": name, "slots": options.slots, "work_dir": str(self.directory / name)}
        return {**common, **own, **relayed, **options.taskmanager}

    def _storage_folder(self) -> str:
        folder, mark, options = self.storage.partition("?")
        return f"{folder.rstrip('/')}/{self.options.cluster}{mark}{options}"

    def _dashboard_bind(self, name: str) -> str:
        """A coordinator that is started again keeps its port: pages that are open come back to it."""
        with self._condition:
            return f"{ports.HOST}:{self._dashboards.get(name, ':0').rpartition(':')[2]}"

    def _tls(self) -> dict[str, Any] | None:
        """As JSON."""
        return asdict(self.options.tls) if self.options.tls else None

    def _on_child(self, child: ChildProcess) -> None:
        with self._condition:
            if self._children.get(child.name) is not child:
                return
        if not child.is_running:
            self._on_end(child)
        else:
            self._on_ready(child)

    def _on_ready(self, child: ChildProcess) -> None:
        address, dashboard = ((child.ready or {}).get(name, "") for name in ("address", "dashboard"))
        with self._condition:
            if dashboard:
                self._dashboards[child.name] = dashboard
            if address and not self.links:
                self._ports[child.name] = int(address.rpartition(":")[2])
        self._write_description()
        with self._condition:
            self._announced.add(child.pid)
            self._condition.notify_all()
        took_s = time.monotonic() - child.started_at
        again = " again" if self._starts[child.name] > 1 else ""
        self._notice(f"{child.name} is ready{again} after {took_s:.1f} s")
        if child.name.startswith("zookeeper-") and self._all_ready("zookeeper") and "coordinator-0" not in self._starts:
            self._start_role("coordinator")
        if all(self._all_ready(role) for role in ROLES):
            with self._condition:
                self._is_complete = True
                self._condition.notify_all()

    def _on_end(self, child: ChildProcess) -> None:
        role = child.name.rpartition("-")[0]
        child.close()
        with self._condition:
            # the system may reuse the pid for the next process, which is not ready yet
            self._announced.discard(child.pid)
        log.info("%s (pid %d) ended with exit code %s", child.name, child.pid, child.exit_code)
        if not self._is_complete:
            if not self._is_stopping:
                raise ClusterError(f"{child.name} did not start: {child.failure_text()}")
            return
        with self._condition:
            if self.options.supervise:
                policy = self._backoffs.get(child.name) or self._backoff(role)
                self._backoffs[child.name], wait_ms = policy.exited(int((time.monotonic() - child.started_at) * 1000))
                self._respawn_at[child.name] = time.monotonic() + wait_ms / 1000
                end = f"{child.name} (pid {child.main_pid}) {child.end_text()}"
                self._notice(f"{end}; starting it again in {wait_ms / 1000:g} s")
            self._condition.notify_all()
        self._write_description()

    def _backoff(self, role: str) -> Backoff:
        options = self.options
        delays = {"zookeeper": options.zookeeper_restart_delay_ms, "taskmanager": options.taskmanager_restart_delay_ms}
        delay = delays.get(role, options.restart_delay_ms)
        return Backoff(delay, options.max_restart_delay_ms, options.stable_after_ms)

    def _respawn_due(self) -> None:
        with self._condition:
            due = [name for name, at in self._respawn_at.items() if at <= time.monotonic()]
            for name in due:
                del self._respawn_at[name]
        for name in due:
            if self._is_stopping:
                return
            role, _, number = name.rpartition("-")
            try:
                self._spawn(role, int(number))
            except ClusterError as error:  # out of processes or of disk space: possibly transient
                log.warning("%s", error)
                with self._condition:
                    self._respawn_at[name] = time.monotonic() + self.options.max_restart_delay_ms / 1000

    def _stop_all(self) -> None:
        with self._condition:
            self._is_stopping = True
            children = list(self._children.values())
        with contextlib.suppress(Exception):  # a reader that has gone must not keep any process alive
            self._notice(f"stopping {sum(child.is_running for child in children)} processes")
        for roles in (("coordinator", "taskmanager"), ("zookeeper",)):  # the first ones deregister from ZooKeeper
            deadline = time.monotonic() + self.options.stop_timeout_ms / 1000
            some = [child for child in children if child.name.rpartition("-")[0] in roles]
            for child in some:
                child.terminate()
            for child in some:
                if not child.join(max(0.0, deadline - time.monotonic())):
                    log.warning("%s (pid %d) did not stop in time; killing it", child.name, child.pid)
                child.close()
        with contextlib.suppress(ClusterError):
            if self.directory.exists():
                self._write_description()

    def _fail(self, error: ClusterError) -> None:
        with self._condition:
            self._failure = self._failure or error
            self._condition.notify_all()

    # --- helpers ----------------------------------------------------------------------------------------------

    def _all_ready(self, role: str) -> bool:
        with self._condition:
            found = [self._children.get(f"{role}-{number}") for number in range(self.options.count(role))]
            return all(child is not None and child.is_running and child.pid in self._announced for child in found)

    def _is_settled(self) -> bool:
        return bool(self._failure or self._is_complete or self._is_stopping)

    def _await_registration(self) -> None:
        """Waits until a job that needs every slot would be accepted."""
        self._notice("every process is ready; the task managers register with the leader")
        wanted, credentials = self.options.taskmanagers, self.credentials()
        deadline = time.monotonic() + _REGISTRATION_LIMIT_S
        while inquiry.registered_task_managers(self.coordinators, credentials, 2.0) < wanted:
            with self._condition:
                if self._failure or self._is_stopping:
                    raise self._failure or ClusterError(_STOPPED)
                if time.monotonic() > deadline:
                    raise ClusterError(
                        f"the task managers did not find the leader within {_REGISTRATION_LIMIT_S:g} s; "
                        f"their logs are in {self.directory / 'logs'}"
                    )
                self._condition.wait(0.05)  # ends early when something changes

    def _unready_processes(self) -> str:
        return "; ".join(
            f"{name}: {child.failure_text()}" for name, child in sorted(self._children.items()) if child.ready is None
        )

    def _failure_text(self, name: str) -> str:
        child = self._children.get(name)
        return child.failure_text() if child else "it was never started"

    def _zookeeper_tls(self) -> dict[str, str] | None:
        tls = self.options.zookeeper_tls
        return None if tls is None else asdict(tls)

    def _write_description(self) -> None:
        """`cluster.json`: the data with which tools find the cluster and its processes."""
        description = {
            "coordinators": list(self.coordinators),
            "dashboard": self.dashboard,
            "zookeeper": self.zookeeper,
            "zookeeper_tls": self._zookeeper_tls(),
            "secret_file": str(self.secret_file),
            "tls": self._tls(),
            "storage": self.storage,
            "pids": dict(self.pids()),
            "metrics": self.metrics,
        }
        try:
            write_atomically(self.directory / "cluster.json", json.dumps(description, indent=2) + "\n")
        except OSError as error:
            if not self._is_complete:
                raise ClusterError(f"cannot write {self.directory / 'cluster.json'}: {error.strerror}") from error
            log.warning("cannot write %s: %s", self.directory / "cluster.json", error.strerror)
