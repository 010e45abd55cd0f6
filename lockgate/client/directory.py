"""How a client finds the leader: by asking coordinators that it knows, or through ZooKeeper."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeAlias, cast

import grpc
from lockgate_proto.messages import GetLeaderRequest, LeaderRecord
from lockgate_proto.rpc import call
from lockgate_proto.security import Credentials

from lockgate.client.channels import Channels
from lockgate.client.deadline import Deadline
from lockgate.client.errors import ClusterUnreachable, coordinator_in, judge
from lockgate.client.ways import Ways

if TYPE_CHECKING:
    _GetLeader: TypeAlias = grpc.UnaryUnaryMultiCallable[GetLeaderRequest, LeaderRecord]

ASK_TIMEOUT_S = 1.0
ROUND_PAUSE_S = 0.1
# After the first coordinator has named a leader the others get so long to name one with a higher token.
SECOND_OPINION_S = 0.1
# How long the coordinators, and then ZooKeeper, are asked before it is the other's turn.
TURN_S = 1.5


class LeaderDirectory(Protocol):
    """Knows, or finds out, who leads."""

    def locate(self, deadline: Deadline) -> LeaderRecord:
        """The leader. Raises ClusterUnreachable when the deadline passes, or at once when waiting is pointless."""
        ...

    def close(self) -> None:
        """Closes connections. Idempotent."""
        ...


class CoordinatorList:
    """Asks every known coordinator who leads, all at once, and believes the highest token.

    addresses: `host:port` each; origin: where they came from, for messages; connect_ms: how long nobody at all may
    answer before `locate` gives up, where a first contact was never made; ways: told which coordinator is behind which
    address.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        credentials: Credentials,
        origin: str,
        connect_ms: int = 1500,
        ways: Ways | None = None,
    ) -> None:
        self._addresses = list(dict.fromkeys(addresses))
        self._ways = ways or Ways()
        self._credentials = credentials
        self._origin = origin
        self._connect_ms = connect_ms
        self._met = False
        self._channels = Channels(credentials)
        self._closed = threading.Event()

    def locate(self, deadline: Deadline) -> LeaderRecord:
        """See LeaderDirectory."""
        first_contact = Deadline(self._connect_ms)
        nobody = True
        while True:
            record, reasons = self._ask_all(deadline)
            if record is not None:
                return record
            # Whoever has answered once is there: the last round may have been too short for an answer.
            nobody = nobody and len(reasons) == len(self._addresses)
            if deadline.expired or (nobody and not self._met and first_contact.expired):
                if nobody:
                    raise ClusterUnreachable(self._nobody(reasons), silent=True)
                raise ClusterUnreachable(self._no_leader())
            if self._closed.wait(deadline.remaining_s(ROUND_PAUSE_S)):
                raise ClusterUnreachable("the client is closed")

    def close(self) -> None:
        """See LeaderDirectory."""
        self._closed.set()
        self._channels.close()

    def _ask_all(self, deadline: Deadline) -> tuple[LeaderRecord | None, dict[str, str]]:
        """The best answer of one round, and why the others did not answer, by address."""
        answers: queue.Queue[tuple[str, grpc.Future[LeaderRecord]]] = queue.Queue()
        asked = []
        for address in self._addresses:
            stub = cast("_GetLeader", call(self._channels.to(address), "JobService", "GetLeader"))
            future = stub.future(
                GetLeaderRequest(),
                timeout=max(0.05, deadline.remaining_s(ASK_TIMEOUT_S)),
                metadata=self._credentials.metadata(),
            )
            future.add_done_callback(partial(_put, answers, address))
            asked.append(future)
        best, reasons = self._collect(answers, len(asked))
        for future in asked:
            future.cancel()
        return best, reasons

    def _collect(
        self, answers: queue.Queue[tuple[str, grpc.Future[LeaderRecord]]], count: int
    ) -> tuple[LeaderRecord | None, dict[str, str]]:
        best: LeaderRecord | None = None
        reasons: dict[str, str] = {}
        until = time.monotonic() + ASK_TIMEOUT_S + 0.5
        for _ in range(count):
            try:
                address, future = answers.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                break
            error = future.exception()
            self._note_way(address, future)
            if error is None:
                self._met = True
                record = future.result()
                if record.address and (best is None or record.token > best.token):
                    best = record
                    until = min(until, time.monotonic() + SECOND_OPINION_S)
            elif not self._answered_without_leader(error, address, reasons):
                continue
        return best, reasons

    def _note_way(self, asked: str, future: grpc.Future[LeaderRecord]) -> None:
        """A coordinator says what it advertises. Where that was asked at, it is the best way to it."""
        advertised = coordinator_in(future)
        if advertised and (asked == advertised or advertised not in self._addresses):
            self._ways.learn(advertised, asked)

    def _answered_without_leader(self, error: BaseException, address: str, reasons: dict[str, str]) -> bool:
        """True when a coordinator is there but cannot say who leads; else notes why there is no answer."""
        if not isinstance(error, grpc.RpcError):
            reasons[address] = str(error)
            return False
        code = error.code() if isinstance(error, grpc.Call) else None
        details = (error.details() or "") if isinstance(error, grpc.Call) else str(error)
        if code is grpc.StatusCode.UNAVAILABLE and coordinator_in(error):
            self._met = True  # gRPC itself says UNAVAILABLE, too, of what it could not reach; it knows no coordinator
            return True
        if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED):
            reasons[address] = details if code is grpc.StatusCode.UNAVAILABLE else "no answer"
            return False
        verdict = judge(error, "", address)
        if isinstance(verdict, Exception):
            raise verdict
        return True

    def _nobody(self, reasons: dict[str, str]) -> str:
        tried = ", ".join(self._addresses)
        return (
            f"no coordinator answers at {tried} (from {self._origin}{_first_odd_reason(reasons)}); start a cluster "
            "with `lockgate cluster`, or name a running one with --cluster HOST:PORT or LOCKGATE_CLUSTER"
        )

    def _no_leader(self) -> str:
        return (
            f"the coordinators at {', '.join(self._addresses)} answer, but none of them leads; "
            "check that ZooKeeper runs and that they can reach it (their logs say)"
        )


