"""The coordinator process: builds everything, says that it is ready, waits for a signal, takes everything down."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import resource
import sys
import threading
import uuid

from lockgate_proto.messages import LeaderRecord
from lockgate_proto.security import SecurityError

from coordinator.runtime.admission import Places
from coordinator.runtime.control_service import ControlService
from coordinator.runtime.errors import SettingsError, StorageError
from coordinator.runtime.follow import FollowService
from coordinator.runtime.health import Health
from coordinator.runtime.job_service import JobService
from coordinator.runtime.leadership import Leadership
from coordinator.runtime.metadata_files import MetadataFiles
from coordinator.runtime.rpc_server import RpcServer
from coordinator.runtime.settings import CoordinatorSettings
from ha.session import Connector
from ha.zookeeper import connector as zookeeper_connector
from lockgate_process.patience import NoZooKeeper, wait_for_zookeeper
from lockgate_process.stop_signals import stop_signals

log = logging.getLogger(__name__)

_MAX_STANDBYS = 256
_STOP_GRACE_S = 0.5


class Coordinator:
    """One coordinator within this process; `run` is its main program."""

    def __init__(self, settings: CoordinatorSettings, connector: Connector | None = None) -> None:
        """Opens the port and the storage. Raises SettingsError, SecurityError, StorageError, OSError.

        connector: how ZooKeeper is reached; only tests give one.
        """
        settings.check()
        self.settings = settings
        self.coordinator_id = settings.coordinator_id or f"coordinator-{uuid.uuid4().hex[:8]}"
        self._connector = connector or zookeeper_connector(settings.zookeeper, settings.session_timeout_ms)
        self._files = MetadataFiles(settings.storage, settings.cluster)
        self._server = RpcServer(settings.credentials, settings.bind)
        self.address = settings.advertise or f"{settings.bind.rpartition(':')[0]}:{self._server.port}"
        self._health = Health()
        me = LeaderRecord(address=self.address, pid=os.getpid(), coordinator_id=self.coordinator_id)
        self.leadership = Leadership(settings, me, self._connector, self._files, self._health, self._server.thread)
        dispatcher = self.leadership.dispatcher
        jobs = JobService(settings, self.address, dispatcher, self._files, self.leadership.elector)
        follow = FollowService(dispatcher, self.coordinator_id, settings.heartbeat_ms)
        watches = Places(settings.max_watchers, "watches are open", "max_watchers")
        controls = Places(settings.max_task_managers, "task managers are connected", "max_task_managers")
        follows = Places(_MAX_STANDBYS, "standbys follow")
        self._server.serve("JobService", jobs, {"Watch": watches})
        self._server.serve("ControlService", ControlService(dispatcher), {"Connect": controls})
        self._server.serve("FollowService", follow, {"Follow": follows})
        self._health.add_to(self._server)

    def start(self, stopping: threading.Event | None = None) -> None:
        """Serves, and takes its place in the line of contenders. Raises NoZooKeeper when that stays away.

        stopping: set by a signal; then it returns early.
        """
        self._server.start()
        self.leadership.start()
        is_in_line = wait_for_zookeeper(
            self.leadership.elector.wait_connected,
            self._connector.hosts,
            self.settings.connect_timeout_ms,
            lambda: stopping is not None and stopping.is_set(),
        )
        if is_in_line:
            self._health.ready()

    def stop(self) -> None:
        """Hands leadership over, ends every stream, joins every thread. Idempotent."""
        self._health.stop()
        self.leadership.stop()
        self._server.stop(_STOP_GRACE_S)


def run(settings: CoordinatorSettings) -> int:
    """Runs a coordinator until SIGTERM or SIGINT. Returns the exit code: 0, 2 for the user's errors, 1 for faults."""
    stopping = threading.Event()
    with stop_signals(lambda _number: stopping.set()):
        return _run(settings, stopping)


def _allow_many_connections() -> None:
    """Each task manager and watcher is a connection, and the usual limit is 1,024 of them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _run(settings: CoordinatorSettings, stopping: threading.Event) -> int:
    coordinator: Coordinator | None = None
    _allow_many_connections()
    try:
        coordinator = Coordinator(settings)
        coordinator.start(stopping)
        gc.freeze()  # what is here now stays; a takeover is not to wait for a full collection
        if not stopping.is_set():
            print(
                f"lockgate coordinator ready: id={coordinator.coordinator_id} address={coordinator.address} "
                f"pid={os.getpid()}",
                flush=True,
            )
        stopping.wait()
        log.info("asked to stop")
        return 0
    except (SettingsError, SecurityError, StorageError, NoZooKeeper, OSError) as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return 2
    except Exception:
        log.exception("the coordinator cannot go on")
        return 1
    finally:
        if coordinator is not None:
            coordinator.stop()
