"""The job API. Its methods raise the errors of `runtime.errors`; the Guard turns them into statuses."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, Protocol, TypeVar, cast

import grpc
from grpc import StatusCode
from lockgate_common.checksums import checksum
from lockgate_common.clock import monotonic_ms, unix_ms
from lockgate_common.proof import Peer
from lockgate_common.roles import Principal, Role
from lockgate_common.security import Credentials
from lockgate_common.serving.event_loop import Bell
from lockgate_common.serving.refusals import Refused
from lockgate_proto import messages as m
from lockgate_proto.codec import encode
from lockgate_proto.rpc import call, path

from lockgate_coordinator.checkpoint.details import SnapshotDetails
from lockgate_coordinator.graph.bounds import MAX_DURATION_MS, MAX_PATH, MAX_VERTICES, text_problem
from lockgate_coordinator.graph.code import brings_code
from lockgate_coordinator.graph.destinations import destinations
from lockgate_coordinator.graph.local_sinks import local_sinks
from lockgate_coordinator.graph.normalize import DEFAULT_FAILOVER, normalize
from lockgate_coordinator.graph.slots import slot_shortage
from lockgate_coordinator.graph.validate import validate
from lockgate_coordinator.graph.warnings import warnings
from lockgate_coordinator.job.deploy_size import start_problem
from lockgate_coordinator.job.merged_story import merged
from lockgate_coordinator.job.restore import misfits
from lockgate_coordinator.runtime.access import FORWARDED_METADATA
from lockgate_coordinator.runtime.checkpoint_reads import CheckpointReads, outcomes, retained_by_running
from lockgate_coordinator.runtime.confinement import Confinement
from lockgate_coordinator.runtime.dispatcher import Dispatcher, reachable, writable
from lockgate_coordinator.runtime.disposal import dispose
from lockgate_coordinator.runtime.errors import Busy, NotLeading, StorageError
from lockgate_coordinator.runtime.job_keys import check_new, check_request_id
from lockgate_coordinator.runtime.job_runner import JobRunner
from lockgate_coordinator.runtime.metadata_files import MetadataFiles, storage_uri
from lockgate_coordinator.runtime.persistence import Persistence
from lockgate_coordinator.runtime.rpc_server import Later, Stream, UnaryCall
from lockgate_coordinator.runtime.settings import CoordinatorSettings
from lockgate_coordinator.runtime.snapshot_seal import TRUST
from lockgate_coordinator.runtime.story_requests import StoryParts
from lockgate_coordinator.runtime.term import LeaderTerm
from lockgate_coordinator.runtime.views import no_such_job, status_of
from lockgate_coordinator.runtime.watch import WatchEnd, Watcher

log = logging.getLogger(__name__)

T = TypeVar("T")

_WRITE_WAIT_S = 60.0
_FORWARD_WAIT_S = 2.0
COORDINATOR_METADATA = "lockgate-coordinator"


class Cluster(Protocol):
    """The coordinators registered in ZooKeeper; Elector has this interface."""

    @property
    def leader(self) -> m.LeaderRecord | None:
        """The last known leader."""
        ...

    def contenders(self) -> tuple[m.LeaderRecord, ...]:
        """Every registered coordinator."""
        ...


class JobService:
    """The job API of job.proto."""

    def __init__(
        self,
        settings: CoordinatorSettings,
        address: str,
        dispatcher: Dispatcher,
        files: MetadataFiles,
        cluster: Cluster,
    ) -> None:
        self._credentials: Credentials = settings.credentials
        self._confinement = Confinement(settings)
        self._address = address
        self._dispatcher = dispatcher
        self._files = files
        self._cluster = cluster
        self._reads = CheckpointReads(dispatcher, files, self._retained)

    # -- writes -------------------------------------------------------------------------------------------------------

    def Submit(self, request: m.SubmitRequest, call: UnaryCall) -> m.SubmitResponse | Later[m.SubmitResponse]:
        """Durable when it returns. The same key with the same graph is the same job, unless its start differs."""
        key = request.job_key
        check_new(key)
        if request.graph is None:
            raise Refused(StatusCode.INVALID_ARGUMENT, "the request has no job graph")
        graph = replace(request.graph, confined=not call.caller.may(Role.CODE))
        if graph.confined:
            self._check_confined(graph, request, call.caller)
        self._dispatcher.wait_recovered()
        data, submitted_unix_ms = encode(graph), unix_ms()
        day = time.strftime("%Y%m%d-%H%M%S", time.gmtime(submitted_unix_ms / 1_000))
        record = m.JobRecord(
            job_key=key,
            run_id=f"{day}-{uuid.uuid4().hex[:8]}",
            graph_checksum=checksum(data),
            submitted_unix_ms=submitted_unix_ms,
            restore_from=request.restore_from,
            allow_unmatched_state=request.allow_unmatched_state,
            storage=_own_storage(graph),
            leader_failover=DEFAULT_FAILOVER,
        )
        known = self._dispatcher.submissions(lambda submissions: submissions.known(record))
        if known is not None:
            return replace(known, warnings=self._warnings(graph))
        check, writes, said = self._check(graph, request), destinations(graph), self._warnings(graph)
        answer = self._dispatcher.submissions(lambda submissions: submissions.submit(record, data, check, writes))
        late = "it is not known yet whether the job was submitted; submit it again unchanged"
        return _outcome(answer, late, lambda done: replace(done, warnings=said))

    def _warnings(self, graph: m.JobGraph) -> tuple[str, ...]:
        """What the author should know about the job on this cluster."""
        found = self._dispatcher.call(lambda term: term.task_manager_statuses())
        return (*warnings(graph), *local_sinks(graph, (task_manager.address for task_manager in found)))

    def _check_confined(self, graph: m.JobGraph, request: m.SubmitRequest, caller: Principal) -> None:
        """Raises Refused for what the job of a caller without the role code may not do."""
        if what := brings_code(graph) or (TRUST if request.trust_snapshot else ""):
            raise Refused(StatusCode.PERMISSION_DENIED, caller.refusal(Role.CODE, what))
        if problem := self._confinement.trespass(graph, request.restore_from):
            raise Refused(StatusCode.PERMISSION_DENIED, f"{problem}; {caller.refusal(Role.CODE)}")

    def _check(self, graph: m.JobGraph, request: m.SubmitRequest) -> Callable[[], str]:
        """Checks the graph; returns a further check that needs the storage, see `Submissions.submit`.

        Both raise Refused.
        """
        problems = list(validate(graph))
        if unfit := text_problem(request.restore_from, MAX_PATH):
            problems.append(f"The request has a restore_from {unfit}.")
        if problems:
            raise Refused(StatusCode.INVALID_ARGUMENT, "\n".join(problems))
        full = normalize(graph)
        needed = max(vertex.parallelism for vertex in full.vertices)
        slots = self._dispatcher.call(lambda term: term.slot_counts())
        shortage = slot_shortage(needed, slots)
        if shortage:
            raise Refused(StatusCode.INVALID_ARGUMENT, shortage)
        storage = _own_storage(graph)

        def check() -> str:
            if storage:
                try:
                    self._files.prepare(storage)
                except StorageError as error:
                    text = f"the job's filesystem backend cannot be used: {error}"
                    raise Refused(StatusCode.INVALID_ARGUMENT, text) from error
            return self._check_start(full, request, slots) if request.restore_from else ""

        return check

    def _check_start(self, full: m.JobGraph, request: m.SubmitRequest, slots: tuple[int, ...]) -> str:
        """full: normalized. Returns the checksum of the snapshot's metadata."""
        restore_from = request.restore_from
        try:
            metadata, found = self._files.read_start(restore_from, is_trusted=request.trust_snapshot)
        except StorageError as error:
            raise Refused(StatusCode.INVALID_ARGUMENT, f"cannot start from {restore_from}: {error}") from error
        unfit = misfits(full, metadata, allow_unmatched=request.allow_unmatched_state)
        if unfit:
            raise Refused(StatusCode.INVALID_ARGUMENT, "\n".join(unfit))
        problem = start_problem(full, metadata, slots)
        if problem:
            raise Refused(StatusCode.INVALID_ARGUMENT, f"cannot start from {restore_from} on this cluster: {problem}")
        return found

    def Cancel(self, request: m.CancelRequest, _call: UnaryCall) -> m.CancelResponse | Later[m.JobState]:
        """Cancels the job, durably when this returns. A job that has ended keeps its final state."""

        def cancel(term: LeaderTerm) -> Future[m.JobState] | None:
            writable(term)
            runner = term.jobs.get(request.job_key)
            return None if runner is None else runner.cancel()

        self._dispatcher.wait_recovered()
        answer = self._dispatcher.call(cancel)
        if answer is None:
            return m.CancelResponse(self._ended(request.job_key).state)
        return _outcome(answer, "the cancellation is not durable yet; cancel again", m.CancelResponse)

    def Release(self, request: m.ReleaseRequest, _call: UnaryCall) -> m.ReleaseResponse | Later[m.JobState]:
        """Releases a job that is held back, durably when this returns. Any other job stays as it is."""

        def release(term: LeaderTerm) -> Future[m.JobState] | None:
            writable(term)
            runner = term.jobs.get(request.job_key)
            return None if runner is None else term.line.release(runner)

        self._dispatcher.wait_recovered()
        answer = self._dispatcher.call(release)
        if answer is None:
            return m.ReleaseResponse(self._ended(request.job_key).state)
        return _outcome(answer, "it is not known yet whether the job is released; release it again", m.ReleaseResponse)

    def TriggerSavepoint(
        self, request: m.TriggerSavepointRequest, _call: UnaryCall
    ) -> m.TriggerSavepointResponse | Later[m.CompletedCheckpoint]:
        """Returns when the savepoint is complete. The same request id yields the same savepoint, under any leader."""
        _check_timeout(request.timeout_ms)
        name = request.request_id
        check_request_id(name)
        answer = self._order(request.job_key, lambda runner: runner.savepoint(request.timeout_ms, name))
        if answer is None:
            for checkpoint in self._result(request.job_key).retained:
                if name in checkpoint.request_ids:
                    return m.TriggerSavepointResponse(checkpoint)
            raise Refused(StatusCode.FAILED_PRECONDITION, f"job {request.job_key} has ended")
        return _outcome(answer, "the savepoint did not complete in time", m.TriggerSavepointResponse, None)

    def Stop(self, request: m.StopRequest, _call: UnaryCall) -> m.StopResponse | Later[m.CompletedCheckpoint]:
        """Returns when the savepoint is complete; the job's end is certain then, under any leader."""
        _check_timeout(request.timeout_ms)
        answer = self._order(request.job_key, lambda runner: runner.stop(request.drain, request.timeout_ms))
        if answer is not None:
            late = "the savepoint is not complete yet; stop again to wait for it"
            return _outcome(answer, late, m.StopResponse, None)
        result = self._result(request.job_key)
        for checkpoint in result.retained:
            if checkpoint.checkpoint_id == result.stopped_with:
                return m.StopResponse(checkpoint)  # repeated, perhaps after a failover
        raise Refused(StatusCode.FAILED_PRECONDITION, f"job {request.job_key} has ended")

    def Rescale(self, request: m.RescaleRequest, _call: UnaryCall) -> Later[m.RescaleResponse]:
        """Returns when the new parallelism is durable; the job restarts at it, under any leader."""
        _check_timeout(request.timeout_ms)
        _check_named(request.parallelism)
        answer = self._order(request.job_key, lambda runner: runner.rescale(request.parallelism, request.timeout_ms))
        if answer is None:
            self._ended(request.job_key)
            raise Refused(StatusCode.FAILED_PRECONDITION, f"job {request.job_key} has ended")
        return _outcome(answer, "it is not known yet whether the job is rescaled; try again", lambda done: done, None)

    def _order(self, job_key: str, give: Callable[[JobRunner], Future[T]]) -> Future[T] | None:
        """Gives an order to a running job; None for a job that does not run."""

        def to_runner(term: LeaderTerm) -> Future[T] | None:
            writable(term)
            runner = term.jobs.get(job_key)
            return None if runner is None else give(runner)

        self._dispatcher.wait_recovered()
        return self._dispatcher.call(to_runner)

    def DisposeSavepoint(
        self, request: m.DisposeSavepointRequest, _call: UnaryCall
    ) -> m.DisposeSavepointResponse | Later[None]:
        """Returns when the savepoint is deleted; succeeds if it was deleted before."""
        self._dispatcher.wait_recovered()
        key, number = request.job_key, request.checkpoint_id
        retained = None if self._dispatcher.call(lambda term: key in term.jobs) else self._result(key).retained
        answer = self._dispatcher.submissions(lambda submissions: dispose(submissions, key, number, retained))
        if answer is None:
            return m.DisposeSavepointResponse()
        late = "the savepoint may not be deleted yet; dispose of it again"
        return _outcome(answer, late, lambda _: m.DisposeSavepointResponse())

    # -- reads --------------------------------------------------------------------------------------------------------

    def Get(self, request: m.GetRequest, _call: UnaryCall) -> m.JobStatus:
        """The status of one job, running or ended."""
        self._dispatcher.wait_recovered()
        status = self._dispatcher.call(lambda term: _status(term, request.job_key, with_reads=request.with_reads))
        return self._ended(request.job_key) if status is None else status

    def List(self, request: m.ListRequest, _call: UnaryCall) -> Later[None]:
        """Every job, oldest submission first."""
        self._dispatcher.wait_recovered()
        known = self._dispatcher.call(lambda term: term.results_known)

        def statuses(term: LeaderTerm) -> list[m.JobStatus]:
            found = {key: status_of(result, self._address) for key, result in term.results.items()}
            runners = [*term.ended.items(), *term.jobs.items()]
            found |= {key: runner.status(with_subtasks=not request.without_subtasks) for key, runner in runners}
            return sorted(found.values(), key=lambda job: (job.submitted_unix_ms, job.job_key))

        late = "the results are still being read"
        return _outcome(known, late, lambda _: m.ListResponse(tuple(self._dispatcher.call(statuses))))

    def ListCheckpoints(self, request: m.ListCheckpointsRequest, _call: UnaryCall) -> m.ListCheckpointsResponse:
        """Completed checkpoints and savepoints that still exist, newest first, and what became of others."""
        self._dispatcher.wait_recovered()
        key = request.job_key
        retained, offsets = self._retained(key), self._reads.offsets(key) if request.offsets else ()
        history = self._dispatcher.call(lambda term: outcomes(term, key, retained)) if request.history else ()
        return m.ListCheckpointsResponse(retained, offsets, history)

    def _retained(self, key: str) -> tuple[m.CompletedCheckpoint, ...]:
        """Of a job, running or ended, newest first. Raises Refused NOT_FOUND."""
        found = self._dispatcher.call(lambda term: retained_by_running(term, key))
        return self._result(key).retained if found is None else found

    async def QueryState(self, request: m.QueryStateRequest, call: UnaryCall) -> m.QueryStateResponse:
        """What operators hold for some keys, all as of one completed checkpoint."""
        await self._dispatcher.recovered(call.thread)
        return await self._reads.query(request, call)

    def GetCheckpoint(self, request: m.GetCheckpointRequest, _call: UnaryCall) -> m.GetCheckpointResponse:
        """What each subtask contributed to a checkpoint that this leader has taken, as far as that is kept."""
        key, number = request.job_key, request.checkpoint_id

        def details(term: LeaderTerm) -> SnapshotDetails | None:
            runner = term.jobs.get(key)
            return None if runner is None else runner.checkpoints().details.of(number)

        self._dispatcher.wait_recovered()
        found = self._dispatcher.call(details)
        if found is None and self._dispatcher.call(lambda term: _status(term, key)) is None:
            self._ended(key)  # raises for an unknown job
        return m.GetCheckpointResponse(tuple(found.subtasks()) if found is not None else ())

    def GetStory(self, request: m.GetStoryRequest, _call: UnaryCall) -> Later[StoryParts]:
        """The events of a job with their causes, as far as this leader and its task managers have kept them."""
        key = request.job_key
        self._dispatcher.wait_recovered()
        answer = self._dispatcher.call(lambda term: term.story(key))
        if answer is None:
            run_id = self._result(key).run_id
            answer = self._dispatcher.call(lambda term: term.story(key, run_id))
        if answer is None:
            raise no_such_job(key)
        late = "the job's story is still being collected; try again"
        return _outcome(answer, late, lambda story: m.JobStory(merged(story.parts), story.remarks))

    async def Watch(self, request: m.WatchRequest, stream: Stream) -> None:
        """The status, the kept events, then everything new until the job has ended."""
        key, thread = request.job_key, stream.thread
        await self._dispatcher.recovered(thread)
        found = await self._dispatcher.called(lambda term: _watch(term, key, request.changes), thread)
        if found is None:
            ended = await stream.work(lambda: self._ended(key))
            await stream.send(m.JobUpdate(update=ended), large=True)
            return
        runner, watcher = found
        try:
            await _send_updates(watcher, stream)
        finally:
            self._dispatcher.forget(runner, watcher)
        if watcher.end is WatchEnd.LEADERSHIP_LOST:
            leader = self._cluster.leader
            hint = f"; watch on at {leader.address}" if leader is not None and leader.address != self._address else ""
            raise Busy(f"this coordinator no longer leads{hint}")
        if watcher.end is WatchEnd.TOO_SLOW:
            raise Refused(
                StatusCode.RESOURCE_EXHAUSTED, "this client reads too slowly; watch again to see the current state"
            )

    def _ended(self, key: str) -> m.JobStatus:
        return status_of(self._result(key), self._address)

    def _result(self, key: str) -> m.JobResult:
        """The result of a job that is unknown to the term. Raises Refused NOT_FOUND."""
        result, persistence = self._dispatcher.call(lambda term: _known_result(term, key))
        if result is None and key:
            result = persistence.result(key)
        if result is None:
            raise no_such_job(key)
        return result

    # -- answered by every coordinator --------------------------------------------------------------------------------

    def GetLeader(self, _request: m.GetLeaderRequest, call: UnaryCall) -> m.LeaderRecord:
        """The leader. The answer's metadata names this coordinator, which clients may know by another address."""
        call.trailing = ((COORDINATOR_METADATA, self._address),)
        leader = self._cluster.leader
        if leader is None:
            raise Refused(StatusCode.UNAVAILABLE, "there is no leader at the moment; try again")
        return leader

    def GetCluster(self, _request: m.GetClusterRequest, known: UnaryCall) -> m.ClusterStatus:
        """Coordinators and task managers. A standby asks the leader for all but the coordinators."""
        leader = self._cluster.leader
        coordinators = tuple(
            m.CoordinatorStatus(
                contender.coordinator_id,
                contender.address,
                contender.pid,
                leader is not None and contender.coordinator_id == leader.coordinator_id,
                contender.dashboard,
            )
            for contender in self._cluster.contenders()
        )
        try:
            status = self._dispatcher.call(lambda term: term.cluster_status())
        except NotLeading:
            status = self._ask_leader(leader, known)
        return replace(status, leader=leader, coordinators=coordinators)

    def _ask_leader(self, leader: m.LeaderRecord | None, known: UnaryCall) -> m.ClusterStatus:
        """What only the leader knows; without an answer it says so."""
        forwarded = any(name == FORWARDED_METADATA for name, _ in known.metadata)
        if leader is None or leader.address == self._address or forwarded:
            return m.ClusterStatus(leader_silent=True)
        try:
            introduction = self._credentials.introduction(
                Peer(leader.address, leader.instance), path("JobService", "GetCluster")
            )
            with self._credentials.channel(leader.address) as channel:
                ask: Any = call(channel, "JobService", "GetCluster")
                answer, ended = ask.with_call(
                    m.GetClusterRequest(),
                    timeout=_FORWARD_WAIT_S,
                    metadata=(*introduction.metadata, (FORWARDED_METADATA, "1")),
                )
                introduction.check(ended.initial_metadata())
                return cast(m.ClusterStatus, answer)
        except grpc.RpcError as error:
            log.info("the leader %s did not report its task managers: %s", leader.address, error)
            return m.ClusterStatus(leader_silent=True)


