"""`python -m benchmarks.played_task_managers`: hundreds of task managers in one process, which run nothing.

Each has its own connection and control stream, reports, acknowledges, commits and sends heartbeats as a real one
does (batches and pauses as the leader wants them), and finds the leader again. It holds protobuf objects where a real
one has frozen messages: what it takes itself is time that the coordinator does not get.

Reads JSON from its standard input: {"coordinators": [...], "secret_file": path, "names": [...], "slots": n,
"adopted": n}. adopted: how many leaders hear how far the subtasks are, so that they can adopt the attempt; those after
them have to restart it.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import grpc
from google.protobuf.message import Message
from lockgate_common.security import Credentials, load_secret
from lockgate_proto.release import OLDEST_REVISION, REVISION
from lockgate_proto.rpc import CONTROL_OPTIONS, NO_RETRIES
from lockgate_proto.v1 import checkpoint_pb2, control_pb2, control_pb2_grpc, load_pb2
from lockgate_taskmanager.runtime.report_batches import SUBTASKS_A_MS

_HEARTBEAT_S = 0.5
_PAUSE_S = 0.05
_OPTIONS = (
    ("grpc.max_receive_message_length", 256 * 1024 * 1024),
    ("grpc.use_local_subchannel_pool", 1),  # its own connection, like a process
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 200),
    NO_RETRIES,
    *CONTROL_OPTIONS,
)


class PlayedTaskManager:
    """One task manager. On the loop only."""

    def __init__(self, name: str, slots: int, exchange: str, credentials: Credentials, adopted: int) -> None:
        self._name, self._slots, self._exchange = name, slots, exchange
        self._adopted = adopted
        self._adopting: set[int] = set()  # tokens of the leaders that have heard
        self._committed_id = 0
        self._metadata = credentials.metadata()
        self._token = 0
        self._handled = 0
        self._sent = 0
        self._heartbeat_s = _HEARTBEAT_S
        self._takes_batches = False
        self._outbox: asyncio.Queue[control_pb2.TaskManagerMessage] = asyncio.Queue()
        self._deploy: control_pb2.Deploy | None = None
        self._own: list[control_pb2.SubtaskId] = []
        self._is_large = False

    async def run(self, coordinators: list[str]) -> None:
        """Stays registered with the leader, whichever coordinator that is."""
        while True:
            for address in coordinators:
                try:
                    async with grpc.aio.insecure_channel(address, options=_OPTIONS) as channel:
                        await self._stream(control_pb2_grpc.ControlServiceStub(channel))
                except grpc.RpcError:
                    await asyncio.sleep(_PAUSE_S)

    async def _stream(self, stub: control_pb2_grpc.ControlServiceStub) -> None:
        self._outbox, self._takes_batches = asyncio.Queue(), False
        running = [self._deploy.attempt] if self._deploy is not None else []
        progress = [self._progress()] if self._is_adoptable else []
        self._send(
            register=control_pb2.Register(
                exchange_address=self._exchange,
                slots=self._slots,
                pid=os.getpid(),
                running=running,
                progress=progress,
                incarnation=self._name,
                release=control_pb2.Release(revision=REVISION, oldest=OLDEST_REVISION),
                takes_batches=True,
            )
        )
        call = stub.Connect(metadata=self._metadata)
        tasks = [asyncio.create_task(self._write(call)), asyncio.create_task(self._beat())]
        try:
            async for message in call:
                if message.token > self._token:
                    self._token, self._handled = message.token, 0
                    if progress:
                        self._adopting.add(message.token)
                if message.WhichOneof("body") == "heartbeat":
                    self._heartbeat_s = message.heartbeat.interval_ms / 1000 or self._heartbeat_s
                elif not 0 < message.sequence <= self._handled:
                    self._handled = max(self._handled, message.sequence)
                    self._react(message)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _write(self, call: grpc.aio.StreamStreamCall) -> None:  # type: ignore[type-arg]
        outbox = self._outbox
        while True:
            await call.write(await outbox.get())

    def _send(self, *, numbered: bool = False, **body: object) -> None:
        self._sent += numbered
        self._outbox.put_nowait(
            control_pb2.TaskManagerMessage(
                token=self._token,
                task_manager_id=self._name,
                sequence=self._sent if numbered else 0,
                acknowledged=self._handled,
                **body,  # type: ignore[arg-type]
            )
        )

    async def _beat(self) -> None:
        number = 0
        while True:
            await asyncio.sleep(self._heartbeat_s)
            number += 1
            load = load_pb2.SubtaskLoad(busy_permille=100 + number % 100)  # another one each time, as in a job at work
            counters = [control_pb2.SubtaskCounters(subtask=subtask, load=load) for subtask in self._own]
            self._send(heartbeat=control_pb2.Heartbeat(sequence=number, counters=counters))

    def _react(self, message: control_pb2.CoordinatorMessage) -> None:
        match message.WhichOneof("body"):
            case "registered":
                self._heartbeat_s = message.registered.heartbeat_interval_ms / 1000
                self._takes_batches = message.registered.takes_batches
            case "deploy":
                self._deployed(message.deploy)
            case "cancel":
                self._send(numbered=True, gone=control_pb2.AttemptGone(attempt=message.cancel.attempt))
            case "trigger":
                self._acknowledge(message.trigger.checkpoint_id)
            case "complete":
                self._committed_id = message.complete.checkpoint_id
                number = message.complete.checkpoint_id
                committed = [control_pb2.CheckpointCommitted(subtask=each, checkpoint_id=number) for each in self._own]
                self._report("committed", committed)

    @property
    def _is_adoptable(self) -> bool:
        return self._deploy is not None and len(self._adopting) < self._adopted

    def _progress(self) -> control_pb2.AttemptProgress:
        """What the next leader needs to adopt the attempt."""
        assert self._deploy is not None
        subtasks = [
            control_pb2.SubtaskProgress(
                vertex_id=subtask.vertex_id,
                subtask=subtask.subtask,
                phase=control_pb2.SUBTASK_RUNNING,
                committed_id=self._committed_id,
            )
            for subtask in self._own
        ]
        return control_pb2.AttemptProgress(attempt=self._deploy.attempt, subtasks=subtasks)

    def _deployed(self, deploy: control_pb2.Deploy) -> None:
        self._deploy, self._committed_id = deploy, 0
        widths, slots = _laid_out(deploy.layout)
        self._own = [
            control_pb2.SubtaskId(attempt=deploy.attempt, vertex_id=vertex, subtask=slot)
            for vertex, width in widths.items()
            for slot in slots.get(self._name, ())
            if slot < width
        ]
        self._is_large = sum(widths.values()) >= SUBTASKS_A_MS
        running = control_pb2.SUBTASK_RUNNING
        self._report("report", [control_pb2.SubtaskReport(subtask=each, phase=running) for each in self._own])

    def _acknowledge(self, checkpoint_id: int) -> None:
        """Every subtask here: subtask i of each vertex is in one slot, so the barrier has no way to go."""
        acknowledgements = []
        for subtask in self._own:
            state = checkpoint_pb2.SubtaskState(vertex_id=subtask.vertex_id, subtask=subtask.subtask)
            acknowledgements.append(
                control_pb2.AcknowledgeCheckpoint(subtask=subtask, checkpoint_id=checkpoint_id, state=state)
            )
        self._report("acknowledge", acknowledgements)

    def _report(self, kind: str, found: Sequence[Message]) -> None:
        """One for each subtask here, made at the same time: together, where a real one would wait for the others."""
        if self._takes_batches and self._is_large and len(found) > 1:
            batch = [control_pb2.BatchedReport(**{kind: each}) for each in found]  # type: ignore[arg-type]
            self._send(numbered=True, reports=control_pb2.ReportBatch(reports=batch))
            return
        for each in found:
            self._send(numbered=True, **{kind: each})


@lru_cache(4)
def _laid_out(layout: bytes) -> tuple[dict[str, int], dict[str, list[int]]]:
    """Parallelism by vertex and slots by task manager; the same for all, so that one process reads it once."""
    found = control_pb2.Layout.FromString(layout)
    names = [participant.task_manager_id for participant in found.participants]
    slots: dict[str, list[int]] = {name: [] for name in names}
    for slot, number in enumerate(found.slots):
        slots[names[number]].append(slot)
    return {vertex.id: vertex.parallelism for vertex in found.graph.vertices}, slots


async def _main() -> None:
    given = json.load(sys.stdin)
    credentials = Credentials(load_secret(Path(given["secret_file"]), create=False))
    listener = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
    exchange = f"127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    each = (given["slots"], exchange, credentials, given["adopted"])
    played = [PlayedTaskManager(name, *each) for name in given["names"]]
    await asyncio.gather(*(item.run(given["coordinators"]) for item in played))


if __name__ == "__main__":
    asyncio.run(_main())
