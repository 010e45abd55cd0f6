"""A leader of an earlier version leaves out what it does not know."""

from __future__ import annotations

import pytest
from lockgate_proto import messages as m

from lockgate.client.client import Client


def test_the_history_of_checkpoints_has_the_retained_ones_at_least(monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints = (m.CompletedCheckpoint(7), m.CompletedCheckpoint(5, kind=m.CheckpointKind.SAVEPOINT))
    with Client(["127.0.0.1:1"]) as client:
        monkeypatch.setattr(client, "locate", lambda _deadline: m.LeaderRecord("c1", 1, "127.0.0.1:1"))
        monkeypatch.setattr(client, "_ask", lambda *_call: m.ListCheckpointsResponse(checkpoints))
        found = client.checkpoint_history("job")
    assert found == tuple(m.CheckpointOutcome(checkpoint, retained=True) for checkpoint in checkpoints)
