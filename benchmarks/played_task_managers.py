"""`python -m benchmarks.played_task_managers`: hundreds of task managers in one process, which run nothing.

Each has its own connection and control stream, reports, acknowledges, commits and sends heartbeats as a real one
does, and finds the leader again. It holds protobuf objects where a real one has frozen messages: what it takes itself
is time that the coordinator does not get.

Reads JSON from its standard input: {"coordinators": [...], "secret_file": path, "names": [...], "slots": n}.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import grpc
from lockgate_common.security import Credentials, load_secret
from lockgate_proto.v1 import checkpoint_pb2, control_pb2, control_pb2_grpc

_HEARTBEAT_S = 0.5
_PAUSE_S = 0.05
_OPTIONS = (
    ("grpc.max_receive_message_length", 256 * 1024 * 1024),
    ("grpc.use_local_subchannel_pool", 1),  # its own connection, like a process
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 200),
)


class PlayedTaskManager:
    """One task manager. On the loop only."""

    def __init__(self, name: str, slots: int, exchange: str, credentials: Credentials) -> None:
        self._name, self._slots, self._exchange = name, slots, exchange
        self._metadata = credentials.metadata()
        self._token = 0
        self._handled = 0
        self._sent = 0
        self._outbox: asyncio.Queue[control_pb2.TaskManagerMessage] = asyncio.Queue()
        self._deploy: control_pb2.Deploy | None = None
        self._own: list[control_pb2.SubtaskId] = []

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
        self._outbox = asyncio.Queue()
        running = [self._deploy.attempt] if self._deploy is not None else []
        self._send(
            register=control_pb2.Register(
                exchange_address=self._exchange,
                slots=self._slots,
                pid=os.getpid(),
                running=running,
                incarnation=self._name,
            )
        )
        call = stub.Connect(metadata=self._metadata)
        tasks = [asyncio.create_task(self._write(call)), asyncio.create_task(self._beat())]
        try:
            async for message in call:
                if message.token > self._token:
                    self._token, self._handled = message.token, 0
                if message.WhichOneof("body") != "heartbeat" and not 0 < message.sequence <= self._handled:
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
            await asyncio.sleep(_HEARTBEAT_S)
            number += 1
            counters = [control_pb2.SubtaskCounters(subtask=subtask) for subtask in self._own]
            self._send(heartbeat=control_pb2.Heartbeat(sequence=number, counters=counters))

    def _react(self, message: control_pb2.CoordinatorMessage) -> None:
        match message.WhichOneof("body"):
            case "deploy":
                self._deployed(message.deploy)
            case "cancel":
                self._send(numbered=True, gone=control_pb2.AttemptGone(attempt=message.cancel.attempt))
            case "trigger":
                self._acknowledge(message.trigger.checkpoint_id)
            case "complete":
                for subtask in self._own:
                    committed = control_pb2.CheckpointCommitted(
                        subtask=subtask, checkpoint_id=message.complete.checkpoint_id
                    )
                    self._send(numbered=True, committed=committed)

    def _deployed(self, deploy: control_pb2.Deploy) -> None:
        self._deploy = deploy
        layout = control_pb2.Layout.FromString(deploy.layout)
        here = [
            slot
            for slot, number in enumerate(layout.slots)
            if layout.participants[number].task_manager_id == self._name
        ]
        self._own = [
            control_pb2.SubtaskId(attempt=deploy.attempt, vertex_id=vertex.id, subtask=slot)
            for vertex in layout.graph.vertices
            for slot in here
            if slot < vertex.parallelism
        ]
        for subtask in self._own:
            running = control_pb2.SubtaskReport(subtask=subtask, phase=control_pb2.SUBTASK_RUNNING)
            self._send(numbered=True, report=running)

    def _acknowledge(self, checkpoint_id: int) -> None:
        """Every subtask here: subtask i of each vertex is in one slot, so the barrier has no way to go."""
        for subtask in self._own:
            state = checkpoint_pb2.SubtaskState(vertex_id=subtask.vertex_id, subtask=subtask.subtask)
            acknowledge = control_pb2.AcknowledgeCheckpoint(subtask=subtask, checkpoint_id=checkpoint_id, state=state)
            self._send(numbered=True, acknowledge=acknowledge)


async def _main() -> None:
    given = json.load(sys.stdin)
    credentials = Credentials(load_secret(Path(given["secret_file"]), create=False))
    listener = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
    exchange = f"127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    played = [PlayedTaskManager(name, given["slots"], exchange, credentials) for name in given["names"]]
    await asyncio.gather(*(item.run(given["coordinators"]) for item in played))


if __name__ == "__main__":
    asyncio.run(_main())
