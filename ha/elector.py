"""Elector: takes part in the election of one cluster, and owns the coordinator's ZooKeeper session."""

from __future__ import annotations

import dataclasses
import logging
import queue
import socket
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from lockgate_proto.messages import LeaderRecord

from ha import election_messages as m
from ha import steps
from ha.election import LeaderElection
from ha.election_timing import ElectionTiming
from ha.errors import Conflict, OutcomeUnknown, SessionLost, StoreError
from ha.grant import LeadershipGrant
from ha.paths import Paths
from ha.session import Connector, Session, SessionState
from ha.session_store import SessionStore
from ha.store import CoordinationStore

logger = logging.getLogger(__name__)

PROBE_TIMEOUT_S = 0.5
_FAULT_PAUSE_S = 1.0


class ElectionListener(Protocol):
    """Hears what the elector found out. Called on the elector's thread, in order; must return fast.

    One that raises has not heard it: the grant, if there is one, is given up, and the elector starts over.
    """

    def on_granted(self, grant: LeadershipGrant, detected_unix_us: int | None) -> None:
        """This coordinator leads under `grant`.

        detected_unix_us: wall clock when the loss of the former leader was first seen; None when there was none.
        """
        ...

    def on_suspended(self) -> None:
        """The leader's connection to ZooKeeper is away; the grant is kept. Start nothing that needs a write."""
        ...

    def on_resumed(self) -> None:
        """ZooKeeper is back within the session, and the grant was verified: go on."""
        ...

    def on_revoked(self, reason: str) -> None:
        """The grant is over, for good. The elector contends again by itself."""
        ...

    def on_leader(self, leader: LeaderRecord | None) -> None:
        """Who leads has changed (also to this coordinator); None when ZooKeeper says that nobody does."""
        ...


