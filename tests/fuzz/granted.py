"""Requests that a coordinator or an exchange grants to whoever knows the secret: one for each rpc."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import grpc
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2
from lockgate_proto import messages as m
from lockgate_proto.codec import to_pb
from lockgate_proto.release import own_release

from tests.fuzz.target import CASE_S

Ask = Callable[[str, Any], Any]
"""A call of the job API with the secret: method and request."""


class Granted:
    """Makes the requests, and what they need: jobs that run, and savepoints."""

    def __init__(self, graph: Callable[[str], m.JobGraph], opened: m.ChannelOpen, ask: Ask | None = None) -> None:
        """graph: of a job, by the place that it writes to; ask: None for an exchange."""
        self._graph, self._opened, self._ask = graph, opened, ask
        self._numbers = itertools.count()
        self._jobs: list[str] = []

    def messages(self, method: str) -> Sequence[bytes]:
        """Of one call. method: its name with that of its service, without the package."""
        while self._jobs:  # of calls before: as they run, they take time from what is tried
            with suppress(grpc.RpcError):  # there may be none, where the caller was refused
                self._owner("Cancel", m.CancelRequest(self._jobs.pop()))
        found = self._made(method)
        return [message.SerializeToString() for message in (found if isinstance(found, list) else [found])]

    def _made(self, method: str) -> Message | list[Message]:
        match method:
            case "Health/Check" | "Health/Watch":
                return health_pb2.HealthCheckRequest()
            case "ServerReflection/ServerReflectionInfo":
                return [reflection_pb2.ServerReflectionRequest(list_services="")]
            case "ControlService/Connect":
                register = m.Register("127.0.0.1:9", 1, 1, (), "granted", release=own_release())
                leaves = m.TaskManagerMessage(1, "granted", m.Goodbye())
                return [to_pb(m.TaskManagerMessage(0, "granted", register)), to_pb(leaves)]
            case "FollowService/Follow":
                return to_pb(m.FollowRequest("granted"))
            case "ExchangeService/Open":
                return [to_pb(m.StreamElement(self._opened)), to_pb(m.StreamElement(m.EndOfInput()))]
        return to_pb(self._of_jobs(method.removeprefix("JobService/")))

    def _of_jobs(self, method: str) -> Any:
        match method:
            case "GetLeader":
                return m.GetLeaderRequest()
            case "GetCluster":
                return m.GetClusterRequest()
            case "List":
                return m.ListRequest(without_subtasks=True)
            case "Submit":
                return self._submission(self._key())
            case "Cancel":
                return m.CancelRequest(self._running())
            case "Release":
                return m.ReleaseRequest(self._running())
            case "TriggerSavepoint":
                return m.TriggerSavepointRequest(self._running(), request_id=self._key())
            case "Stop":
                return m.StopRequest(self._running())
            case "Rescale":
                fewer = m.VertexParallelism(self._graph("out").vertices[0].id, 1)
                return m.RescaleRequest(self._running(), (fewer,))
            case "DisposeSavepoint":
                key = self._running()
                first, _newest = (self._savepoint(key) for _ in range(2))
                return m.DisposeSavepointRequest(key, first.checkpoint_id)
            case "GetCheckpoint" | "QueryState":
                key = self._running()
                return self._read(method, key, self._savepoint(key).checkpoint_id)
        kinds = {"Get": m.GetRequest, "Watch": m.WatchRequest}
        kinds |= {"ListCheckpoints": m.ListCheckpointsRequest, "GetStory": m.GetStoryRequest}
        return kinds[method]("job")

    def _read(self, method: str, key: str, checkpoint_id: int) -> Any:
        if method == "GetCheckpoint":
            return m.GetCheckpointRequest(key, checkpoint_id)
        operator = self._graph("out").vertices[0].operators[0].id
        return m.QueryStateRequest(key, checkpoint_id, (m.OperatorKeys(operator, ('["a"]',)),))

    def _submission(self, key: str) -> m.SubmitRequest:
        self._jobs.append(key)
        return m.SubmitRequest(key, self._graph(key))

    def _key(self) -> str:
        return f"granted-{next(self._numbers)}"

    def _running(self) -> str:
        key = self._key()
        self._owner("Submit", self._submission(key))
        pause, deadline = threading.Event(), time.monotonic() + CASE_S
        while (found := self._owner("Get", m.GetRequest(key))).state is not m.JobState.RUNNING:
            assert time.monotonic() < deadline, f"{key} does not run: {found}"
            pause.wait(0.02)
        return key

    def _savepoint(self, key: str) -> m.CompletedCheckpoint:
        answer = self._owner("TriggerSavepoint", m.TriggerSavepointRequest(key, request_id=self._key()))
        found: m.CompletedCheckpoint = answer.savepoint
        return found

    def _owner(self, method: str, request: Any) -> Any:
        assert self._ask is not None
        return self._ask(method, request)
