"""Elector: takes part in the election of one cluster, and owns the coordinator's ZooKeeper session."""

from __future__ import annotations

import dataclasses
import logging
import queue
import threading
import uuid
from collections import deque
from collections.abc import Callable
from typing import Protocol, assert_never

from lockgate_common.clock import monotonic_ms, unix_us
from lockgate_common.ports import probe_tcp
from lockgate_proto.messages import LeaderRecord

from lockgate_ha import election_messages as m
from lockgate_ha import steps
from lockgate_ha.election import LeaderElection
from lockgate_ha.election_timing import ElectionTiming
from lockgate_ha.errors import Conflict, OutcomeUnknown, SessionLost, StoreError, refusal_of
from lockgate_ha.grant import LeadershipGrant
from lockgate_ha.paths import Paths
from lockgate_ha.session import Connector, Session, SessionState, is_connected
from lockgate_ha.session_store import SessionStore
from lockgate_ha.store import CoordinationStore

logger = logging.getLogger(__name__)

_FAULT_PAUSE_S = 1.0


class ElectionListener(Protocol):
    """Receives the elector's notifications, on the elector's thread and in order; must return fast.

    If a callback raises, its notification counts as lost: a grant is resigned, and the elector starts over.
    """

    def on_granted(self, grant: LeadershipGrant, detected_unix_us: int | None) -> None:
        """This coordinator leads under `grant`.

        detected_unix_us: wall clock when the loss of the former leader was first detected; None when there was none.
        """
        ...

    def on_suspended(self) -> None:
        """The leader's connection to ZooKeeper is lost; the grant is kept. Start nothing that needs a write."""
        ...

    def on_resumed(self) -> None:
        """ZooKeeper is reachable again within the session, and the grant was verified: continue."""
        ...

    def on_revoked(self, reason: str) -> None:
        """The grant has ended permanently. The elector contends again automatically."""
        ...

    def on_leader(self, leader: LeaderRecord | None) -> None:
        """The leader has changed (also to this coordinator); None when ZooKeeper has no leader."""
        ...


