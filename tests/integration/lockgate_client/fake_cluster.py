"""Scripted coordinators: real gRPC servers whose job API does what a test says."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import grpc
from lockgate_common.proof import Peer
from lockgate_common.security import Credentials
from lockgate_proto import messages as m
from lockgate_proto.rpc import SERVER_OPTIONS, handler, path

SECRET = "the-secret-of-this-test"
INSTANCE = "11" * 16
PATIENCE_MS = 60_000


@dataclass
class Cluster:
    """What the coordinators of one scripted cluster share, as ZooKeeper would."""

    coordinators: list[FakeCoordinator] = field(default_factory=list)
    leader: FakeCoordinator | None = None
    token: int = 0
    jobs: dict[str, tuple[m.JobGraph, m.JobStatus]] = field(default_factory=dict)
    submissions: list[m.SubmitRequest] = field(default_factory=list)
    warnings: tuple[str, ...] = ()  # of every submission
    task_managers: tuple[m.TaskManagerStatus, ...] = ()
    zookeeper_trouble: str = ""
    savepoints: list[str] = field(default_factory=list)  # request ids
    first_state: m.JobState = m.JobState.RUNNING

    @property
    def addresses(self) -> list[str]:
        return [coordinator.address for coordinator in self.coordinators]

    def add(self) -> FakeCoordinator:
        self.coordinators.append(FakeCoordinator(self))
        return self.coordinators[-1]

    def lead(self, coordinator: FakeCoordinator | None) -> None:
        self.leader = coordinator
        self.token += 1


class FakeCoordinator:
    """One coordinator; answers as leader or standby does, and writes down what it was asked."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.calls: list[str] = []
        self.watchers: list[queue.Queue[Any]] = []
        self.watched = threading.Semaphore(0)
        self.first_updates: list[Any] = []
        self.fail: Callable[[str, grpc.ServicerContext], None] = lambda _method, _context: None
        self._stale: m.LeaderRecord | None = None
        self._server = grpc.server(ThreadPoolExecutor(16, "fake-coordinator"), options=SERVER_OPTIONS)
        self._server.add_generic_rpc_handlers((handler("JobService", self),))
        self.address = f"127.0.0.1:{Credentials().bind(self._server, '127.0.0.1:0')}"
        self._server.start()
        self.advertised = self.address  # a test may set another one, as a container has that is reached from outside

    def die(self) -> None:
        """As SIGKILL: every stream breaks, new connections are refused."""
        for watcher in self.watchers:
            watcher.put(None)
        self._server.stop(None).wait()

    def cut_off(self) -> None:
        """From ZooKeeper: it never learns of another leader, and goes on to answer as the one it is now."""
        self._stale = self.record()

    def send(self, update: Any) -> None:
        """To every watcher."""
        for watcher in self.watchers:
            watcher.put(update)

    def record(self) -> m.LeaderRecord:
        return m.LeaderRecord(self.cluster.token, self.advertised, "0x1f", 4242, "c-1", instance=INSTANCE)

    def _prove(self, method: str, context: grpc.ServicerContext) -> None:
        """To callers that prove themselves; others need not."""
        me = Peer(self.advertised, INSTANCE)
        if answer := Credentials(SECRET).answer(me, path("JobService", method), tuple(context.invocation_metadata())):
            context.send_initial_metadata(answer)

    def _enter(self, method: str, context: grpc.ServicerContext) -> None:
        self.calls.append(method)
        self._prove(method, context)
        self.fail(method, context)
        leader = self.cluster.leader
        if leader is not self and self._stale is None:
            if leader is not None:
                context.set_trailing_metadata((("lockgate-leader", leader.advertised),))
            where = f"the leader is {leader.address}" if leader else "there is no leader yet"
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"not the leader; {where}")

    def _job(self, key: str, context: grpc.ServicerContext) -> m.JobStatus:
        if key not in self.cluster.jobs:
            context.abort(grpc.StatusCode.NOT_FOUND, f"no job {key}")
        return self.cluster.jobs[key][1]

    def GetLeader(self, request: m.GetLeaderRequest, context: grpc.ServicerContext) -> m.LeaderRecord:
        del request
        self.calls.append("GetLeader")
        self._prove("GetLeader", context)
        context.set_trailing_metadata((("lockgate-coordinator", self.advertised),))
        self.fail("GetLeader", context)
        if self._stale is not None:
            return self._stale
        leader = self.cluster.leader
        return leader.record() if leader else m.LeaderRecord()

    def GetCluster(self, request: m.GetClusterRequest, context: grpc.ServicerContext) -> m.ClusterStatus:
        del request
        self._prove("GetCluster", context)
        coordinators = tuple(
            m.CoordinatorStatus(f"c-{number}", coordinator.address, 4242 + number, coordinator is self.cluster.leader)
            for number, coordinator in enumerate(self.cluster.coordinators, start=1)
        )
        return m.ClusterStatus(self.record(), self.cluster.task_managers, coordinators, self.cluster.zookeeper_trouble)

    def Submit(self, request: m.SubmitRequest, context: grpc.ServicerContext) -> m.SubmitResponse:
        self._enter("Submit", context)
        assert request.graph is not None
        self.cluster.submissions.append(request)
        known = self.cluster.jobs.get(request.job_key)
        if known is not None and known[0] != request.graph:
            context.abort(
                grpc.StatusCode.ALREADY_EXISTS, f"the job key {request.job_key!r} belongs to another job graph"
            )
        if known is None:
            self.cluster.jobs[request.job_key] = (
                request.graph,
                status(request.job_key, self.cluster.first_state, last_checkpoint=None),
            )
        return m.SubmitResponse(request.job_key, "run-1", known is None, self.cluster.warnings)

    def Get(self, request: m.GetRequest, context: grpc.ServicerContext) -> m.JobStatus:
        self._enter("Get", context)
        return self._job(request.job_key, context)

    def List(self, request: m.ListRequest, context: grpc.ServicerContext) -> m.ListResponse:
        del request
        self._enter("List", context)
        return m.ListResponse(tuple(item for _, item in self.cluster.jobs.values()))

    def Watch(self, request: m.WatchRequest, context: grpc.ServicerContext) -> Iterator[m.JobUpdate]:
        self._enter("Watch", context)
        yield m.JobUpdate(self._job(request.job_key, context))
        updates: queue.Queue[Any] = queue.Queue()
        for update in self.first_updates:
            updates.put(update)
        self.watchers.append(updates)
        context.add_callback(lambda: updates.put(None))
        self.watched.release()
        while (update := updates.get()) is not None:
            if update == "die":
                threading.Thread(target=self.hand_over, name="fake-death").start()
            else:
                yield m.JobUpdate(update)

    def hand_over(self) -> None:
        """Dies, and the next coordinator leads."""
        others = [coordinator for coordinator in self.cluster.coordinators if coordinator is not self]
        self.cluster.lead(others[0])
        self.die()

    def Cancel(self, request: m.CancelRequest, context: grpc.ServicerContext) -> m.CancelResponse:
        self._enter("Cancel", context)
        self._job(request.job_key, context)
        return m.CancelResponse(m.JobState.CANCELING)

    def Release(self, request: m.ReleaseRequest, context: grpc.ServicerContext) -> m.ReleaseResponse:
        self._enter("Release", context)
        return m.ReleaseResponse(self._job(request.job_key, context).state)

    def TriggerSavepoint(
        self, request: m.TriggerSavepointRequest, context: grpc.ServicerContext
    ) -> m.TriggerSavepointResponse:
        self.cluster.savepoints.append(request.request_id)
        self._enter("TriggerSavepoint", context)
        self._job(request.job_key, context)
        return m.TriggerSavepointResponse(checkpoint(9, m.CheckpointKind.SAVEPOINT))

    def GetStory(self, request: m.GetStoryRequest, context: grpc.ServicerContext) -> m.JobStory:
        self._enter("GetStory", context)
        trigger = m.StoryLine(
            "c1-1", "timer", 1_000_000, "coordinator-0", event="a timer is due", effects=("tm-0: go",)
        )
        arrival = m.StoryLine("tm-0.ab-7", "c1-1", 1_002_000, "tm-0", "count[0]", 2, "it goes", "A -> B")
        return m.JobStory((trigger, arrival), (f"Some of {request.job_key} is missing.",))

    def ListCheckpoints(
        self, request: m.ListCheckpointsRequest, context: grpc.ServicerContext
    ) -> m.ListCheckpointsResponse:
        self._enter("ListCheckpoints", context)
        self._job(request.job_key, context)
        found = (checkpoint(7), checkpoint(6), checkpoint(5, m.CheckpointKind.SAVEPOINT))
        source = m.SourceOffsets("read", 0, (m.SplitState("a.txt", 40, 90), m.SplitState("b.txt", 7, -1)))
        offsets = (m.CheckpointOffsets(7, (source,)),)
        late = m.CompletedCheckpoint(8, kind=m.CheckpointKind.CHECKPOINT, size_bytes=10, duration_ms=60_000)
        expired = m.CheckpointOutcome(late, m.AbortReason.ABORT_EXPIRED, "not acknowledged in time by count-1", 2, 3, 4)
        others = (m.CheckpointOutcome(found[0], attempt=2, acknowledged=4, subtasks=4, retained=True),)
        others += (m.CheckpointOutcome(checkpoint(4), attempt=1, acknowledged=4, subtasks=4),)
        history = (expired, *others, m.CheckpointOutcome(checkpoint(3, m.CheckpointKind.SAVEPOINT)))
        return m.ListCheckpointsResponse(found, offsets * request.offsets, history * request.history)

    def QueryState(self, request: m.QueryStateRequest, context: grpc.ServicerContext) -> m.QueryStateResponse:
        self._enter("QueryState", context)
        self._job(request.job_key, context)
        (operator,) = request.operators
        values = tuple(
            m.KeyedValue(operator.operator_id, f'{{"word": {key[1:-1]}}}', number == 0, '{"values": {"n": 3}}')
            for number, key in enumerate(operator.keys)
        )
        return m.QueryStateResponse(request.checkpoint_id or 7, values)

    def GetCheckpoint(self, request: m.GetCheckpointRequest, context: grpc.ServicerContext) -> m.GetCheckpointResponse:
        self._enter("GetCheckpoint", context)
        self._job(request.job_key, context)
        parts = (m.SubtaskSnapshot("count", 0, "tm-0", 45, 2048),) if request.checkpoint_id == 7 else ()
        return m.GetCheckpointResponse(parts)

    def Stop(self, request: m.StopRequest, context: grpc.ServicerContext) -> m.StopResponse:
        self._enter("Stop", context)
        self._job(request.job_key, context)
        return m.StopResponse(checkpoint(10 if request.drain else 9, m.CheckpointKind.SAVEPOINT))

    def DisposeSavepoint(
        self, request: m.DisposeSavepointRequest, context: grpc.ServicerContext
    ) -> m.DisposeSavepointResponse:
        self._enter("DisposeSavepoint", context)
        self._job(request.job_key, context)
        if request.checkpoint_id != 5:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "it is the newest snapshot")
        return m.DisposeSavepointResponse()

    def Rescale(self, request: m.RescaleRequest, context: grpc.ServicerContext) -> m.RescaleResponse:
        self._enter("Rescale", context)
        before = self._job(request.job_key, context)
        views = [
            m.SubtaskStatusView(subtask.vertex_id, number, "tm-1", "RUNNING")
            for subtask in request.parallelism
            for number in range(subtask.parallelism)
        ]
        self.cluster.jobs[request.job_key] = (m.JobGraph(), replace(before, subtasks=tuple(views), attempt=2))
        return m.RescaleResponse(request.parallelism, 1)


def checkpoint(number: int, kind: m.CheckpointKind = m.CheckpointKind.CHECKPOINT) -> m.CompletedCheckpoint:
    return m.CompletedCheckpoint(
        number, f"file:///s/chk-{number}/_metadata", "crc32:0", 2048, 3, kind, 1_700_000_000_000, 45, 1500, 4
    )


def status(key: str, state: m.JobState = m.JobState.RUNNING, **more: Any) -> m.JobStatus:
    return m.JobStatus(
        key,
        "run-1",
        "wordcount",
        state,
        attempt=more.pop("attempt", 1),
        operators=(m.OperatorStatus("read_text-1", "read_text", "read_text-1", 0, 100),),
        last_checkpoint=more.pop("last_checkpoint", checkpoint(7)),
        **more,
    )
