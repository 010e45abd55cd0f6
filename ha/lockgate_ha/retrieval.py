"""LeaderRetrieval: the current leader, according to ZooKeeper."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable

from lockgate_common.recurring_log import RecurringLog
from lockgate_proto.messages import LeaderRecord

from lockgate_ha.errors import StoreError, refusal_of
from lockgate_ha.paths import Paths
from lockgate_ha.session import Connector, Node, Session, SessionState, is_connected
from lockgate_ha.steps import check_mark, read_leader_record

logger = logging.getLogger(__name__)

_RETRY_S = 0.2  # pause after a failed read over a connected session


class LeaderRetrieval:
    """Watches `/leader` over its own session. While ZooKeeper is unreachable the last known leader is kept.

    on_leader: called on the retrieval's own thread with the LeaderRecord at every change, None when ZooKeeper has no
    leader; must return fast. The first call follows ZooKeeper's first answer.
    """

    def __init__(
        self, connector: Connector, cluster: str, on_leader: Callable[[LeaderRecord | None], None] | None = None
    ) -> None:
        self._connector = connector
        self._paths = Paths(cluster)
        self._path = self._paths.leader
        self._on_leader = on_leader
        self._queue: queue.Queue[SessionState | None] = queue.Queue()  # None: read again
        self._changed = threading.Condition()
        self._leader: LeaderRecord | None = None
        self._answered = False
        self._stopped = False
        self._trouble = RecurringLog()
        self._session: Session | None = None
        self.refusal = ""
        """Why ZooKeeper or the cluster in it does not take this process; "" when nothing is known against it."""
        self._thread = threading.Thread(target=self._run, name="leader-retrieval", daemon=True)

    def start(self) -> None:
        """Starts watching; returns at once, whether or not ZooKeeper is reachable."""
        self._thread.start()

    def stop(self) -> None:
        """Ends the session and joins the thread."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        self._queue.put(None)
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join()

    def current(self) -> LeaderRecord | None:
        """The leader as last reported; kept while ZooKeeper is unreachable. None without a leader or a report."""
        with self._changed:
            return self._leader

    @property
    def is_connected(self) -> bool:
        """Whether the ZooKeeper session is connected now. For display."""
        return is_connected(self._session)

    @property
    def has_answered(self) -> bool:
        """Whether ZooKeeper has answered yet."""
        with self._changed:
            return self._answered

    def wait_answered(self, timeout_ms: int) -> bool:
        """The same, but waits until it has; False after `timeout_ms`."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or self._answered, timeout_ms / 1000)
            return self._answered

    def wait(self, timeout_ms: int, newer_than: int = 0) -> LeaderRecord | None:
        """The leader; waits until there is one with a token above `newer_than`; None after `timeout_ms`."""

        def found() -> bool:
            return self._stopped or (self._leader is not None and self._leader.token > newer_than)

        with self._changed:
            self._changed.wait_for(found, timeout_ms / 1000)
            return self._leader if self._leader is not None and self._leader.token > newer_than else None

    # -- inside -------------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopped:
            self._session = session = self._connector.open(lambda state, _session: self._queue.put(state))
            try:
                self._follow(session)
            finally:
                session.close()
                self._queue = queue.Queue()  # late events of a dead session are ignored

    def _follow(self, session: Session) -> None:
        """Runs until the session is lost."""
        retry_at: float | None = None
        while not self._stopped and session.state is not SessionState.LOST:
            try:
                self._queue.get(timeout=None if retry_at is None else max(0.0, retry_at - time.monotonic()))
            except queue.Empty:
                retry_at = None
            if session.state is not SessionState.CONNECTED or self._stopped:
                continue
            try:
                self._look(session)
                retry_at = None
            except StoreError as error:
                self._trouble.info(logger, "leader", "the leader cannot be read now: %s", error)
                self.refusal = refusal_of(error)
                retry_at = time.monotonic() + _RETRY_S

    def _look(self, session: Session) -> None:
        if not self._answered:
            check_mark(session, self._paths)
        node = session.get(self._path, self._wake)
        self.refusal = ""
        leader = self._record(session, node)
        with self._changed:
            if self._answered and leader == self._leader:
                return
            self._answered, self._leader = True, leader
            self._changed.notify_all()
        if self._on_leader is not None:
            try:
                self._on_leader(leader)
            except Exception:
                logger.exception("the leader listener failed on %s", leader)

    def _record(self, session: Session, node: Node | None) -> LeaderRecord | None:
        """None also for a node that no coordinator wrote: it has no address to go to."""
        if node is None:
            return None
        leader = read_leader_record(session.protection, self._path, node)
        return leader if leader.address else None

    def _wake(self) -> None:
        self._queue.put(None)
