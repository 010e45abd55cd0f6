"""A registration that is too large for one message gives up as little as it must."""

from __future__ import annotations

import pytest
from lockgate_proto import rpc
from lockgate_proto.messages import (
    AttemptId,
    AttemptProgress,
    OperatorCounters,
    Register,
    SplitState,
    SubtaskProgress,
)
from lockgate_taskmanager.runtime import control_client


def _attempt(key: str, splits: int) -> AttemptProgress:
    assigned = tuple(SplitState(f"{number:0100}", 0, 0) for number in range(splits))
    counters = (OperatorCounters("source", 0, 7),)
    return AttemptProgress(
        AttemptId(key, "run", 1), (SubtaskProgress("read", 0, assigned=assigned, counters=counters),)
    )


@pytest.mark.parametrize(
    ("limit", "kept", "has_counters"), [(10**6, ["large", "small"], True), (4_000, ["small"], False)]
)
def test_only_the_attempt_with_most_splits_is_left_out(
    monkeypatch: pytest.MonkeyPatch, limit: int, kept: list[str], has_counters: bool
) -> None:
    monkeypatch.setattr(rpc, "MAX_MESSAGE_BYTES", limit)
    register = Register("h:1", 2, progress=(_attempt("large", 50), _attempt("small", 5)))
    sent = control_client._sendable(register).progress
    assert sorted(known.attempt.job_key for known in sent if known.attempt is not None) == kept
    assert [bool(known.subtasks[0].counters) for known in sent] == [has_counters] * len(kept)