class Elector:
    """One per coordinator process. All methods are thread-safe.

    me: `coordinator_id`, `address` and `pid` are read from it; the rest is filled in at a grant.
    on_broken: called on the elector's thread, after the story was logged, when it cannot even start over. This process
    can neither contend nor lead any more: the callback must end it.
    """

    def __init__(
        self,
        connector: Connector,
        cluster: str,
        me: LeaderRecord,
        listener: ElectionListener,
        *,
        on_broken: Callable[[], None],
        timing: ElectionTiming | None = None,
    ) -> None:
        self._connector = connector
        self._paths = Paths(cluster)
        self._me = me
        self._listener = listener
        self._timing = timing
        self._on_broken = on_broken
        self._machine = LeaderElection(me, timing)
        self._store = SessionStore(cluster, protection=connector.protection)
        self._session: Session | None = None
        self._nonce = ""
        self._known: steps.Known = {}
        self._watch: Callable[[], None] = lambda: None
        self._queue: queue.Queue[m.Event] = queue.Queue()
        self._wake_at_ms: int | None = None
        self._done = False
        self._stopping = threading.Event()
        self._in_line = threading.Event()
        self.refusal = ""
        """Why ZooKeeper or the cluster in it does not take this coordinator; "" when nothing is known against it."""
        self._trouble = ""  # the last failure that was logged, so that it is not logged again and again
        self._thread = threading.Thread(target=self._run, name=f"elector-{me.coordinator_id}", daemon=True)

    # -- public API ---------------------------------------------------------------------------------------------------

    @property
    def store(self) -> CoordinationStore:
        """Reads and fenced writes over the elector's session; for JobRecords."""
        return self._store

    @property
    def leader(self) -> LeaderRecord | None:
        """The leader as last reported; kept while ZooKeeper is unreachable."""
        return self._machine.leader

    @property
    def grant(self) -> LeadershipGrant | None:
        """The grant held, also while suspended. For display: never a reason to skip the fence."""
        return self._machine.grant

    @property
    def is_connected(self) -> bool:
        """Whether the ZooKeeper session is connected now. For display."""
        return is_connected(self._session)

    def contenders(self) -> tuple[LeaderRecord, ...]:
        """Every coordinator as last reported, in line order (`token` 0)."""
        view = self._machine.view
        return () if view is None else tuple(contender.record for contender in view.contenders)

    def start(self) -> None:
        """Starts contending; returns at once, whether or not ZooKeeper is reachable."""
        self._thread.start()

    def wait_connected(self, timeout_ms: int) -> bool:
        """Waits until this coordinator was in line for the first time.

        False when that did not happen within `timeout_ms`.
        """
        return self._in_line.wait(timeout_ms / 1000)

    def stop(self, release: bool = True) -> None:
        """Ends it and joins the thread. While leading `on_revoked` is called first.

        release=True hands over: `/leader` and the own contender are deleted, so the next one takes over at once.
        release=False leaves both as a crash would, until ZooKeeper expires the session.
        """
        self._stopping.set()
        self._queue.put(m.Stop(release))
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join()

    def report_leader_gone(self, token: int) -> None:
        """Evidence: the stream to the leader of `token` broke, or it cannot be reached. Returns at once.

        The elector itself tries a TCP connection to the leader's address. When it is refused, or when there is no
        answer and the leader does not answer a challenge through ZooKeeper either, the first in line takes over,
        the others a little later if it does not. Report again as long as the leader is unreachable.
        """
        self._queue.put(m.LeaderGone(token, unix_us()))

    def report_not_leading(self, token: int) -> None:
        """Evidence: the process that answers at the leader's address reports that it does not hold `token`.

        Ignored during the first second of a leader's term, when it may not know yet. Report again as long as it holds.
        """
        self._queue.put(m.NotLeading(token, unix_us()))

    def report_unanswering(self, token: int) -> None:
        """Evidence: the process at the leader's address accepts connections, but has not answered for long."""
        self._queue.put(m.Unanswering(token, unix_us()))

    def report_silent(self, token: int, patience_ms: int) -> None:
        """Evidence: the leader of `token` sends nothing any more, and was asked by a call.

        It is challenged through ZooKeeper, and replaced when it has answered neither for `patience_ms`. Report again as
        long as it is silent, and any answer with `report_answered`.
        """
        self._queue.put(m.Silent(token, unix_us(), patience_ms))

    def report_answered(self, token: int) -> None:
        """The leader of `token`, reported as silent, has answered a call or sent a heartbeat."""
        self._queue.put(m.Answered(token))

    def step_down(self, reason: str, token: int = 0) -> None:
        """Gives up leadership: a write was Fenced. Contends again.

        token: of the grant that the reason refers to; a later grant is not ended. 0 means any grant.
        """
        self._queue.put(m.StepDown(reason, token))

    def report_token(self, reason: str, token: int) -> None:
        """A peer names `token`, above that of the grant held: asks ZooKeeper whether it was ever granted.

        Leadership ends when ZooKeeper confirms it, or at once while ZooKeeper cannot be asked. reason: the source, in
        words.
        """
        self._queue.put(m.TokenSeen(reason, token))

    # -- the thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._contend()
        except Exception:
            logger.critical("the elector cannot continue", exc_info=True)
            self._on_broken()

    def _contend(self) -> None:
        self._carry_out(self._machine.start())
        while not self._done:
            try:
                self._take(self._next_event())
            except Exception:
                logger.exception("internal error in the elector; it starts over with a new session")
                if not self._done:
                    self._start_over()

    def _start_over(self) -> None:
        """After an internal error no part of the old machine is trusted: its grant ends, and a new one contends."""
        former = self._machine
        self._machine = LeaderElection(self._me, self._timing, former.generation)
        if former.grant is not None:
            self._notify(m.Revoked("internal error in the elector"))
        if self._stopping.wait(_FAULT_PAUSE_S):
            self._close_session(m.CloseSession(abandon=False))  # the stop request may have been lost in the error
        else:
            self._carry_out(self._machine.start())

    def _next_event(self) -> m.Event:
        timeout = None if self._wake_at_ms is None else max(0.0, (self._wake_at_ms - monotonic_ms()) / 1000)
        try:
            return self._queue.get(timeout=timeout)
        except queue.Empty:
            self._wake_at_ms = None
            return m.Tick()

    def _take(self, event: m.Event) -> None:
        """One external event, and all its immediate consequences."""
        pending = deque([event])
        while pending:
            pending.extend(self._carry_out(self._machine.handle(pending.popleft(), monotonic_ms())))

    def _carry_out(self, effects: list[m.Effect]) -> list[m.Event]:
        answers = [self._carry(effect) for effect in effects]
        return [answer for answer in answers if answer is not None]

    def _carry(self, effect: m.Effect) -> m.Event | None:
        match effect:
            case m.OpenSession():
                self._open_session(effect)
            case m.CloseSession():
                self._close_session(effect)
            case m.Join():
                return self._join(effect)
            case m.ReadView():
                return self._read_view(effect)
            case m.Probe():
                self._probe(effect)
            case m.Challenge():
                return self._challenge(effect)
            case m.AnswerChallenge():
                self._answer_challenge()
            case m.Claim():
                return self._claim(effect)
            case m.Release():
                self._release(effect)
            case m.WakeAt():
                self._wake(effect)
            case m.Granted() | m.Suspended() | m.Resumed() | m.Revoked() | m.LeaderChanged():
                self._notify(effect)
            case _:
                assert_never(effect)
        return None

    def _notify(self, effect: m.Granted | m.Suspended | m.Resumed | m.Revoked | m.LeaderChanged) -> None:
        if not isinstance(effect, m.LeaderChanged):
            logger.info("election: %s", effect)
        match effect:
            case m.Granted(grant, detected_unix_us):
                self._listener.on_granted(grant, detected_unix_us)
            case m.Suspended():
                self._listener.on_suspended()
            case m.Resumed():
                self._listener.on_resumed()
            case m.Revoked(reason):
                self._listener.on_revoked(reason)
            case m.LeaderChanged(leader):
                self._listener.on_leader(leader)
            case _:
                assert_never(effect)

    # -- effects: each returns its answering event ---------------------------------------------------------------------

    def _open_session(self, effect: m.OpenSession) -> None:
        former, generation = self._session, effect.generation
        if former is not None:
            former.close()
        self._nonce, self._known = uuid.uuid4().hex, {}

        def listen(state: SessionState, session: str) -> None:
            if state is SessionState.CONNECTED:
                self._queue.put(m.Connected(generation, session))
            elif state is SessionState.SUSPENDED:
                self._queue.put(m.Disconnected(generation))
            elif state is SessionState.LOST:
                self._queue.put(m.Expired(generation))

        # one per session: repeated watches are notified once
        self._watch = lambda: self._queue.put(m.Changed(generation))
        self._session = self._connector.open(listen)
        self._store.attach(self._session)

    def _close_session(self, effect: m.CloseSession) -> None:
        self._done = True
        session = self._session
        if session is not None:
            if effect.abandon:
                session.abandon()
            else:
                session.close()
        self._store.attach(None)

    def _join(self, effect: m.Join) -> m.Event:
        session = self._current()
        try:
            steps.prepare(session, self._paths)
            name = steps.join(session, self._paths, self._nonce, self._me, effect.rejoin)
        except StoreError as error:
            return self._failed(effect.generation, error)
        self._in_line.set()
        self._trouble = ""
        return m.Joined(effect.generation, name)

    def _read_view(self, effect: m.ReadView) -> m.Event:
        generation = effect.generation
        try:
            view = steps.read_view(self._current(), self._paths, self._known, self._watch)
        except StoreError as error:
            return self._failed(generation, error)
        return m.Viewed(generation, view, unix_us())

    def _claim(self, effect: m.Claim) -> m.Event:
        session = self._current()
        record = dataclasses.replace(self._me, token=effect.token, session=session.id, granted_unix_us=unix_us())
        try:
            steps.claim(
                session,
                self._paths,
                effect.contender,
                record,
                effect.epoch_version,
                effect.replaces_leader,
                effect.unanswered,
            )
        except Conflict as error:
            logger.info("token %s was not granted: %s", effect.token, error)
            return m.ClaimFailed(effect.generation, m.ClaimFailure.REFUSED)
        except OutcomeUnknown:
            return m.ClaimFailed(effect.generation, m.ClaimFailure.UNKNOWN)
        except StoreError as error:
            self._log_failure_once(f"token {effect.token} was not granted", error)
            return m.ClaimFailed(effect.generation, m.ClaimFailure.UNAVAILABLE)
        logger.info("token %s was granted: %s", effect.token, effect.why)
        return m.Claimed(effect.generation, effect.token)

    def _release(self, effect: m.Release) -> None:
        try:
            if steps.release(self._current(), self._paths, effect.token, effect.contender):
                logger.info("token %s is released: the next coordinator in line can lead at once", effect.token)
        except StoreError as error:
            logger.info("the leader node of token %s was not released: %s", effect.token, error)

    def _probe(self, effect: m.Probe) -> None:
        def probe() -> None:
            self._queue.put(m.Probed(effect.token, probe_tcp(effect.address)))

        threading.Thread(target=probe, name=f"leader-probe-{effect.token}", daemon=True).start()

    def _challenge(self, effect: m.Challenge) -> m.Event:
        try:
            steps.challenge(self._current(), self._paths, effect.token)
        except StoreError as error:
            logger.info("the leader of token %s could not be challenged: %s", effect.token, error)
            return m.Challenged(effect.generation, effect.token, posted=False)
        return m.Challenged(effect.generation, effect.token, posted=True)

    def _answer_challenge(self) -> None:
        try:
            steps.answer_challenge(self._current(), self._paths)
        except StoreError as error:
            logger.info("a challenge was not answered: %s", error)

    def _wake(self, effect: m.WakeAt) -> None:
        self._wake_at_ms = effect.at_ms if self._wake_at_ms is None else min(self._wake_at_ms, effect.at_ms)

    def _current(self) -> Session:
        assert self._session is not None  # the machine's first effect is OpenSession
        return self._session

    def _failed(self, generation: int, error: StoreError) -> m.Failed:
        self.refusal = refusal_of(error)
        self._log_failure_once("cannot take part in the election now", error)
        return m.Failed(generation)

    def _log_failure_once(self, what: str, error: StoreError) -> None:
        if str(error) != self._trouble and not isinstance(error, SessionLost):
            self._trouble = str(error)
            logger.warning("%s: %s", what, error)
