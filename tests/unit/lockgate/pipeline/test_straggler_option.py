"""`Job(replace_stragglers=...)`, and how a moved subtask is shown."""

from __future__ import annotations

from typing import Any

import lockgate_proto.messages as m
import pytest

from lockgate import Job, PipelineError, json_shapes, stragglers
from lockgate.commands import views


def option(value: Any) -> m.StragglerReplacement | None:
    job = Job("j", replace_stragglers=value)
    job.generate(10).print()
    return job.graph().straggler_replacement


def test_the_option_reaches_the_graph_and_the_default_is_left_out() -> None:
    assert option(False) is None
    assert option(True) == stragglers() == m.StragglerReplacement()
    assert option(stragglers(factor=2, window_ms=5_000)) == m.StragglerReplacement(2.0, 5_000, 0)
    assert option(stragglers(pause_ms=7_000)) == m.StragglerReplacement(0.0, 0, 7_000)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: option("yes"), r"Job: replace_stragglers must be True or stragglers\(...\), not 'yes'"),
        (lambda: stragglers(factor=1), r"stragglers\(\): factor must be a number from 1.5 to"),
        (lambda: stragglers(factor=True), r"stragglers\(\): factor must be a number"),
        (lambda: stragglers(window_ms=5), r"stragglers\(\): window_ms must be a whole number from 1000"),
        (lambda: stragglers(pause_ms=0), r"stragglers\(\): pause_ms must be a whole number from 1000"),
    ],
)
def test_mistakes_are_reported_at_once(make: Any, message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        make()


def test_the_operator_sees_why_a_subtask_was_moved() -> None:
    text = "subtask 1 of 'count' takes 4.1 times as long per record as its siblings; moved from a (h:1) to b (h:2)"
    status = m.JobStatus("k", state=m.JobState.RUNNING, straggler=text)
    assert f"straggler: {text}" in views.job_text(status).splitlines()
    assert json_shapes.job_json(status)["straggler"] == text
    event = m.JobEvent(m.JobEventKind.SUBTASK_MOVED, 1, text=text)
    assert views.event_text(event).endswith(f"  subtask moved: {text}")
