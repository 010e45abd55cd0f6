"""The client of a Lockgate cluster: finds the leader, follows it through a failover, and speaks plainly."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

import grpc
from lockgate_proto.messages import (
    CancelRequest,
    CheckpointKind,
    ClusterStatus,
    CompletedCheckpoint,
    DisposeSavepointRequest,
    GetClusterRequest,
    GetRequest,
    JobGraph,
    JobState,
    JobStatus,
    LeaderRecord,
    ListCheckpointsRequest,
    ListRequest,
    ReleaseRequest,
    RescaleRequest,
    RescaleResponse,
    StopRequest,
    SubmitRequest,
    SubmitResponse,
    TriggerSavepointRequest,
    VertexParallelism,
    WatchRequest,
)
from lockgate_proto.rpc import call
from lockgate_proto.security import Credentials

from lockgate.client.channels import Channels
from lockgate.client.deadline import Deadline
from lockgate.client.directory import CoordinatorList, FirstThatKnows, LeaderDirectory
from lockgate.client.errors import ClientError, ClusterUnreachable, TryAgain, judge
from lockgate.client.target import ClusterTarget, find_cluster
from lockgate.client.watch import JobWatch, LostListener
from lockgate.client.ways import Ways

DEFAULT_PATIENCE_MS = 30_000
# A leader that was cut off from ZooKeeper does not know that it was replaced, and goes on to answer. The others know.
TRUST_S = 3.0
# A leader that does not answer for so long is asked for again elsewhere: it may be frozen.
CALL_TIMEOUT_S = 5.0
FIRST_PAUSE_S = 0.02
LONGEST_PAUSE_S = 0.5


class Client:
    """Calls the leader of one cluster. Safe to use from several threads; close it, or use it in a `with`.

    coordinators: `host:port` each; zookeeper: `host:port,...`. One of the two is enough; with both the coordinators
    are asked first. patience_ms: how long a call looks for a leader before it fails. Every call raises ClientError.
    """

    def __init__(
        self,
        coordinators: Sequence[str] = (),
        zookeeper: str = "",
        *,
        cluster: str = "default",
        credentials: Credentials | None = None,
        patience_ms: int = DEFAULT_PATIENCE_MS,
        session_timeout_ms: int = 4000,
        origin: str = "the arguments of Client",
        directory: LeaderDirectory | None = None,
    ) -> None:
        self._credentials = credentials or Credentials()
        self._patience_ms = patience_ms
        self._ways = Ways()
        self._directory = directory or _directory(
            coordinators, zookeeper, cluster, self._credentials, session_timeout_ms, origin, self._ways
        )
        self._leader: LeaderRecord | None = None
        self._doubt_at = 0.0  # monotonic: from then on the leader is asked for again
        self._newest = 0  # the highest token heard of: a leader with a lower one was replaced
        self._channels = Channels(self._credentials)
        self._closed = threading.Event()

    @classmethod
    def connect(cls, target: ClusterTarget | str | None = None, *, patience_ms: int = DEFAULT_PATIENCE_MS) -> Client:
        """A client of `target`: found by `find_cluster`, an address or directory for it, or None for its defaults."""
        found = target if isinstance(target, ClusterTarget) else find_cluster(target)
        return cls(
            found.coordinators,
            found.zookeeper,
            cluster=found.name,
            credentials=found.credentials,
            patience_ms=patience_ms,
            session_timeout_ms=found.session_timeout_ms,
            origin=found.origin,
        )

    def submit(
        self, job_key: str, graph: JobGraph, restore_from: str = "", *, allow_unmatched_state: bool = False
    ) -> SubmitResponse:
        """Submits a job, or finds it again: the same key with the same graph is the same job, however often sent.

        restore_from: pointer of a savepoint or retained checkpoint; allow_unmatched_state: what it holds of operators
        that the graph does not have is left behind.
        """
        request = SubmitRequest(job_key, graph, restore_from, allow_unmatched_state)
        response: SubmitResponse = self._call("Submit", request, job_key)
        return response

    def job(self, job_key: str) -> JobStatus:
        """The job's status now. Raises UnknownJob."""
        status: JobStatus = self._call("Get", GetRequest(job_key), job_key)
        return status

    def jobs(self) -> tuple[JobStatus, ...]:
        """Every job that runs, and every one that has ended and is still remembered."""
        jobs: tuple[JobStatus, ...] = self._call("List", ListRequest()).jobs
        return jobs

    def watch(self, job_key: str, on_lost: LostListener | None = None) -> JobWatch:
        """The job's status, then every status change and event until it has ended, across failovers.

        on_lost: told why, each time the leader is lost and looked for again.
        """
        return JobWatch(self, job_key, on_lost, self._patience_ms)

    def cancel(self, job_key: str) -> JobState:
        """Asks for the job's end; CANCELING at first, watch it for the rest."""
        state: JobState = self._call("Cancel", CancelRequest(job_key), job_key).state
        return state

    def release(self, job_key: str) -> JobState:
        """Tries a job again that is HELD_BACK; any other stays as it is. Its state then."""
        state: JobState = self._call("Release", ReleaseRequest(job_key), job_key).state
        return state

    def savepoint(self, job_key: str, timeout_ms: int = 0, *, request_id: str = "") -> CompletedCheckpoint:
        """Takes a savepoint and waits until it is complete; `pointer` is what `submit` takes as `restore_from`.

        request_id: 1 to 128 of A-Z a-z 0-9 . _ - that name this savepoint for the job: who asks again under the same
        one, after an error perhaps, gets the same savepoint if it was taken. Each call has its own unless told.
        """
        request = TriggerSavepointRequest(job_key, timeout_ms, request_id or uuid.uuid4().hex)
        savepoint: CompletedCheckpoint | None = self._long_call(
            "TriggerSavepoint", request, job_key, timeout_ms
        ).savepoint
        if savepoint is None:
            raise ClientError(f"the coordinator took no savepoint of {job_key!r}; its log says why")
        return savepoint

    def savepoints(self, job_key: str) -> tuple[CompletedCheckpoint, ...]:
        """The savepoints of a job, running or ended, newest first."""
        return tuple(one for one in self.checkpoints(job_key) if one.kind is CheckpointKind.SAVEPOINT)

    def dispose_savepoint(self, job_key: str, checkpoint_id: int) -> None:
        """Deletes a savepoint for good; one that is gone already is fine."""
        self._call("DisposeSavepoint", DisposeSavepointRequest(job_key, checkpoint_id), job_key)

    def stop(self, job_key: str, *, drain: bool = False, timeout_ms: int = 0) -> CompletedCheckpoint:
        """Ends the job with a savepoint, and returns that when it is complete; watch the job for its end.

        drain: sources stop reading first, and everything that they have read flows out; else the job ends where it is.
        """
        request = StopRequest(job_key, drain, timeout_ms)
        savepoint: CompletedCheckpoint | None = self._long_call("Stop", request, job_key, timeout_ms).savepoint
        if savepoint is None:
            raise ClientError(f"the coordinator did not stop {job_key!r}; its log says why")
        return savepoint

    def rescale(self, job_key: str, parallelism: Mapping[str, int], timeout_ms: int = 0) -> RescaleResponse:
        """Changes how many subtasks vertices have: {vertex id: parallelism}. The others stay as they are.

        Returns when the change is durable; the job restarts at it from a snapshot, whatever dies.
        """
        wanted = tuple(VertexParallelism(name, number) for name, number in parallelism.items())
        response: RescaleResponse = self._long_call(
            "Rescale", RescaleRequest(job_key, wanted, timeout_ms), job_key, timeout_ms
        )
        return response

    def checkpoints(self, job_key: str) -> tuple[CompletedCheckpoint, ...]:
        """The completed checkpoints that are kept, newest first."""
        request = ListCheckpointsRequest(job_key)
        found: tuple[CompletedCheckpoint, ...] = self._call("ListCheckpoints", request, job_key).checkpoints
        return found

    def leader(self) -> LeaderRecord:
        """Who leads now, asked afresh. Raises ClusterUnreachable."""
        return self.locate_afresh(Deadline(self._patience_ms))

    def cluster(self) -> ClusterStatus:
        """The leader, the other coordinators and the task managers, as the leader sees them."""
        status: ClusterStatus = self._call("GetCluster", GetClusterRequest())
        return status

    def close(self) -> None:
        """Closes every connection; open watches end with an error. Idempotent."""
        self._closed.set()
        self._directory.close()
        self._channels.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # What JobWatch uses.

    def open_watch(self, job_key: str, leader: LeaderRecord) -> Any:
        """The raw stream of JobUpdate from one coordinator; iterating it raises grpc.RpcError."""
        stub = call(self._channels.to(self._ways.to(leader.address)), "JobService", "Watch")
        return stub(WatchRequest(job_key), metadata=self._credentials.metadata())

    def locate(self, deadline: Deadline) -> LeaderRecord:
        """The leader as heard of a moment ago, else asked for until `deadline`."""
        leader = self._leader  # once: another thread may lose it meanwhile
        if leader is None:
            return self.locate_afresh(deadline)
        if time.monotonic() < self._doubt_at:
            return leader
        try:
            return self.locate_afresh(Deadline(deadline.remaining_s(TRUST_S) * 1000))
        except ClusterUnreachable:
            return self._trust(leader)  # nobody says otherwise

    def locate_afresh(self, deadline: Deadline) -> LeaderRecord:
        """The leader, asked for until `deadline`. Never one that was replaced, though it may be the first to answer."""
        while (found := self._directory.locate(deadline)).token < self._newest:
            if deadline.expired:
                raise ClusterUnreachable(
                    f"{found.address} answers, but another coordinator has taken its place, and that one does not "
                    "answer; try again, and look into the coordinators' logs if it stays so"
                )
            self.pause(deadline.remaining_s(FIRST_PAUSE_S))
        self._newest = max(self._newest, found.token)
        return self._trust(found)

    def _trust(self, leader: LeaderRecord) -> LeaderRecord:
        self._leader, self._doubt_at = leader, time.monotonic() + TRUST_S
        return leader

    def forget_leader(self, hint: str = "", refused_by: str = "") -> None:
        """`refused_by` does not lead; `hint` is who does, when it said so."""
        if hint == refused_by and not self._ways.forget(hint):
            hint = ""  # it names itself: it has only just been granted, or has just lost
        # Where a way was forgotten, several coordinators share the address that was asked: now by its own.
        if hint:
            self._trust(LeaderRecord(address=hint))
        else:
            self._leader = None

    def pause(self, seconds: float) -> None:
        """Waits, or raises at once when the client is closed."""
        if self._closed.wait(seconds):
            raise ClientError("the client is closed")

    def _long_call(self, method: str, request: Any, job_key: str, timeout_ms: int) -> Any:
        """A call that is answered when a snapshot is complete. timeout_ms: for that."""
        limit_s = (timeout_ms or 60_000) / 1000 + CALL_TIMEOUT_S
        return self._call(method, request, job_key, timeout_s=limit_s, patience_ms=int(limit_s * 1000))

    def _call(
        self,
        method: str,
        request: Any,
        job_key: str = "",
        *,
        timeout_s: float | None = None,
        patience_ms: int | None = None,
    ) -> Any:
        """One call, at the leader, tried again until it has answered or patience ends. Every rpc is idempotent."""
        deadline = Deadline(self._patience_ms if patience_ms is None else patience_ms)
        pause_s, last = FIRST_PAUSE_S, ""
        while True:
            leader = self._locate_for(deadline, last)
            stub = call(self._channels.to(self._ways.to(leader.address)), "JobService", method)
            try:
                return stub(
                    request,
                    timeout=max(0.05, deadline.remaining_s(CALL_TIMEOUT_S if timeout_s is None else timeout_s)),
                    metadata=self._credentials.metadata(),
                )
            except grpc.RpcError as error:
                verdict = judge(error, job_key, leader.address)
            if not isinstance(verdict, TryAgain):
                raise verdict
            last = verdict.reason
            self.forget_leader(verdict.leader, leader.address)
            if deadline.expired:
                raise ClusterUnreachable(f"the cluster did not answer in time: {last}")
            self.pause(deadline.remaining_s(pause_s))
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)

    def _locate_for(self, deadline: Deadline, last: str) -> LeaderRecord:
        try:
            return self.locate(deadline)
        except ClusterUnreachable as error:
            if last:
                raise ClusterUnreachable(f"{error} (last: {last})", silent=error.silent) from error
            raise


def _directory(
    coordinators: Sequence[str],
    zookeeper: str,
    cluster: str,
    credentials: Credentials,
    session_timeout_ms: int,
    origin: str,
    ways: Ways,
) -> LeaderDirectory:
    if not coordinators and not zookeeper:
        raise ClientError("a client needs the address of a coordinator or of ZooKeeper")
    directories: list[LeaderDirectory] = []
    if coordinators:
        directories.append(CoordinatorList(coordinators, credentials, origin, ways=ways))
    if zookeeper:
        from ha.zookeeper import connector
        from lockgate.client.through_zookeeper import ThroughZooKeeper

        directories.append(ThroughZooKeeper(connector(zookeeper, session_timeout_ms), cluster, origin))
    return directories[0] if len(directories) == 1 else FirstThatKnows(*directories)
