"""How a client locates the leader: by asking coordinators that it knows, or through ZooKeeper."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeAlias, cast

import grpc
from lockgate_common.security import Credentials
from lockgate_proto.messages import GetLeaderRequest, LeaderRecord
from lockgate_proto.rpc import call

from lockgate.client.address_map import AddressMap
from lockgate.client.channels import Channels
from lockgate.client.deadline import Deadline
from lockgate.client.errors import ClusterUnreachable, classify_rpc_error, coordinator_in

if TYPE_CHECKING:
    _GetLeader: TypeAlias = grpc.UnaryUnaryMultiCallable[GetLeaderRequest, LeaderRecord]

# How long a client waits for a first answer if no coordinator has ever answered: a connection has 3 s to come about.
FIRST_ANSWER_MS = 5_000
ASK_TIMEOUT_S = 1.0
ROUND_PAUSE_S = 0.1
# After the first coordinator has named a leader, the others have this long to name one with a higher token.
SECOND_OPINION_S = 0.1
# How long the coordinators, and then ZooKeeper, are asked before switching to the other.
TURN_S = 1.5


class LeaderDirectory(Protocol):
    """Locates the leader."""

    def locate(self, deadline: Deadline) -> LeaderRecord:
        """The leader. Raises ClusterUnreachable when the deadline passes, or at once when waiting is pointless."""
        ...

    def close(self) -> None:
        """Closes connections. Idempotent."""
        ...


class CoordinatorList:
    """Asks every known coordinator for the leader, all at once, and uses the answer with the highest token.

    addresses: `host:port` each; origin: the source of the addresses, in messages; address_map: learns which coordinator
    is behind which address.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        credentials: Credentials,
        origin: str,
        address_map: AddressMap | None = None,
    ) -> None:
        self._addresses = list(dict.fromkeys(addresses))
        self._address_map = address_map or AddressMap()
        self._origin = origin
        self._met = False
        self._credentials = credentials
        self._channels = Channels(credentials)
        self._closed = threading.Event()

    def locate(self, deadline: Deadline) -> LeaderRecord:
        first_contact = Deadline(FIRST_ANSWER_MS)
        is_silent = True
        while True:
            record, reasons = self._ask_all(deadline)
            if record is not None:
                return record
            # A coordinator that has answered before is reachable: the last round may have been too short for an answer.
            is_silent = is_silent and len(reasons) == len(self._addresses)
            if deadline.expired or (is_silent and not self._met and first_contact.expired):
                if is_silent:
                    raise ClusterUnreachable(self._silence(reasons), silent=True)
                raise ClusterUnreachable(self._no_leader())
            if self._closed.wait(deadline.remaining_s(ROUND_PAUSE_S)):
                raise ClusterUnreachable("the client is closed")

    def close(self) -> None:
        self._closed.set()
        self._channels.close()

    def _ask_all(self, deadline: Deadline) -> tuple[LeaderRecord | None, dict[str, str]]:
        """The best answer of one round, and the errors of the others by address."""
        answers: queue.Queue[tuple[str, grpc.Future[LeaderRecord]]] = queue.Queue()
        calls = []
        for address in self._addresses:
            stub = cast("_GetLeader", call(self._channels.to(address), "JobService", "GetLeader"))
            future = stub.future(
                GetLeaderRequest(),
                timeout=max(0.05, deadline.remaining_s(ASK_TIMEOUT_S)),
            )
            future.add_done_callback(partial(_put, answers, address))
            calls.append(future)
        best, reasons = self._collect(answers, len(calls))
        for future in calls:
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
        """Records the address at which a coordinator was reached for the address that it advertises."""
        advertised = coordinator_in(future)
        if advertised and (asked == advertised or advertised not in self._addresses):
            self._address_map.learn(advertised, asked)

    def _answered_without_leader(self, error: BaseException, address: str, reasons: dict[str, str]) -> bool:
        """True when a coordinator is reachable but does not know the leader; otherwise records why there is no
        answer.
        """
        if not isinstance(error, grpc.RpcError):
            reasons[address] = str(error)
            return False
        code = error.code() if isinstance(error, grpc.Call) else None
        details = (error.details() or "") if isinstance(error, grpc.Call) else str(error)
        if code is grpc.StatusCode.UNAVAILABLE and coordinator_in(error):
            # gRPC itself also reports UNAVAILABLE when the connection failed; then no coordinator is named
            self._met = True
            return True
        if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED):
            reasons[address] = details if code is grpc.StatusCode.UNAVAILABLE else "no answer"
            return False
        verdict = classify_rpc_error(error, "", address)
        if isinstance(verdict, Exception):
            raise verdict
        return True

    def _silence(self, reasons: dict[str, str]) -> str:
        for address, details in reasons.items():
            if problem := self._credentials.handshake_problem(details):
                return f"{address} {problem} (the address is from {self._origin})"
        tried = ", ".join(self._addresses)
        return (
            f"no coordinator answers at {tried} (from {self._origin}{_first_odd_reason(reasons)}); start a cluster "
            "with `lockgate cluster`, or name a running one with --cluster HOST:PORT or LOCKGATE_CLUSTER"
        )

    def _no_leader(self) -> str:
        return (
            f"the coordinators at {', '.join(self._addresses)} answer, but none of them is the leader; "
            "check that ZooKeeper is running and that they can reach it (see their logs)"
        )


class LaterDirectory:
    """Made at its first use: importing ZooKeeper's client takes longer than most commands need for their answer.

    make: raises ClientError.
    """

    def __init__(self, make: Callable[[], LeaderDirectory]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._made: LeaderDirectory | None = None
        self._closed = False

    def locate(self, deadline: Deadline) -> LeaderRecord:
        with self._lock:
            if self._closed:
                raise ClusterUnreachable("the client is closed")
            self._made = self._made or self._make()
        return self._made.locate(deadline)

    def close(self) -> None:
        with self._lock:
            self._closed = True
        if self._made is not None:
            self._made.close()


class CombinedDirectory:
    """Coordinators first, ZooKeeper when they do not know the leader, in turns until the deadline."""

    def __init__(self, coordinators: LeaderDirectory, zookeeper: LeaderDirectory) -> None:
        self._coordinators = coordinators
        self._zookeeper = zookeeper
        self._met = False

    def locate(self, deadline: Deadline) -> LeaderRecord:
        """Fails at once when no coordinator answers and none ever did."""
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
        self._coordinators.close()
        self._zookeeper.close()


def _put(
    answers: queue.Queue[tuple[str, grpc.Future[LeaderRecord]]], address: str, done: grpc.Future[LeaderRecord]
) -> None:
    answers.put((address, done))


def _first_odd_reason(reasons: dict[str, str]) -> str:
    """A refused connection needs no explanation; a failed TLS handshake or name look-up does."""
    for reason in reasons.values():
        if "refused" not in reason.lower():
            return f"; {reason}"
    return ""
