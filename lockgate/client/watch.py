"""Watching a job across failovers."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import grpc
from lockgate_common.kept_events import KEPT_OF_A_KIND, KeptEvents
from lockgate_proto.messages import JobEvent, JobState, JobStatus, LeaderRecord, StatusChange
from lockgate_proto.status_changes import MisfittingChange, changed

from lockgate.client.deadline import Deadline
from lockgate.client.errors import ClientError, ClusterUnreachable, TryAgain, classify_rpc_error

log = logging.getLogger(__name__)

TERMINAL = frozenset({JobState.FINISHED, JobState.FAILED, JobState.CANCELED})
# A stream without messages for this long has no backlog left.
QUIET_S = 2.0
# How often the others are asked for the leader. A frozen leader is silent, and a leader that was cut off from ZooKeeper
# continues to report, because it does not know that it was replaced.
LOOK_EVERY_S = 2.0
REOPEN_PAUSE_S = 0.02
LONGEST_PAUSE_S = 0.5

LostListener = Callable[[str], None]


class WatchClient(Protocol):
    """The part of the client that a watch uses."""

    def open_watch(self, job_key: str, leader: LeaderRecord) -> Any:
        """The raw stream."""
        ...

    def locate(self, deadline: Deadline) -> LeaderRecord:
        """The leader."""
        ...

    def locate_again(self, deadline: Deadline) -> LeaderRecord:
        """The leader, located again."""
        ...

    def forget_leader(self, hint: str = "", refused_by: str = "") -> None:
        """The leader is not leading any more."""
        ...

    def pause(self, seconds: float) -> None:
        """Waits."""
        ...


@dataclass(frozen=True, slots=True)
class _Ended:
    error: grpc.RpcError | None


class JobWatch:
    """Iterates over JobStatus and JobEvent until the job has ended; or `poll` it with a time limit.

    When the leader is lost, the stream is opened again at the next one; events that it repeats are left out.
    """

    def __init__(self, client: WatchClient, job_key: str, on_lost: LostListener | None, patience_ms: int) -> None:
        self._client = client
        self._job_key = job_key
        self._on_lost = on_lost
        self._patience_ms = patience_ms
        self._patience: Deadline | None = None
        self._pause_s = REOPEN_PAUSE_S
        self._seen: set[JobEvent] = set()
        self._remembered: KeptEvents[JobEvent] = KeptEvents(2 * KEPT_OF_A_KIND)  # more than a leader keeps and repeats
        self._stream: Any = None
        self._leader = LeaderRecord()
        self._reader: threading.Thread | None = None
        self._updates: queue.Queue[JobStatus | JobEvent | _Ended] = queue.Queue()
        self._final: JobStatus | None = None
        self._look_at = 0.0  # monotonic
        self.ended = False

    def __iter__(self) -> Iterator[JobStatus | JobEvent]:
        try:
            while (update := self.poll()) is not None:
                yield update
        finally:
            self.close()

    def poll(self, timeout_ms: float | None = None) -> JobStatus | JobEvent | None:
        """The next update; None on a timeout, or when the job has ended (`ended` is set). Raises ClientError."""
        deadline = Deadline(timeout_ms)
        while not self.ended:
            if self._stream is None:
                if not self._open(deadline):
                    return None
                continue
            if self._final is None and time.monotonic() >= self._look_at:
                self._look_for_another_leader()
                continue
            quiet_s = QUIET_S if self._final is not None else max(0.0, self._look_at - time.monotonic())
            try:
                received = self._updates.get(timeout=deadline.remaining_s(quiet_s))
            except queue.Empty:
                if self._final is not None:
                    return self._finish(self._final)
                if deadline.expired:
                    return None
                continue
            update = self._take(received)
            if update is not None:
                return update
        return None

    def close(self) -> None:
        """Ends the stream and its thread. Idempotent."""
        if self._stream is not None:
            self._stream.cancel()
        if self._reader is not None:
            self._reader.join()
        self._stream = self._reader = None
        self._updates = queue.Queue()

    def _take(self, update: JobStatus | JobEvent | _Ended) -> JobStatus | JobEvent | None:
        if isinstance(update, _Ended):
            if self._final is not None:
                return self._finish(self._final)
            self._lost(update.error)
            return None
        self._patience, self._pause_s = None, REOPEN_PAUSE_S
        if isinstance(update, JobStatus) and update.state in TERMINAL:
            self._final = update  # a late watcher gets the status first and the events behind it: keep their order
            return None
        if isinstance(update, JobEvent):
            if update in self._seen:
                return None
            self._seen.add(update)
            if (forgotten := self._remembered.add(update, update)) is not None:
                self._seen.discard(forgotten)
        return update

    def _finish(self, final: JobStatus) -> JobStatus:
        self.ended = True
        self.close()
        return final

    def _open(self, deadline: Deadline) -> bool:
        """Opens the stream at the leader; False when `deadline` passes first."""
        if self._patience is None:
            self._patience = Deadline(self._patience_ms)
        limit_s = min(deadline.remaining_s(3600), self._patience.remaining_s(3600))
        try:
            self._leader = self._client.locate(Deadline(limit_s * 1000))
        except ClusterUnreachable:
            if deadline.expired and not self._patience.expired:
                return False
            raise
        self._look_at = time.monotonic() + LOOK_EVERY_S
        try:
            stream = self._stream = self._client.open_watch(self._job_key, self._leader)
        except grpc.RpcError as error:
            self._lost(error)
            return True
        updates = self._updates
        self._reader = threading.Thread(
            target=_read, args=(stream, updates), name=f"lockgate-watch-{self._job_key}", daemon=True
        )
        self._reader.start()
        return True

    def _lost(self, error: grpc.RpcError | None) -> None:
        """The stream broke or ended although the job has not: raises final errors, otherwise prepares to reconnect."""
        address = self._leader.address
        verdict = (
            TryAgain(f"{address} ended the stream")
            if error is None
            else classify_rpc_error(error, self._job_key, address, self._leader.instance)
        )
        self.close()
        if isinstance(verdict, ClientError):
            raise verdict
        if self._patience is None:
            self._patience = Deadline(self._patience_ms)
            if self._on_lost is not None and not verdict.pause_s:
                self._on_lost(verdict.reason)
        if self._patience.expired:
            raise ClusterUnreachable(f"the job can no longer be watched: {verdict.reason}")
        if not verdict.pause_s:
            self._client.forget_leader(verdict.leader, address)
        self._client.pause(max(self._pause_s, verdict.pause_s))
        self._pause_s = min(self._pause_s * 2, LONGEST_PAUSE_S)

    def _look_for_another_leader(self) -> None:
        try:
            found = self._client.locate_again(Deadline(LOOK_EVERY_S * 1000))
        except ClusterUnreachable:
            return
        finally:
            self._look_at = time.monotonic() + LOOK_EVERY_S
        if found.address == self._leader.address and found.token in (0, self._leader.token):
            return
        if found.address == self._leader.address and self._leader.token == 0:
            self._leader = found
            return
        self.close()
        if self._on_lost is not None:
            self._on_lost(f"{self._leader.address} is no longer the leader; {found.address} is")


def _read(stream: Any, updates: queue.Queue[JobStatus | JobEvent | _Ended]) -> None:
    """Puts whole statuses: the leader sends one, and then what changes in it."""
    whole: JobStatus | None = None
    try:
        for received in stream:
            update = received.update
            if isinstance(update, StatusChange):
                update = whole = changed(whole, update)
            elif isinstance(update, JobStatus):
                whole = update
            if update is not None:
                updates.put(update)
    except grpc.RpcError as error:
        updates.put(_Ended(error))
    except MisfittingChange as error:  # another stream begins with a whole one
        log.warning("the leader sent a change of a job's status that does not fit: %s; watching again", error)
        updates.put(_Ended(None))
    else:
        updates.put(_Ended(None))
