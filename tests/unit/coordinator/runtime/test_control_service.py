"""What is done on the loop itself, and what beside it, where it would hold up the loop."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from grpc import StatusCode
from lockgate_coordinator.runtime import undeliverable
from lockgate_coordinator.runtime.control_service import _MANY_SPLITS, ControlService, _is_large
from lockgate_coordinator.runtime.link import TaskManagerLink
from lockgate_proto import messages as m
from lockgate_proto.codec import decode, encode

FEW, MANY = (m.AssignSplits(splits=(m.SplitState(),) * count) for count in (_MANY_SPLITS, _MANY_SPLITS + 1))
WITH_STATE = (m.SubtaskState(), m.SubtaskState(operators=(m.OperatorState(),)))


@pytest.mark.parametrize(
    ("body", "is_large"),
    [
        (m.PrepareJob(), True),
        (m.KeepCopies(), True),
        (m.Deploy(restore=WITH_STATE), True),
        (m.Deploy(restore=(m.SubtaskState(channels=(m.ChannelState(),)),)), True),
        (m.Deploy(layout=bytes(60_000), restore=WITH_STATE[:1]), False),
        (MANY, True),
        (FEW, False),
        (m.AssignSplitsTogether((FEW, m.AssignSplits(splits=(m.SplitState(),)))), True),
        (m.AssignSplitsTogether((FEW, m.AssignSplits())), False),
        (m.DiscoverSplits(known=("a",) * (_MANY_SPLITS + 1)), True),
        (m.DiscoverSplits(known=("a",)), False),
        (m.TriggerCheckpoint(), False),
        (m.Registered(), False),
    ],
)
def test_only_what_takes_long_to_encode_leaves_the_loop(body: Any, is_large: bool) -> None:
    assert _is_large(body) is is_large


@pytest.mark.parametrize(("body", "is_here"), [(m.StateAnswer(), True), (m.Heartbeat(), False), (m.Goodbye(), False)])
def test_only_what_a_client_waits_for_is_handled_on_the_loop(body: Any, is_here: bool) -> None:
    seen: list[bool] = []
    dispatcher: Any = SimpleNamespace(tell=lambda _term, _call, *, here: seen.append(here))
    term: Any = SimpleNamespace(token=1)
    ControlService(dispatcher)._received(term, None, "tm", m.TaskManagerMessage(1, "tm", body))  # type: ignore[arg-type]
    assert seen == [is_here]


def test_a_message_over_the_limit_does_not_reach_the_stream_and_those_after_it_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """gRPC would end the stream, and the next one, on which the message is the first."""
    monkeypatch.setattr(undeliverable, "MAX_MESSAGE_BYTES", 1_000)
    link, sent, refused = TaskManagerLink("tm"), list[bytes](), list[tuple[Any, str]]()

    async def encoded(make: Any, *, large: bool) -> bytes:  # noqa: ARG001
        return encode(make())

    async def send_bytes(data: bytes) -> None:
        sent.append(data)
        link.close(StatusCode.OK, "enough")

    stream: Any = SimpleNamespace(encoded=encoded, send_bytes=send_bytes)
    registry = SimpleNamespace(undeliverable=lambda _link, body, problem: refused.append((body, problem)))
    dispatcher: Any = SimpleNamespace(tell=lambda _term, call: call())
    term: Any = SimpleNamespace(task_managers=registry)
    large, small = m.DiscoverSplits(known=("x" * 1_000,)), m.CancelAttempt(reason="of another job")
    for body in (large, small):
        link.send(m.CoordinatorMessage(1, body))
    asyncio.run(ControlService(dispatcher)._write(term, link, stream, None))  # type: ignore[arg-type]
    assert [decode(m.CoordinatorMessage, data).body for data in sent] == [small]
    ((body, problem),) = refused
    assert body == large
    assert "1,000 fit into a message" in problem
