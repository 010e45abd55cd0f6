"""Which messages to task managers are encoded beside the loop: those that take long there, and no others."""

from __future__ import annotations

from typing import Any

import pytest
from lockgate_coordinator.runtime.control_service import _MANY_SPLITS, _is_large
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
