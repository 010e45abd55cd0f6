"""The fields of `--json` are those of docs/command-line.md: scripts rely on them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lockgate_proto import messages as m

from lockgate import json_shapes

PAGE = Path(__file__).resolve().parents[4] / "docs" / "command-line.md"
CHECKPOINT = m.CompletedCheckpoint(7, "file:///s", "crc32:0", 1, 1, m.CheckpointKind.CHECKPOINT)
STATUS = m.JobStatus(
    "k",
    state=m.JobState.FAILED,
    operators=(m.OperatorStatus("o", "o", "v"),),
    subtasks=(m.SubtaskStatusView("v", 0, "tm", "RUNNING"),),
    last_checkpoint=CHECKPOINT,
    storage_trouble=m.StorageTrouble(1, "away"),
    standby_copies=m.StandbyStatus(1, 0, (m.CopyStatus("tm"),)),
    failure=m.JobFailure(m.FailureCause.FAULT, "v", 0, m.FailurePlace("o", "c", (m.SplitRange("s", 0, 1),)), 1, 1),
)
CLUSTER = m.ClusterStatus(
    m.LeaderRecord(1, "h:1", "0x1", 7),
    (m.TaskManagerStatus("tm", "h:2", 8, 2, 1),),
    (m.CoordinatorStatus("c", "h:1", 7, True),),
    leaders=(m.LeadershipRecord(1, "c", "h:1", 7),),
)
OUTCOME = m.CheckpointOutcome(CHECKPOINT, m.AbortReason.ABORT_EXPIRED, "late", 1, 2, 3)


def fields(value: Any) -> Iterator[str]:
    """Of an object and of all in it."""
    if isinstance(value, list):
        for item in value:
            yield from fields(item)
    if isinstance(value, dict):
        for name, item in value.items():
            yield name
            yield from fields(item)


def test_every_field_is_documented() -> None:
    shown = [
        json_shapes.job_json(STATUS),
        json_shapes.submission_json(STATUS, m.SubmitResponse("k", "run", True)),
        dict.fromkeys(json_shapes.rescaled_json(STATUS)),
        dict.fromkeys(json_shapes.status_json(CLUSTER, [STATUS])),
        json_shapes.status_json(CLUSTER, ())["task_managers"],
        json_shapes.status_json(CLUSTER, ())["coordinators"],
        json_shapes.status_json(CLUSTER, ())["leaders"],
        json_shapes.outcome_json(OUTCOME),
        json_shapes.leader_json(m.LeaderRecord()),
        json_shapes.event_json(m.JobEvent(m.JobEventKind.FIRST_RECORD)),
    ]
    documented = set(re.findall(r"`(\w+)`", PAGE.read_text(encoding="utf-8")))
    assert set(fields(shown)) - documented == set()


def test_the_shape_of_an_aborted_checkpoint_and_of_one_of_an_earlier_leader() -> None:
    found = json_shapes.outcome_json(OUTCOME)
    assert (found["outcome"], found["reason"], found["text"], found["state"]) == ("aborted", "expired", "late", "")
    assert (found["attempt"], found["acknowledged"], found["subtasks"], found["retained"]) == (1, 2, 3, False)
    found = json_shapes.outcome_json(m.CheckpointOutcome(CHECKPOINT, retained=True))
    assert (found["outcome"], found["reason"], found["text"], found["state"]) == ("completed", None, "", "full")
    assert (found["attempt"], found["acknowledged"], found["subtasks"], found["retained"]) == (None, None, None, True)


def test_the_shape_of_a_submission_and_of_a_rescaled_job() -> None:
    found = json_shapes.submission_json(STATUS, m.SubmitResponse("k", "run-1", False, ("w",)))
    assert (found["key"], found["run_id"], found["created"], found["warnings"]) == ("k", "run-1", False, ["w"])
    assert json_shapes.rescaled_json(STATUS)["parallelism"] == {"v": 1}
