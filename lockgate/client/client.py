"""The client of a Lockgate cluster: finds the leader, follows it through a failover, and reports readable errors."""

from __future__ import annotations

import math
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any

import grpc
from lockgate_common.proof import Peer, UnprovenPeer
from lockgate_common.security import Credentials, SecurityError
from lockgate_proto.messages import (
    CancelRequest,
    CheckpointKind,
    CheckpointOffsets,
    CheckpointOutcome,
    ClusterStatus,
    CompletedCheckpoint,
    DisposeSavepointRequest,
    GetCheckpointRequest,
    GetClusterRequest,
    GetLeaderRequest,
    GetRequest,
    GetStoryRequest,
    JobGraph,
    JobState,
    JobStatus,
    JobStory,
    LeaderRecord,
    ListCheckpointsRequest,
    ListRequest,
    OperatorKeys,
    QueryStateRequest,
    QueryStateResponse,
    ReleaseRequest,
    RescaleRequest,
    RescaleResponse,
    StopRequest,
    SubmitRequest,
    SubmitResponse,
    SubtaskSnapshot,
    TriggerSavepointRequest,
    VertexParallelism,
    WatchRequest,
)
from lockgate_proto.rpc import call, path

from lockgate.client.address_map import AddressMap
from lockgate.client.channels import Channels
from lockgate.client.deadline import Deadline
from lockgate.client.directory import CombinedDirectory, CoordinatorList, LaterDirectory, LeaderDirectory
from lockgate.client.errors import (
    ClientError,
    ClusterUnreachable,
    InvalidJob,
    NotAllowed,
    TryAgain,
    classify_rpc_error,
    nothing_to_prove,
)
from lockgate.client.key_json import key_json
from lockgate.client.proven_stream import ProvenStream
from lockgate.client.target import ClusterTarget, find_cluster
from lockgate.client.watch import JobWatch, LostListener

DEFAULT_PATIENCE_MS = 30_000
# A leader that was cut off from ZooKeeper does not know that it was replaced, and continues to answer; the others know.
TRUST_S = 3.0
# A leader that does not answer for this long may be frozen: it is located again.
CALL_TIMEOUT_S = 5.0
READ_MS = 30_000
"""How long the leader waits for a read of checkpoints in the storage."""
UNPROVEN_MS = 5_000
"""How long a leader that does not prove itself may be one that has just been replaced at its address."""
FIRST_PAUSE_S = 0.02
LONGEST_PAUSE_S = 0.5


