"""The actor that owns all deciding state of this process, and the entrance for other threads."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import contextmanager
from typing import TypeVar

from grpc import StatusCode
from lockgate_common.clock import unix_us
from lockgate_common.serving.event_loop import Bell, LoopThread, settled
from lockgate_common.serving.refusals import Refused
from lockgate_ha.grant import LeadershipGrant
from lockgate_ha.store import CoordinationStore
from lockgate_proto.messages import LeaderRecord

from lockgate_coordinator.job.trace import Build
from lockgate_coordinator.runtime.actor import Actor
from lockgate_coordinator.runtime.coordinator_services import CoordinatorServices
from lockgate_coordinator.runtime.errors import Busy, NotLeading, Stopped
from lockgate_coordinator.runtime.job_runner import JobRunner
from lockgate_coordinator.runtime.metadata_files import MetadataFiles
from lockgate_coordinator.runtime.meters import Meters
from lockgate_coordinator.runtime.settings import CoordinatorSettings
from lockgate_coordinator.runtime.submissions import Submissions
from lockgate_coordinator.runtime.term import LeaderTerm
from lockgate_coordinator.runtime.term_fence import TermFence
from lockgate_coordinator.runtime.watch import WatchEnd, Watcher
from lockgate_coordinator.runtime.workers import KeyedWorkers

log = logging.getLogger(__name__)

T = TypeVar("T")

GRANT_WAIT_S = 0.5  # clients may see a new leader in ZooKeeper before the leader itself does
RECOVERY_WAIT_S = 2.0
_JOB_THREADS = 32
_SLOW_S = 0.1  # a write to ZooKeeper takes milliseconds; a slower call does not count towards the bound
_DELETION_THREADS = 8
_HANGS_S = 10.0
_PROBE_THREADS = 16  # each waits for a port
_WITHDRAWAL_S = 0.5
_ANSWER_S = 10.0  # the actor answers in milliseconds; longer means that it is stuck


class Dispatcher:
    """One per process. Its methods may be called from any thread."""

    def __init__(
        self,
        settings: CoordinatorSettings,
        address: str,
        store: CoordinationStore,
        files: MetadataFiles,
        step_down: Callable[[str, int], None],
        report_token: Callable[[str, int], None],
        leader: Callable[[], LeaderRecord | None],
        traces: Callable[[Build], None] | None = None,
    ) -> None:
        """leader: returns the leader, if known, for the error that redirects a client. traces: where they are sent."""
        self._actor = Actor("dispatcher")
        self._services = CoordinatorServices(
            settings,
            address,
            self._actor,
            KeyedWorkers("job-worker", _JOB_THREADS, patience_s=_SLOW_S),
            KeyedWorkers("deletion", _DELETION_THREADS, patience_s=_HANGS_S),
            KeyedWorkers("probe", _PROBE_THREADS),
            KeyedWorkers("absent", _PROBE_THREADS),
            store,
            files,
            step_down,
            report_token,
            traces,
        )
        self.meters = Meters()
        self._leader = leader
        self._changed = threading.Condition()
        self._term: LeaderTerm | None = None
        self._is_ending = False  # as planned
        self._submissions: Submissions | None = None
        self._bells: set[Bell] = set()  # of coroutines that wait for a term to begin or end

    def start(self) -> None:
        """Starts the actor."""
        self._actor.start()

    def stop(self) -> None:
        """Ends the term, if there is one, and joins every thread."""
        self.revoked("this coordinator is shutting down")
        self._actor.stop()
        self._services.workers.close()
        self._services.deletions.close()
        self._services.probes.close()
        self._services.absent.close()

    @property
    def actor(self) -> Actor:
        """The actor, for a watchdog."""
        return self._actor

    # -- callbacks of the election; must return fast ------------------------------------------------------------------

    def granted(self, grant: LeadershipGrant, detected_unix_us: int | None) -> None:
        """A term begins, unless this process is about to end: then the grant is released in a moment, unused."""
        fence = TermFence(
            grant, threading.Event(), lambda reason: self._services.step_down(reason, grant.token), meters=self.meters
        )
        term = LeaderTerm(grant, detected_unix_us, self._services, fence)
        if not self._replace(term, "a newer grant"):
            return
        self._actor.tell(term.start)
        self.meters.grants.add()
        if detected_unix_us is not None:
            self.meters.takeovers.observe(max(0, unix_us() - detected_unix_us) / 1e6)

    def suspended(self) -> None:
        """ZooKeeper is unreachable."""
        self._in_term(lambda term: term.suspend())

    def resumed(self) -> None:
        """ZooKeeper is reachable again."""
        self._in_term(lambda term: term.resume())

    def explained(self, reason: str) -> None:
        """Why ZooKeeper is unreachable."""
        self._in_term(lambda term: term.explain(reason))

    def revoked(self, reason: str) -> None:
        """The term is over: its workers stop before their next write, its machines are dropped."""
        self._replace(None, reason)

    def withdraw(self) -> None:
        """Before a planned end: no term begins any more, and the marks of jobs in recovery, which are not to blame,
        are removed. At most a second.
        """
        with self._changed:
            self._is_ending, term = True, self._term
        if term is None:
            return
        try:
            under_way = self._actor.ask(term.line.withdraw).result(_WITHDRAWAL_S)
        except (FutureTimeout, Stopped):
            return  # the actor is stuck, perhaps because of one of these jobs: the marks stay
        wait(under_way, _WITHDRAWAL_S)

    def _replace(self, term: LeaderTerm | None, reason: str) -> bool:
        """False if there is to be no such term any more."""
        with self._changed:
            if term is not None and self._is_ending:
                return False
            former, self._term = self._term, term
            self._submissions = None if term is None else Submissions(term)
            self._changed.notify_all()
            for bell in self._bells:
                bell.ring()
        if former is not None:
            self.meters.revocations.add()
            former.fence.over.set()
            self._actor.tell(lambda: former.close(reason))
        return True

    def _in_term(self, call: Callable[[LeaderTerm], None]) -> None:
        term = self._term
        if term is not None:
            self._actor.tell(lambda: call(term))

    # -- for the services ---------------------------------------------------------------------------------------------

    @property
    def term(self) -> LeaderTerm | None:
        """The current term; other threads may read only its token and fence."""
        return self._term

    def not_leading(self) -> NotLeading:
        """The error that names the leader."""
        leader = self._leader()
        address = leader.address if leader is not None and leader.address != self._services.address else ""
        return NotLeading(address)

    def wait_leading(self, timeout_s: float) -> LeaderTerm:
        """The current term; waits a moment for one that is about to begin. Raises NotLeading."""
        with self._changed:
            self._changed.wait_for(lambda: self._term is not None, timeout_s)
            if self._term is None:
                raise self.not_leading()
            return self._term

    async def leading(self, thread: LoopThread, timeout_s: float = GRANT_WAIT_S) -> LeaderTerm:
        """As `wait_leading`, for a coroutine."""
        loop = thread.loop
        deadline = loop.time() + timeout_s
        bell = Bell(thread)
        with self.changing(bell):
            while (term := self._term) is None:
                if not await bell.wait(deadline - loop.time()):
                    raise self.not_leading()
        return term

    async def over(self, term: LeaderTerm, bell: Bell, timeout_s: float) -> bool:
        """Waits for the end of a term; True when it is over. bell: one that is `changing`."""
        if self._term is term:
            await bell.wait(timeout_s)
        return self._term is not term

    @contextmanager
    def changing(self, bell: Bell) -> Iterator[None]:
        """Rings the bell at every beginning and end of a term, for as long as the block runs."""
        with self._changed:
            self._bells.add(bell)
        try:
            yield
        finally:
            with self._changed:
                self._bells.discard(bell)

    async def recovered(self, thread: LoopThread) -> None:
        """As `wait_recovered`, for a coroutine."""
        term = await self.leading(thread, self._grant_wait_s())
        try:
            await settled(term.jobs_known, thread, RECOVERY_WAIT_S)
        except TimeoutError:
            raise Busy("the new leader is still reading the jobs; try again") from None

    async def called(self, call: Callable[[LeaderTerm], T], thread: LoopThread, *, here: bool = False) -> T:
        """As `call`, for a coroutine. here: on the loop if the actor has nothing else to do; for short calls."""
        answer = self._actor.ask(lambda: call(self._present()), here=here)
        try:
            return await settled(answer, thread, _ANSWER_S)
        except TimeoutError:
            answer.cancel()
            raise _stuck() from None

    def _grant_wait_s(self) -> float:
        """How long to wait for a grant: a caller may see this leader before it does itself. A standby does not wait."""
        leader = self._leader()
        return GRANT_WAIT_S if leader is None or leader.address == self._services.address else 0.0

    def wait_recovered(self) -> None:
        """Waits a moment for a new leader to have read its jobs. Raises NotLeading, Busy, Stopped."""
        term = self.wait_leading(self._grant_wait_s())
        try:
            term.jobs_known.result(RECOVERY_WAIT_S)
        except FutureTimeout:
            raise Busy("the new leader is still reading the jobs; try again") from None

    def refuse_token(self, who: str, token: int, term: LeaderTerm) -> Refused:
        """The answer to `who`, a peer that names a token above the term's. Has the token checked in ZooKeeper."""
        log.warning("%s reports token %s, above %s of this leader", who, token, term.token)
        self._services.report_token(f"{who} has seen token {token}", token)
        return Refused(
            StatusCode.FAILED_PRECONDITION,
            f"{who} reports token {token}, above {term.token} of this leader, which checks in ZooKeeper whether it was "
            "replaced. If this persists, that token was never granted: restart the process that reports it",
        )

    def call(self, call: Callable[[LeaderTerm], T]) -> T:
        """The outcome of `call` on the actor thread. Raises what it raises, NotLeading, Busy or Stopped."""
        return _wait(self._actor.ask(lambda: call(self._present())))

    def submissions(self, call: Callable[[Submissions], T]) -> T:
        """As `call`, for writes of jobs. Raises Busy while nothing can be written."""

        def run() -> T:
            writable(self._present())
            assert self._submissions is not None
            return call(self._submissions)

        return _wait(self._actor.ask(run))

    def tell(
        self,
        term: LeaderTerm,
        call: Callable[[], None],
        too_late: Callable[[], None] | None = None,
        *,
        here: bool = False,
    ) -> bool:
        """Runs `call` on the actor thread, or `too_late` when the term is over by then. False: neither will run.

        here: on this thread if the actor has nothing else to do; for short calls.
        """

        def run() -> None:
            if not term.fence.over.is_set():
                call()
            elif too_late is not None:
                too_late()

        return self._term is term and self._actor.tell(run, here=here)

    def forget(self, runner: JobRunner, watcher: Watcher) -> None:
        """Removes a watcher."""
        watcher.finish(WatchEnd.CLOSED)
        self._actor.tell(lambda: runner.hub.forget(watcher))

    def _present(self) -> LeaderTerm:
        term = self._term
        if term is None:
            raise self.not_leading()
        return term


def writable(term: LeaderTerm) -> None:
    """Raises Busy while the term must not write."""
    reachable(term)
    if term.recovering:
        raise Busy("the new leader is still reading the jobs; try again")


def reachable(term: LeaderTerm) -> None:
    """Raises Busy while the term cannot reach ZooKeeper."""
    if term.suspended:
        why = term.suspended_because and f" ({term.suspended_because})"
        raise Busy(f"ZooKeeper is not reachable from the leader at the moment{why}; try again")


def _wait(answer: Future[T]) -> T:
    try:
        return answer.result(_ANSWER_S)
    except FutureTimeout:
        answer.cancel()
        raise _stuck() from None


def _stuck() -> Busy:
    return Busy(f"the leader did not answer within {_ANSWER_S:.0f} s; try again")