def _check_timeout(timeout_ms: int) -> None:
    """Raises Refused for a timeout that is out of range."""
    if not 0 <= timeout_ms <= MAX_DURATION_MS:
        text = f"timeout_ms is {timeout_ms}: it must be between 0 and {MAX_DURATION_MS}; 0 means the checkpoint timeout"
        raise Refused(StatusCode.INVALID_ARGUMENT, text)


def _check_named(parallelism: tuple[m.VertexParallelism, ...]) -> None:
    """Raises Refused for more vertices than a job can have."""
    if len(parallelism) > MAX_VERTICES:
        text = f"{len(parallelism)} vertices are named, and a job has at most {MAX_VERTICES}: name each vertex once"
        raise Refused(StatusCode.INVALID_ARGUMENT, text)


def _own_storage(graph: m.JobGraph) -> str:
    """The URI of the job's own storage, "" for the cluster's storage."""
    backend = (graph.state_backend or m.StateBackend()).backend
    return (
        storage_uri(backend.uri) if isinstance(backend, m.FilesystemBackend | m.RocksdbBackend) and backend.uri else ""
    )


def _known_result(term: LeaderTerm, key: str) -> tuple[m.JobResult | None, Persistence]:
    """And what reads it where it is not known. Raises Busy when that cannot be done now."""
    result = term.results.get(key)
    if result is None and key:
        reachable(term)  # the read would block its thread until ZooKeeper is back
    return result, term.persistence


