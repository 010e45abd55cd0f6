"""From the election to the machines: what each turn of the Elector means for this process."""

from __future__ import annotations

import logging

from lockgate_proto.messages import LeaderRecord

from coordinator.runtime.dispatcher import Dispatcher
from coordinator.runtime.event_loop import LoopThread
from coordinator.runtime.follow import Follower
from coordinator.runtime.health import Health
from coordinator.runtime.metadata_files import MetadataFiles
from coordinator.runtime.settings import CoordinatorSettings
from coordinator.runtime.watchdog import Watchdog, end_process
from ha.elector import Elector
from ha.grant import LeadershipGrant
from ha.session import Connector

log = logging.getLogger(__name__)


class Leadership:
    """Owns the elector, the follower and the dispatcher, and is the elector's listener (on the elector's thread)."""

    def __init__(
        self,
        settings: CoordinatorSettings,
        me: LeaderRecord,
        connector: Connector,
        files: MetadataFiles,
        health: Health,
        serving: LoopThread,
    ) -> None:
        """serving: whose loop answers every call. me: coordinator_id, address and pid of this process."""
        self._me = me
        self._health = health
        self.elector = Elector(connector, settings.cluster, me, self, on_broken=end_process)
        self.dispatcher = Dispatcher(
            settings,
            me.address,
            self.elector.store,
            files,
            self.elector.step_down,
            self.elector.report_token,
            lambda: self.elector.leader,
        )
        self._watchdogs = (
            Watchdog(self.dispatcher.actor, "decides", end_process),
            Watchdog(serving, "answers calls", end_process),
        )
        self._follower = Follower(
            settings,
            me.coordinator_id,
            self.elector.report_leader_gone,
            self.elector.report_not_leading,
            self.elector.report_unanswering,
        )

    def start(self) -> None:
        """Begins to contend."""
        self.dispatcher.start()
        for one in self._watchdogs:
            one.start()
        self._follower.start()
        self.elector.start()

    def stop(self) -> None:
        """Hands leadership over at once, then ends every thread."""
        self.elector.stop(release=True)
        self._follower.stop()
        for one in self._watchdogs:
            one.stop()
        self.dispatcher.stop()

    def on_granted(self, grant: LeadershipGrant, detected_unix_us: int | None) -> None:
        """See ha.elector.ElectionListener."""
        log.info("%s leads under token %s", self._me.coordinator_id, grant.token)
        self.dispatcher.granted(grant, detected_unix_us)
        self._health.leading(True)

    def on_suspended(self) -> None:
        """See ha.elector.ElectionListener."""
        log.warning("ZooKeeper is not reachable; tasks run on, checkpoints and submissions wait")
        self._health.leading(False)  # another may have been granted meanwhile
        self.dispatcher.suspended()

    def on_resumed(self) -> None:
        """See ha.elector.ElectionListener."""
        log.info("ZooKeeper is back, the leadership stands")
        self.dispatcher.resumed()
        self._health.leading(True)

    def on_revoked(self, reason: str) -> None:
        """See ha.elector.ElectionListener."""
        log.warning("%s no longer leads: %s", self._me.coordinator_id, reason)
        self._health.leading(False)
        self.dispatcher.revoked(reason)

    def on_leader(self, leader: LeaderRecord | None) -> None:
        """See ha.elector.ElectionListener."""
        other = leader is not None and leader.coordinator_id != self._me.coordinator_id
        self._follower.follow(leader if other else None, leader.token if leader is not None else 0)