class FirstThatKnows:
    """Coordinators first, ZooKeeper when they do not know, in turns until the deadline."""

    def __init__(self, coordinators: LeaderDirectory, zookeeper: LeaderDirectory) -> None:
        self._coordinators = coordinators
        self._zookeeper = zookeeper
        self._met = False

    def locate(self, deadline: Deadline) -> LeaderRecord:
        """See LeaderDirectory. Gives up at once when nobody at all answers and nobody ever did."""
        while True:
            try:
                return self._found(self._coordinators.locate(Deadline(deadline.remaining_s(TURN_S) * 1000)))
            except ClusterUnreachable as error:
                first = error
            try:
                return self._found(self._zookeeper.locate(Deadline(deadline.remaining_s(TURN_S) * 1000)))
            except ClusterUnreachable as error:
                if first.silent and error.silent and not self._met:
                    raise first from error
                if deadline.expired:
                    raise (error if first.silent else first) from error

    def _found(self, record: LeaderRecord) -> LeaderRecord:
        self._met = True
        return record

    def close(self) -> None:
        """See LeaderDirectory."""
        self._coordinators.close()
        self._zookeeper.close()


def _put(
    answers: queue.Queue[tuple[str, grpc.Future[LeaderRecord]]], address: str, done: grpc.Future[LeaderRecord]
) -> None:
    answers.put((address, done))


def _first_odd_reason(reasons: dict[str, str]) -> str:
    """A refused connection needs no words; a failed TLS handshake or name look-up does."""
    for reason in reasons.values():
        if "refused" not in reason.lower():
            return f"; {reason}"
    return ""