class Elector:
    """One per coordinator process. All methods are thread-safe.

    me: `coordinator_id`, `address` and `pid` are read from it; the rest is filled in at a grant.
    on_broken: called on the elector's thread, after the story was logged, when it cannot even start over. Nobody
    contends from here any more, and nobody may go on leading: it has to end the process.
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
        self._store = SessionStore(cluster)
        self._session: Session | None = None
        self._nonce = ""
        self._known: steps.Known = {}
        self._watch: Callable[[], None] = lambda: None
        self._queue: queue.Queue[m.Event] = queue.Queue()
        self._wake_at_ms: int | None = None
        self._done = False
        self._stopping = threading.Event()
        self._in_line = threading.Event()
        self._trouble = ""  # the last failure that was logged, so that it is not logged again and again
        self._thread = threading.Thread(target=self._run, name=f"elector-{me.coordinator_id}", daemon=True)
        self._carry: dict[type, Callable[[Any], m.Event | None]] = {
            m.OpenSession: self._open_session,
            m.CloseSession: self._close_session,
            m.Join: self._join,
            m.ReadView: self._read_view,
            m.Probe: self._probe,
            m.Challenge: self._challenge,
            m.AnswerChallenge: self._answer_challenge,
            m.Claim: self._claim,
            m.Release: self._release,
            m.WakeAt: self._wake,
        }
        self._tell: dict[type, Callable[[Any], None]] = {
            m.Granted: lambda one: listener.on_granted(one.grant, one.detected_unix_us),
            m.Suspended: lambda _: listener.on_suspended(),
            m.Resumed: lambda _: listener.on_resumed(),
            m.Revoked: lambda one: listener.on_revoked(one.reason),
            m.LeaderChanged: lambda one: listener.on_leader(one.leader),
        }

    # -- for everyone -------------------------------------------------------------------------------------------------

    @property
    def store(self) -> CoordinationStore:
        """Reads and fenced writes over the elector's session; to be given to JobRecords."""
        return self._store

    @property
    def leader(self) -> LeaderRecord | None:
        """The leader as last heard; kept while ZooKeeper is away."""
        return self._machine.leader

    @property
    def grant(self) -> LeadershipGrant | None:
        """The grant held, also while suspended. For display: never a reason to skip the fence."""
        return self._machine.grant

    def contenders(self) -> tuple[LeaderRecord, ...]:
        """Every coordinator present as last heard, in line order (`token` 0)."""
        view = self._machine.view
        return () if view is None else tuple(one.record for one in view.contenders)

    def start(self) -> None:
        """Starts contending; returns at once, whether or not ZooKeeper is there."""
        self._thread.start()

    def wait_connected(self, timeout_ms: int) -> bool:
        """Waits until this coordinator has first been in line. False when ZooKeeper did not let it in `timeout_ms`."""
        return self._in_line.wait(timeout_ms / 1000)

    def stop(self, release: bool = True) -> None:
        """Ends it and joins the thread. While leading `on_revoked` is called first.

        release=True hands over: `/leader` and the own place in line are deleted, so the next takes over at once.
        release=False leaves both as a crash would, until ZooKeeper expires the session.
        """
        self._stopping.set()
        self._queue.put(m.Stop(release))
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join()

    def report_leader_gone(self, token: int) -> None:
        """Evidence: the stream to the leader of `token` broke, or it cannot be reached. Returns at once.

        The elector itself tries a TCP connection to the leader's address. When it is refused, or when there is no
        answer and the leader does not answer a challenge by way of ZooKeeper either, the first in line takes over,
        the others a little later if it does not. Report again as long as the leader is unreachable.
        """
        self._queue.put(m.LeaderGone(token, _unix_us()))

    def report_not_leading(self, token: int) -> None:
        """Evidence: the process that answers at the leader's address says that it does not hold `token`.

        Ignored during the first second of a leader's term, when it may not know yet. Report again as long as it is so.
        """
        self._queue.put(m.NotLeading(token, _unix_us()))

    def report_unanswering(self, token: int) -> None:
        """Evidence: the process at the leader's address takes connections, and has answered none for long."""
        self._queue.put(m.Unanswering(token, _unix_us()))

    def step_down(self, reason: str, token: int = 0) -> None:
        """Gives up leadership: a write was Fenced. Contends again.

        token: of the grant that the reason is about; it does not end a later grant. 0 means whichever is held.
        """
        self._queue.put(m.StepDown(reason, token))

    def report_token(self, reason: str, token: int) -> None:
        """A peer names `token`, above that of the grant held: ZooKeeper is asked whether it was ever granted.

        Leadership ends when ZooKeeper says so; while it cannot be asked, at once. reason: who named it, in words.
        """
        self._queue.put(m.TokenSeen(reason, token))

    # -- the thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._contend()
        except Exception:
            logger.critical("the elector cannot go on", exc_info=True)
            self._on_broken()

    def _contend(self) -> None:
        self._carry_out(self._machine.start())
        while not self._done:
            try:
                self._take(self._next_event())
            except Exception:
                logger.exception("a fault in the elector; it starts over with a new session")
                if not self._done:
                    self._start_over()

    def _start_over(self) -> None:
        """After a fault nothing of the old machine is trusted: its grant ends, and a fresh one contends."""
        former = self._machine
        self._machine = LeaderElection(self._me, self._timing, former.generation)
        if former.grant is not None:
            self._notify(m.Revoked("a fault in the elector"))
        if self._stopping.wait(_FAULT_PAUSE_S):
            self._close_session(m.CloseSession(abandon=False))  # the order to stop may have gone down with the fault
        else:
            self._carry_out(self._machine.start())

    def _next_event(self) -> m.Event:
        timeout = None if self._wake_at_ms is None else max(0.0, (self._wake_at_ms - _now_ms()) / 1000)
        try:
            return self._queue.get(timeout=timeout)
        except queue.Empty:
            self._wake_at_ms = None
            return m.Tick()

    def _take(self, event: m.Event) -> None:
        """One event from outside, and everything that follows from it at once."""
        pending = deque([event])
        while pending:
            pending.extend(self._carry_out(self._machine.handle(pending.popleft(), _now_ms())))

    def _carry_out(self, effects: list[m.Effect]) -> list[m.Event]:
        answers = []
        for effect in effects:
            if type(effect) in self._tell:
                self._notify(effect)
                continue
            answer = self._carry[type(effect)](effect)
            if answer is not None:
                answers.append(answer)
        return answers

    def _notify(self, effect: m.Effect) -> None:
        if not isinstance(effect, m.LeaderChanged):
            logger.info("election: %s", effect)
        self._tell[type(effect)](effect)

    # -- effects: each returns the event that answers it ---------------------------------------------------------------

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

        self._watch = lambda: self._queue.put(m.Changed(generation))  # one per session: watching twice is heard once
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
        return m.Viewed(generation, view, _unix_us())

    def _claim(self, effect: m.Claim) -> m.Event:
        session = self._current()
        record = dataclasses.replace(self._me, token=effect.token, session=session.id, granted_unix_us=_unix_us())
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
            self._tell_trouble(f"token {effect.token} was not granted", error)
            return m.ClaimFailed(effect.generation, m.ClaimFailure.UNAVAILABLE)
        logger.info("token %s was granted: %s", effect.token, effect.why)
        return m.Claimed(effect.generation, effect.token)

    def _release(self, effect: m.Release) -> None:
        try:
            steps.release(self._current(), self._paths, effect.token, effect.contender)
        except StoreError as error:
            logger.info("the leader node of token %s was not released: %s", effect.token, error)

    def _probe(self, effect: m.Probe) -> None:
        def probe() -> None:
            self._queue.put(m.Probed(effect.token, knock(effect.address)))

        threading.Thread(target=probe, name=f"leader-probe-{effect.token}", daemon=True).start()

    def _challenge(self, effect: m.Challenge) -> m.Event:
        try:
            steps.challenge(self._current(), self._paths, effect.token)
        except StoreError as error:
            logger.info("the leader of token %s could not be challenged: %s", effect.token, error)
            return m.Challenged(effect.generation, effect.token, posted=False)
        return m.Challenged(effect.generation, effect.token, posted=True)

    def _answer_challenge(self, _effect: m.AnswerChallenge) -> None:
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
        self._tell_trouble("cannot take part in the election now", error)
        return m.Failed(generation)

    def _tell_trouble(self, what: str, error: StoreError) -> None:
        if str(error) != self._trouble and not isinstance(error, SessionLost):
            self._trouble = str(error)
            logger.warning("%s: %s", what, error)


def knock(address: str) -> m.ProbeAnswer:
    """Tries a TCP connection to `host:port`."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), PROBE_TIMEOUT_S).close()
    except ConnectionRefusedError:
        return m.ProbeAnswer.REFUSED
    except (OSError, ValueError, OverflowError):
        return m.ProbeAnswer.NONE
    return m.ProbeAnswer.ACCEPTED


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def _unix_us() -> int:
    return time.time_ns() // 1_000