class Client:
    """Calls the leader of one cluster. Safe to use from several threads; close it, or use it in a `with`.

    coordinators: `host:port` each; zookeeper: `host:port,...`. One of the two is enough; with both the coordinators
    are asked first. patience_ms: how long a call looks for a leader before it fails. Every call raises ClientError.
    credentials: without secret and token a job is handed over with TLS only; with None to any process that answers.
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
        self._is_trusting = credentials is None
        self._patience_ms = patience_ms
        self._address_map = AddressMap()
        self._directory = directory or _directory(
            coordinators, zookeeper, cluster, self._credentials, session_timeout_ms, origin, self._address_map
        )
        self._leader: LeaderRecord | None = None
        self._doubt_at = 0.0  # monotonic: after that the leader is located again
        self._newest = 0  # the highest token seen: a leader with a lower one was replaced
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
        self,
        job_key: str,
        graph: JobGraph,
        restore_from: str = "",
        *,
        allow_unmatched_state: bool = False,
        trust_snapshot: bool = False,
    ) -> SubmitResponse:
        """Submits a job, or finds it again: the same key with the same graph is the same job, however often it is sent.

        restore_from: pointer of a savepoint or retained checkpoint; allow_unmatched_state: its state of operators that
        the graph does not have is dropped; trust_snapshot: it need not be sealed by this cluster.
        """
        request = SubmitRequest(job_key, graph, restore_from, allow_unmatched_state, trust_snapshot)
        response: SubmitResponse = self._call("Submit", request, job_key)
        return response

    def job(self, job_key: str, *, with_reads: bool = False) -> JobStatus:
        """The job's status now. with_reads: and what was read in the last minutes. Raises UnknownJob."""
        status: JobStatus = self._call("Get", GetRequest(job_key, with_reads), job_key)
        return status

    def jobs(self, *, with_subtasks: bool = True) -> tuple[JobStatus, ...]:
        """Every running job, and every ended one that is still remembered.

        with_subtasks: False: each with the number of its subtasks only, and the backlog of its sources.
        """
        jobs: tuple[JobStatus, ...] = self._call("List", ListRequest(without_subtasks=not with_subtasks)).jobs
        return jobs

    def watch(self, job_key: str, on_lost: LostListener | None = None) -> JobWatch:
        """The job's status, then every status change and event until it has ended, across failovers.

        on_lost: called with the reason each time the leader is lost and located again.
        """
        return JobWatch(self, job_key, on_lost, self._patience_ms)

    def cancel(self, job_key: str) -> JobState:
        """Requests cancellation; the state is CANCELING at first, watch the job for its end."""
        state: JobState = self._call("Cancel", CancelRequest(job_key), job_key).state
        return state

    def release(self, job_key: str) -> JobState:
        """Retries a job that is HELD_BACK; any other job is unchanged. Returns its state."""
        state: JobState = self._call("Release", ReleaseRequest(job_key), job_key).state
        return state

    def savepoint(self, job_key: str, timeout_ms: int = 0, *, request_id: str = "") -> CompletedCheckpoint:
        """Takes a savepoint and waits until it is complete; `pointer` is what `submit` takes as `restore_from`.

        timeout_ms: 0 for the job's checkpoint timeout. request_id: 1 to 128 of A-Z a-z 0-9 . _ - that name this
        savepoint for the job: repeating a request with the same id, for example after an error, returns the same
        savepoint if it was taken. By default each call has a new id, which ClusterUnreachable names.
        """
        name = request_id or uuid.uuid4().hex
        request = TriggerSavepointRequest(job_key, timeout_ms, name)
        late = f"ask again with request id {name} to get the same savepoint"
        answer = self._long_call("TriggerSavepoint", request, job_key, timeout_ms, late)
        savepoint: CompletedCheckpoint | None = answer.savepoint
        if savepoint is None:
            raise ClientError(f"the coordinator could not take a savepoint of {job_key!r}; see its log")
        return savepoint

    def savepoints(self, job_key: str) -> tuple[CompletedCheckpoint, ...]:
        """The savepoints of a job, running or ended, newest first."""
        return tuple(
            checkpoint for checkpoint in self.checkpoints(job_key) if checkpoint.kind is CheckpointKind.SAVEPOINT
        )

    def dispose_savepoint(self, job_key: str, checkpoint_id: int) -> None:
        """Deletes a savepoint permanently; one that is already deleted is ignored."""
        self._call("DisposeSavepoint", DisposeSavepointRequest(job_key, checkpoint_id), job_key)

    def stop(self, job_key: str, *, drain: bool = False, timeout_ms: int = 0) -> CompletedCheckpoint:
        """Ends the job with a savepoint, and returns the savepoint when it is complete; watch the job for its end.

        drain: sources stop reading first, and all records already read are processed; otherwise the job stops where it
        is. timeout_ms: for the savepoint, once the job runs; 0 for the job's checkpoint timeout. Raises NotPossible if
        it failed; the job runs on. After ClusterUnreachable it may end all the same: stop it again to wait for that.
        """
        request = StopRequest(job_key, drain, timeout_ms)
        late = "an order to stop remains in effect: stop the job again to wait for it"
        savepoint: CompletedCheckpoint | None = self._long_call("Stop", request, job_key, timeout_ms, late).savepoint
        if savepoint is None:
            raise ClientError(f"the coordinator could not stop {job_key!r}; see its log")
        return savepoint

    def rescale(self, job_key: str, parallelism: Mapping[str, int], timeout_ms: int = 0) -> RescaleResponse:
        """Changes the number of subtasks of vertices: {vertex id: parallelism}. Others are unchanged.

        Returns when the change is durable; the job then restarts from a snapshot with the new parallelism, even after
        failures. timeout_ms: for the snapshot; 0 for the job's checkpoint timeout.
        """
        wanted = tuple(VertexParallelism(name, number) for name, number in parallelism.items())
        request = RescaleRequest(job_key, wanted, timeout_ms)
        late = "the job may be rescaled all the same: rescale it again to wait for it"
        response: RescaleResponse = self._long_call("Rescale", request, job_key, timeout_ms, late)
        return response

    def checkpoints(self, job_key: str) -> tuple[CompletedCheckpoint, ...]:
        """The retained completed checkpoints, newest first."""
        request = ListCheckpointsRequest(job_key)
        found: tuple[CompletedCheckpoint, ...] = self._call("ListCheckpoints", request, job_key).checkpoints
        return found

    def checkpoint_history(self, job_key: str) -> tuple[CheckpointOutcome, ...]:
        """What became of the job's newest checkpoints, newest first: completed (and retained or not) or aborted.

        The leader keeps the newest 200 of each kind that it has seen itself; those of earlier leaders are there only
        while they are retained.
        """
        answer = self._call("ListCheckpoints", ListCheckpointsRequest(job_key, history=True), job_key)
        # a leader of an earlier version knows only those that are retained
        found: tuple[CheckpointOutcome, ...] = answer.history or tuple(
            CheckpointOutcome(checkpoint, retained=True) for checkpoint in answer.checkpoints
        )
        return found

    def offsets(self, job_key: str) -> tuple[CheckpointOffsets, ...]:
        """Where the sources injected the barriers of the retained checkpoints, newest first."""
        request = ListCheckpointsRequest(job_key, offsets=True)
        found: tuple[CheckpointOffsets, ...] = self._long_call("ListCheckpoints", request, job_key, READ_MS).offsets
        return found

    def query(
        self, job_key: str, keys: Mapping[str, Sequence[Sequence[Any]]], checkpoint_id: int = 0
    ) -> QueryStateResponse:
        """What operators hold for some keys, all as of one completed checkpoint, the newest for 0.

        keys: by operator id; each has a value for each key column: a number, a bool, None, a decimal, a date, a time,
        bytes, or a text that is read as the column's type, such as one of an answer. Answers are in the same order.
        """
        wanted = tuple(OperatorKeys(operator, tuple(map(key_json, some))) for operator, some in keys.items())
        request = QueryStateRequest(job_key, checkpoint_id, wanted)
        try:
            found: QueryStateResponse = self._long_call("QueryState", request, job_key, READ_MS)
        except InvalidJob as error:  # it is the query that does not fit
            raise ClientError("\n".join(error.problems)) from error
        return found

    def checkpoint_parts(self, job_key: str, checkpoint_id: int) -> tuple[SubtaskSnapshot, ...]:
        """What each subtask contributed to one of the newest checkpoints, in the order of their acknowledgements.

        The leader keeps that of the newest 20 that it has taken itself (of fewer in a job of many subtasks), while the
        job runs; () for others.
        """
        request = GetCheckpointRequest(job_key, checkpoint_id)
        found: tuple[SubtaskSnapshot, ...] = self._call("GetCheckpoint", request, job_key).subtasks
        return found

    def story(self, job_key: str) -> JobStory:
        """What happened to the job as far as the leader and its task managers remember, and what caused what."""
        story: JobStory = self._call("GetStory", GetStoryRequest(job_key), job_key)
        return story

    def leader(self) -> LeaderRecord:
        """The current leader, located again. Raises ClusterUnreachable."""
        return self.locate_again(Deadline(self._patience_ms))

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

    # Used by JobWatch.

    def open_watch(self, job_key: str, leader: LeaderRecord) -> Any:
        """The raw stream of JobUpdate from one coordinator; it and iterating it raise grpc.RpcError."""
        leader = self._identified(leader, CALL_TIMEOUT_S)
        introduction = self._credentials.introduction(
            Peer(leader.address, leader.instance), path("JobService", "Watch")
        )
        stub = call(self._channels.to(self._address_map.to(leader.address)), "JobService", "Watch")
        stream = stub(WatchRequest(job_key, changes=True), metadata=introduction.metadata)
        return ProvenStream(stream, introduction) if introduction.metadata else stream

    def locate(self, deadline: Deadline) -> LeaderRecord:
        """The leader as known from a moment ago, otherwise located until `deadline`."""
        leader = self._leader  # read once: another thread may clear it meanwhile
        if leader is None:
            return self.locate_again(deadline)
        if time.monotonic() < self._doubt_at:
            return leader
        try:
            return self.locate_again(Deadline(deadline.remaining_s(TRUST_S) * 1000))
        except ClusterUnreachable:
            return self._trust(leader)  # nothing contradicts it

    def locate_again(self, deadline: Deadline) -> LeaderRecord:
        """Locates the leader until `deadline`. Never returns one that was replaced, even if it answers first."""
        while (found := self._directory.locate(deadline)).token < self._newest:
            if deadline.expired:
                raise ClusterUnreachable(
                    f"{found.address} answers, but another coordinator has taken over and does not "
                    "answer; try again, and check the coordinators' logs if this persists"
                )
            self.pause(deadline.remaining_s(FIRST_PAUSE_S))
        self._newest = max(self._newest, found.token)
        return self._trust(found)

    def _trust(self, leader: LeaderRecord) -> LeaderRecord:
        self._leader, self._doubt_at = leader, time.monotonic() + TRUST_S
        return leader

    def forget_leader(self, hint: str = "", refused_by: str = "") -> None:
        """`refused_by` is not the leader; `hint` is, when the answer named it."""
        if hint == refused_by and not self._address_map.forget(hint):
            hint = ""  # it names itself: it has only just been granted, or has just lost
        # Where a way was forgotten, several coordinators share the address that was asked: now by its own.
        known = self._leader
        if not hint:
            self._leader = None
        else:
            self._trust(known if known is not None and known.address == hint else LeaderRecord(address=hint))

    def pause(self, seconds: float) -> None:
        """Waits, or raises at once when the client is closed."""
        if self._closed.wait(seconds):
            raise ClientError("the client is closed")

    def _long_call(self, method: str, request: Any, job_key: str, timeout_ms: int, late: str = "") -> Any:
        """A call that is answered when a snapshot is complete or read.

        timeout_ms: for that; 0 where the leader ends it after a time that only the job knows. A frozen leader is
        noticed by its connection. late: what to do if a request that was sent is not answered.
        """
        limit_s = timeout_ms / 1000 + CALL_TIMEOUT_S if timeout_ms else math.inf
        patience_ms = int(limit_s * 1000) if timeout_ms else None
        return self._call(method, request, job_key, timeout_s=limit_s, patience_ms=patience_ms, late=late)

    def _call(
        self,
        method: str,
        request: Any,
        job_key: str = "",
        *,
        timeout_s: float = 0.0,
        patience_ms: int | None = None,
        late: str = "",
    ) -> Any:
        """One call to the leader, retried until it is answered or `patience_ms` has passed. Every rpc is idempotent.

        timeout_s: for each try, 0 for the usual one. Tries without a limit (inf) do not count towards `patience_ms`.
        """
        deadline = Deadline(self._patience_ms if patience_ms is None else patience_ms)
        pause_s, last, advice = FIRST_PAUSE_S, "", f"; {late}" if late else ""
        unproven: Deadline | None = None
        while True:
            leader = self._locate_for(deadline, last, advice)
            try:
                leader = self._identified(leader, max(0.05, deadline.remaining_s(CALL_TIMEOUT_S)))
                return self._try(leader, method, request, deadline, timeout_s or CALL_TIMEOUT_S)
            except UnprovenPeer as error:
                # Perhaps another process has the address now, and ZooKeeper still has a record of the one before: who
                # leads is asked again, and has to prove that.
                last, is_first = str(error), unproven is None
                unproven = unproven or Deadline(UNPROVEN_MS)
                if unproven.expired or deadline.expired:
                    raise NotAllowed(last) from error
                self.forget_leader()
                if not is_first:
                    self.pause(deadline.remaining_s(pause_s))
                continue
            except grpc.RpcError as error:
                verdict = classify_rpc_error(error, job_key, leader.address, leader.instance)
            if not isinstance(verdict, TryAgain):
                raise verdict
            problem = self._credentials.handshake_problem(verdict.reason)
            if not last or not deadline.expired:  # the last try has little time, and says little
                last = f"{leader.address} {problem}" if problem else verdict.reason
            if not verdict.pause_s:
                self.forget_leader(verdict.leader, leader.address)
            if deadline.expired:
                raise ClusterUnreachable(f"the cluster did not answer in time: {last}{advice}")
            self.pause(deadline.remaining_s(max(pause_s, verdict.pause_s)))
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)

    def _try(self, leader: LeaderRecord, method: str, request: Any, deadline: Deadline, timeout_s: float) -> Any:
        """Raises grpc.RpcError, UnprovenPeer."""
        if timeout_s < math.inf:
            return self._ask(leader, method, request, max(0.05, deadline.remaining_s(timeout_s)))
        with deadline.stopped():
            return self._ask(leader, method, request, None)

    def _identified(self, leader: LeaderRecord, limit_s: float) -> LeaderRecord:
        """The leader with its instance, which a hint does not tell. Raises grpc.RpcError."""
        if leader.instance or self._credentials.is_empty:
            return leader
        stub = call(self._channels.to(self._address_map.to(leader.address)), "JobService", "GetLeader")
        found: LeaderRecord = stub(GetLeaderRequest(), timeout=min(limit_s, CALL_TIMEOUT_S))
        return self._trust(found)

    def _ask(self, leader: LeaderRecord, method: str, request: Any, limit_s: float | None) -> Any:
        """One call to one process. It proves that it knows the secret, as this client does; neither sends it.

        A job may hold passwords of its own, so it goes only to a process that has proved itself before.
        """
        if method == "Submit" and not self._credentials.is_empty:
            self._ask(leader, "GetLeader", GetLeaderRequest(), limit_s)
        elif method == "Submit" and self._credentials.tls is None and not self._is_trusting:
            raise NotAllowed(nothing_to_prove(leader.address))
        introduction = self._credentials.introduction(Peer(leader.address, leader.instance), path("JobService", method))
        stub: Any = call(self._channels.to(self._address_map.to(leader.address)), "JobService", method)
        answer, ended = stub.with_call(request, timeout=limit_s, metadata=introduction.metadata)
        if introduction.metadata:
            introduction.check(ended.initial_metadata())
        return answer

    def _locate_for(self, deadline: Deadline, last: str, advice: str) -> LeaderRecord:
        """last: why the try before failed, "" for none; advice: for an error after that."""
        try:
            return self.locate(deadline)
        except ClusterUnreachable as error:
            if last:
                raise ClusterUnreachable(f"{error} (last: {last}){advice}", silent=error.silent) from error
            raise


