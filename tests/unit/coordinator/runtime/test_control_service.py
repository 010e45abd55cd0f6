"""What is done on the loop itself, and what beside it, where it would hold up the loop."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from lockgate_coordinator.runtime.control_service import _MANY_SPLITS, ControlService, _is_large
from lockgate_proto import messages as m

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
