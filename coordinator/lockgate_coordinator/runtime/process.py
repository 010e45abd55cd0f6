"""The coordinator process: starts everything, reports that it is ready, waits for a signal, stops everything."""

from __future__ import annotations

import gc
import logging
import os
import sys
import threading
import uuid
from contextlib import ExitStack

from lockgate_common import open_files
from lockgate_common.masking import masked
from lockgate_common.metrics.server import metrics_server
from lockgate_common.security import SecurityError
from lockgate_common.serving.call_places import CallPlaces
from lockgate_common.settings import OFF, SettingsError
from lockgate_common.stop_deadline import ends_within
from lockgate_common.stop_signals import stop_signals
from lockgate_common.zookeeper_wait import NoZooKeeper, wait_for_zookeeper
from lockgate_ha.elector import Elector
from lockgate_ha.grant import LeadershipGrant
from lockgate_ha.protection import Protection
from lockgate_ha.session import Connector
from lockgate_ha.zookeeper import connector as zookeeper_connector
from lockgate_proto.messages import LeaderRecord

from lockgate_coordinator.runtime.callers import Callers
from lockgate_coordinator.runtime.client_limits import ClientLimits, Limits
from lockgate_coordinator.runtime.control_service import ControlService
from lockgate_coordinator.runtime.dispatcher import Dispatcher
from lockgate_coordinator.runtime.errors import StorageError
from lockgate_coordinator.runtime.follow import Follower, FollowService
from lockgate_coordinator.runtime.health import Health
from lockgate_coordinator.runtime.job_service import JobService
from lockgate_coordinator.runtime.metadata_files import MetadataFiles
from lockgate_coordinator.runtime.metric_collector import coordinator_page
from lockgate_coordinator.runtime.rpc_server import RpcServer
from lockgate_coordinator.runtime.settings import CoordinatorSettings
from lockgate_coordinator.runtime.trace_export import TraceExport
from lockgate_coordinator.runtime.watchdog import Watchdog, end_process
from lockgate_coordinator.runtime.web import WebInterface, WebInterfaceFactory

log = logging.getLogger(__name__)

_MAX_STANDBYS = 256
_STOP_GRACE_S = 0.5
_STOP_S = 15.0  # supervisors wait for 20
_COLLECTED_AFTER = (20_000, 10, 10)
"""Objects until Python looks for garbage: what a message brings lives on, or is freed without."""


