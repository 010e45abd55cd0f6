"""A subtask that fails here makes the task manager look at Spark; one whose peer is lost does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from lockgate_proto.messages import AttemptGone, AttemptId, FailureCause, SubtaskId, SubtaskPhase, SubtaskReport
from lockgate_taskmanager.runtime.settings import TaskManagerSettings
from lockgate_taskmanager.runtime.task_manager import TaskManager

SUBTASK = SubtaskId(AttemptId("job", "run", 1), "v", 0)
FAILED, RUNNING = SubtaskPhase.SUBTASK_FAILED, SubtaskPhase.SUBTASK_RUNNING


@pytest.mark.parametrize(
    ("said", "looks"),
    [
        (SubtaskReport(SUBTASK, FAILED, FailureCause.FAULT, "x"), 1),
        (SubtaskReport(SUBTASK, FAILED, FailureCause.INTERNAL_ERROR, "x"), 1),
        (SubtaskReport(SUBTASK, FAILED, FailureCause.USER_ERROR, "x"), 1),
        (SubtaskReport(SUBTASK, FAILED, FailureCause.PEER_LOST, "x"), 0),
        (SubtaskReport(SUBTASK, RUNNING), 0),
        (AttemptGone(SUBTASK.attempt), 0),
    ],
)
def test_only_failures_of_its_own_trigger_the_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Any, looks: int
) -> None:
    manager = TaskManager(TaskManagerSettings(zookeeper="z:1", work_dir=str(tmp_path)), cast(Any, None))
    sent: list[Any] = []
    seen: list[int] = []
    monkeypatch.setattr(manager._control, "send", lambda body, _company: sent.append(body))
    manager.on_failure = lambda: seen.append(len(sent))
    manager._report(said)
    assert sent == [said]
    assert seen == [1] * looks, "the leader is notified first"