def _directory(
    coordinators: Sequence[str],
    zookeeper: str,
    cluster: str,
    credentials: Credentials,
    session_timeout_ms: int,
    origin: str,
    address_map: AddressMap,
) -> LeaderDirectory:
    if not coordinators and not zookeeper:
        raise ClientError("a client needs the address of a coordinator or of ZooKeeper")
    directories: list[LeaderDirectory] = []
    if coordinators:
        directories.append(CoordinatorList(coordinators, credentials, origin, address_map=address_map))
    if credentials.token is not None and not coordinators:
        raise ClientError("a token gives no access to ZooKeeper; name a coordinator with --cluster HOST:PORT")
    if zookeeper and credentials.token is None:
        through = partial(_through_zookeeper, zookeeper, cluster, credentials, session_timeout_ms, origin)
        directories.append(LaterDirectory(through) if coordinators else through())
    return directories[0] if len(directories) == 1 else CombinedDirectory(*directories)


def _through_zookeeper(
    zookeeper: str, cluster: str, credentials: Credentials, session_timeout_ms: int, origin: str
) -> LeaderDirectory:
    """Raises ClientError for TLS files that cannot be used."""
    from lockgate_ha.protection import Protection
    from lockgate_ha.zookeeper import connector

    from lockgate.client.through_zookeeper import ThroughZooKeeper

    protection = Protection(cluster, credentials.secret)
    try:
        found = connector(zookeeper, session_timeout_ms, protection, credentials.zookeeper)
    except SecurityError as error:
        raise ClientError(str(error)) from error
    return ThroughZooKeeper(found, cluster, origin)