def _status(term: LeaderTerm, key: str, *, with_reads: bool = False) -> m.JobStatus | None:
    runner = term.jobs.get(key) or term.ended.get(key)
    if runner is None or not with_reads:
        return None if runner is None else runner.status()
    offset_ms = unix_ms() - monotonic_ms()
    return replace(runner.status(), reads=runner.query(lambda job: job.attempts.counters.reads.history(offset_ms)))


def _watch(term: LeaderTerm, key: str, changes: bool) -> tuple[JobRunner, Watcher] | None:
    runner = term.jobs.get(key) or term.ended.get(key)
    return None if runner is None else (runner, runner.watch(changes=changes))


def _outcome(
    answer: Future[T], late: str, then: Callable[[T], object], limit_s: float | None = _WRITE_WAIT_S
) -> Later[T]:
    """An answer that waits as long as the client does, and at most `limit_s`."""
    return Later(answer, late, limit_s, then)


async def _send_updates(watcher: Watcher, stream: Stream) -> None:
    """Sends all updates of a watcher until it ends. Each update is encoded once for all watchers."""
    bell = Bell(stream.thread)
    watcher.on_change = bell.ring
    while True:
        end, shared = watcher.end, watcher.take()
        if shared is not None:
            if shared.encoded is None:
                shared.encoded = asyncio.ensure_future(stream.encoded(shared.make, large=shared.is_large))
            await stream.send_bytes(await asyncio.shield(shared.encoded))
        elif end is None:
            await bell.wait()
        else:
            return
