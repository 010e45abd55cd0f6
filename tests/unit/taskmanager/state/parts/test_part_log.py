"""PartLog: which stored snapshots of an object's parts the next one may build on."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from lockgate_proto.messages import StateHandle
from lockgate_taskmanager.state.parts.part_log import PartLog
from lockgate_taskmanager.state.parts.stored_part import StoredPart
from lockgate_taskmanager.task.program import SnapshotOrder

PARTS = {f"p{number}": StoredPart(StateHandle(), 0, 1, b"") for number in range(10)}


def change(log: PartLog, checkpoint_id: int) -> None:
    log.changed(checkpoint_id, {f"q{checkpoint_id}-{number}": None for number in range(250)})


@pytest.mark.parametrize("then", [lambda log: change(log, 22), lambda log: log.forget(19)])
def test_a_damaged_snapshot_is_no_base_whatever_is_forgotten_of_earlier_changes(
    then: Callable[[PartLog], None],
) -> None:
    log = PartLog()
    log.stored(17, PARTS)
    for checkpoint_id in (18, 19, 20, 21):
        change(log, checkpoint_id)
    assert log.base(SnapshotOrder(17)) is not None
    log.stored(20, PARTS)
    log.distrust(20)
    then(log)
    assert log.base(SnapshotOrder(20)) is None
    log.stored(22, PARTS)
    assert log.base(SnapshotOrder(22)) is not None, "the next whole one"
