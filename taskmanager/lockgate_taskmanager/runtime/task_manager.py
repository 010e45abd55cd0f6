"""TaskManager: exchange, deployments and control stream put together, without Spark and ZooKeeper."""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Callable
from typing import Any

from lockgate_common.clock import monotonic_ms
from lockgate_common.proof import new_instance
from lockgate_proto.messages import (
    CopiesKept,
    FailureCause,
    KeepCopies,
    LeaderRecord,
    PrepareJob,
    Register,
    StateQuery,
    SubtaskPhase,
    SubtaskReport,
)
from lockgate_proto.release import own_release

from lockgate_taskmanager.exchange.fencing import TokenFence
from lockgate_taskmanager.exchange.peers import PeerChannels
from lockgate_taskmanager.exchange.registry import GateRegistry
from lockgate_taskmanager.exchange.server import ExchangeServer
from lockgate_taskmanager.runtime.control_client import ControlClient
from lockgate_taskmanager.runtime.deployments import Deployments
from lockgate_taskmanager.runtime.leader_grace import LeaderGrace
from lockgate_taskmanager.runtime.report_batches import ALONE, Company
from lockgate_taskmanager.runtime.settings import TaskManagerSettings
from lockgate_taskmanager.runtime.source_rest import SourceRest
from lockgate_taskmanager.runtime.state_queries import StateQueries
from lockgate_taskmanager.runtime.stories import Stories
from lockgate_taskmanager.task.program import ProgramFactory

log = logging.getLogger(__name__)

STOP_S = 5.0


class TaskManager:
    """One task manager.

    start() opens the exchange; on_leader(record) registers it with the leader; stop() ends everything.
    """

    def __init__(self, settings: TaskManagerSettings, factory: ProgramFactory) -> None:
        self.on_prepare: Callable[[PrepareJob], None] = lambda _job: None  # fast, on the control client's thread
        self.on_copies: Callable[[KeepCopies], None] = lambda _order: None  # likewise
        self.on_failure: Callable[[], None] = lambda: None  # fast: a subtask failed here, not because of its peers
        self._incarnation = new_instance()
        self.id = settings.task_manager_id or f"tm-{uuid.uuid4().hex[:8]}"
        self.exchange_address = ""
        self.fence = TokenFence()
        self._settings = settings
        self._registry = GateRegistry()
        self._peers = PeerChannels(settings.credentials)
        self._server = ExchangeServer(settings.credentials, self.fence, self._registry, instance=self._incarnation)
        stories = Stories(self.id, self._incarnation)
        self._rest = SourceRest()
        self.deployments = Deployments(
            self.id,
            factory,
            self._registry,
            self._peers,
            self.fence,
            self._report,
            stories,
            settings.work_dir,
            settings.replay_log_bytes,
            self._rest,
        )
        self._queries = StateQueries(settings.work_dir, self._report)
        self._control = ControlClient(
            self.id,
            settings.credentials,
            self.fence,
            register=self._register,
            handle=self._handle,
            on_registered=self._registered,
            on_lost=self._rest.begin,
            counters=self.deployments.counters,
            heartbeat_ms=settings.heartbeat_ms,
            on_beat=self._look_for_leader,
        )
        self._leader_grace = LeaderGrace(settings.leader_grace_ms)

    def start(self) -> None:
        """Opens the exchange and starts waiting for a leader. Raises SecurityError, OSError."""
        self.exchange_address = self._server.start(self._settings.bind, self._settings.advertise)
        self._control.start()

    def on_leader(self, record: LeaderRecord | None) -> None:
        """For LeaderRetrieval."""
        self._control.on_leader(record)

    @property
    def control(self) -> ControlClient:
        """The stream to the leader, for display."""
        return self._control

    def stop(self) -> None:
        """Says goodbye, so that the leader replaces the subtasks here before their channels break; then closes
        everything.

        The exchange is closed before the stream: a leader that missed the goodbye and finds the port closed knows that
        this process will not return.
        """
        self._control.leave()
        self._server.stop()
        self._control.stop()
        if not self.deployments.stop(STOP_S):
            log.warning("some subtasks did not end in %g s and are abandoned", STOP_S)
        self._queries.stop()
        self._peers.close()

    def _registered(self) -> None:
        self._rest.registered(self.fence.highest)
        self._server.ready()

    def _look_for_leader(self) -> None:
        if self._leader_grace.is_over(self._control.is_connected, monotonic_ms()):
            self.deployments.cancel_all(f"no leader for {self._settings.leader_grace_ms} ms")

    def _handle(self, body: Any) -> None:
        if isinstance(body, PrepareJob):
            self.on_prepare(body)
        elif isinstance(body, KeepCopies):
            self.on_copies(body)
        elif isinstance(body, StateQuery):
            self._queries.ask(body)
        else:
            self.deployments.handle(body)

    def _register(self) -> Register:
        running, progress = self.deployments.running(), self.deployments.progress()
        slots, pid = self._settings.slots, os.getpid()
        return Register(
            self.exchange_address,
            slots,
            pid,
            running,
            self._incarnation,
            progress,
            own_release(),
            takes_batches=True,
        )

    def report_copies(self, report: CopiesKept) -> None:
        """Says which copies are here. Never blocks, from any thread."""
        self._control.send(report)

    def _report(self, body: Any, company: Company = ALONE) -> None:
        self._control.send(body, company)
        is_failure = isinstance(body, SubtaskReport) and body.phase is SubtaskPhase.SUBTASK_FAILED
        if is_failure and body.cause is not FailureCause.PEER_LOST:
            self.on_failure()