class Coordinator:
    """One coordinator in this process; `run` is its main program. Its elector calls it on the elector's thread."""

    def __init__(
        self,
        settings: CoordinatorSettings,
        connector: Connector | None = None,
        web: WebInterfaceFactory | None = None,
    ) -> None:
        """Opens the ports and the storage. Raises SettingsError, SecurityError, StorageError, OSError.

        connector: connects to ZooKeeper; only tests pass one.
        """
        settings.check()
        self.settings = settings
        self.coordinator_id = settings.coordinator_id or f"coordinator-{uuid.uuid4().hex[:8]}"
        self._connector = connector or zookeeper_connector(
            settings.zookeeper,
            settings.session_timeout_ms,
            Protection(settings.cluster, settings.credentials.secret),
            settings.credentials.zookeeper,
            lambda why: self.dispatcher.explained(why),
        )
        files = MetadataFiles(settings.storage, settings.cluster, settings.credentials.secret)
        limits = Limits(
            settings.max_client_streams,
            settings.max_client_calls,
            settings.max_client_requests,
            settings.max_client_bytes,
        )
        callers = Callers.of(settings)
        self._server = RpcServer(settings.credentials, settings.bind, settings.advertise, callers, ClientLimits(limits))
        with ExitStack() as opened:
            opened.callback(self._server.stop, 0)
            self._assemble(web, callers, files, opened)
            opened.pop_all()

    def _assemble(
        self, web: WebInterfaceFactory | None, callers: Callers, files: MetadataFiles, opened: ExitStack
    ) -> None:
        """Opens the other ports. opened: what to close when one of them cannot be opened."""
        settings = self.settings
        self.address = self._server.peer.address
        self._web: WebInterface | None = None
        if web is not None and settings.dashboard != OFF:
            self._web = web(settings, self.address, callers, self._dashboards, lambda: self.metrics_page.render())
            opened.callback(self._web.stop)
        self.traces = TraceExport(settings.otlp, self.coordinator_id, settings.cluster) if settings.otlp else None
        self._health = Health()
        self.elector = Elector(self._connector, settings.cluster, self._record(), self, on_broken=end_process)
        self.dispatcher = Dispatcher(
            settings,
            self.address,
            self.elector.store,
            files,
            self.elector.step_down,
            self.elector.report_token,
            lambda: self.elector.leader,
            self.traces.offer if self.traces is not None else None,
        )
        self._watchdogs = (
            Watchdog(self.dispatcher.actor, "decides", end_process),
            Watchdog(self._server.thread, "answers calls", end_process),
        )
        self._follower = Follower(settings, self.coordinator_id, self.elector)
        self._serve(JobService(settings, self.address, self.dispatcher, files, self.elector))

    def _record(self) -> LeaderRecord:
        """Of this process, without a token."""
        return LeaderRecord(
            address=self.address,
            pid=os.getpid(),
            coordinator_id=self.coordinator_id,
            instance=self._server.peer.instance,
            dashboard=self.dashboard,
        )

    def _serve(self, jobs: JobService) -> None:
        settings = self.settings
        follow = FollowService(self.dispatcher, self.coordinator_id, settings.heartbeat_ms)
        watches = CallPlaces(settings.max_watchers, "watches are open", "max_watchers")
        controls = CallPlaces(settings.max_task_managers, "task managers are connected", "max_task_managers")
        follows = CallPlaces(_MAX_STANDBYS, "standbys follow")
        self._server.serve("JobService", jobs, {"Watch": watches})
        self._server.serve("ControlService", ControlService(self.dispatcher), {"Connect": controls})
        self._server.serve("FollowService", follow, {"Follow": follows})
        self._health.add_to(self._server)
        streams = {"watch": watches, "task_manager": controls, "standby": follows}
        self.metrics_page = coordinator_page(
            self.coordinator_id, settings, self.elector, self.dispatcher, streams, self.traces
        )
        self.metrics = metrics_server(
            self.metrics_page, settings.metrics, settings.credentials, "coordinator", settings.tokens_file
        )

    @property
    def dashboard(self) -> str:
        """URL of the web dashboard; "" for none."""
        return self._web.url if self._web is not None else ""

    def _dashboards(self) -> tuple[str, ...]:
        """Of the other coordinators that are present."""
        found = (contender.dashboard for contender in self.elector.contenders())
        return tuple(url for url in found if url and url != self.dashboard)

    def start(self, stopping: threading.Event | None = None) -> None:
        """Serves, and joins the line of contenders. Raises NoZooKeeper when ZooKeeper stays unreachable.

        stopping: set by a signal; then it returns early.
        """
        self._server.start()
        self.dispatcher.start()
        if self.traces is not None:
            self.traces.start()
        if self.metrics is not None:
            self.metrics.start()
        for watchdog in self._watchdogs:
            watchdog.start()
        self._follower.start()
        self.elector.start()
        is_in_line = wait_for_zookeeper(
            self.elector.wait_connected,
            self._connector.hosts,
            self.settings.connect_timeout_ms,
            lambda: stopping is not None and stopping.is_set(),
            lambda: self.elector.refusal,
            self._connector.trouble,
        )
        if is_in_line:
            self._health.ready()
            if self._web is not None:
                self._web.start()

    def stop(self) -> None:
        """Hands leadership over at once, ends every stream, joins every thread. Idempotent."""
        self._health.stop()
        if self.metrics is not None:
            self.metrics.stop()
        self.dispatcher.withdraw()
        self.elector.stop(release=True)
        self._follower.stop()
        for watchdog in self._watchdogs:
            watchdog.stop()
        if self._web is not None:
            self._web.stop()
        self.dispatcher.stop()
        if self.traces is not None:
            self.traces.stop()
        self._server.stop(_STOP_GRACE_S)

    # -- lockgate_ha.elector.ElectionListener -------------------------------------------------------------------------

    def on_granted(self, grant: LeadershipGrant, detected_unix_us: int | None) -> None:
        """A term begins."""
        log.info("%s leads under token %s", self.coordinator_id, grant.token)
        self.dispatcher.granted(grant, detected_unix_us)
        self._health.leading(True)

    def on_suspended(self) -> None:
        """ZooKeeper is unreachable; another coordinator may be granted leadership meanwhile."""
        log.warning("ZooKeeper is not reachable; tasks run on, checkpoints and submissions wait")
        self._health.leading(False)
        self.dispatcher.suspended()

    def on_resumed(self) -> None:
        """ZooKeeper is reachable again, and the grant was verified."""
        log.info("ZooKeeper is reachable again; this coordinator still leads")
        self.dispatcher.resumed()
        self._health.leading(True)

    def on_revoked(self, reason: str) -> None:
        """The term is over."""
        log.warning("%s no longer leads: %s", self.coordinator_id, reason)
        self._health.leading(False)
        self.dispatcher.revoked(reason)

    def on_leader(self, leader: LeaderRecord | None) -> None:
        """A standby follows the leader."""
        is_other = leader is not None and leader.coordinator_id != self.coordinator_id
        self._follower.follow(leader if is_other else None, leader.token if leader is not None else 0)


def run(settings: CoordinatorSettings, web: WebInterfaceFactory | None = None) -> int:
    """Runs a coordinator until SIGTERM or SIGINT. Returns the exit code: 0, 2 for user errors, 1 for internal ones.

    web: makes its dashboard, which is not a part of this room.
    """
    stopping = threading.Event()
    with stop_signals(lambda _number: stopping.set()):
        return _run(settings, web, stopping)


def _run(settings: CoordinatorSettings, web: WebInterfaceFactory | None, stopping: threading.Event) -> int:
    coordinator: Coordinator | None = None
    open_files.allow_many()
    try:
        coordinator = Coordinator(settings, web=web)
        coordinator.start(stopping)
        gc.freeze()  # exempts the startup objects, so that a takeover does not wait for a full collection
        gc.set_threshold(*_COLLECTED_AFTER)
        if not stopping.is_set():
            print(
                f"lockgate coordinator ready: id={coordinator.coordinator_id} address={coordinator.address} "
                f"pid={os.getpid()}{f' dashboard={coordinator.dashboard}' if coordinator.dashboard else ''}"
                f"{f' metrics={coordinator.metrics.address}' if coordinator.metrics else ''}",
                flush=True,
            )
        stopping.wait()
        log.info("asked to stop")
        return 0
    except (SettingsError, SecurityError, StorageError, NoZooKeeper, OSError) as error:
        print(f"error: {masked(str(error))}", file=sys.stderr, flush=True)
        return 2
    except Exception:
        log.exception("the coordinator cannot continue")
        return 1
    finally:
        if coordinator is not None:
            with ends_within(_STOP_S):
                coordinator.stop()
