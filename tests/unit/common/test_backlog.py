"""What waits for a job's sources: sums of what is known, and nothing where a part is not."""

from __future__ import annotations

import pytest
from lockgate_common.backlog import Backlog, job_backlog, vertex_backlogs
from lockgate_proto import messages as m


def _load(records: int | None = None, size: int | None = None, splits: int | None = None) -> m.SubtaskLoad:
    return m.SubtaskLoad(
        backlog_records=records or 0,
        backlog_bytes=size or 0,
        backlog_splits=splits or 0,
        has_backlog_records=records is not None,
        has_backlog_bytes=size is not None,
        has_backlog_splits=splits is not None,
    )


def _views(vertex: str, *loads: m.SubtaskLoad | None) -> tuple[m.SubtaskStatusView, ...]:
    return tuple(m.SubtaskStatusView(vertex, number, "tm", "RUNNING", load) for number, load in enumerate(loads))


def test_a_vertex_has_the_sum_of_its_subtasks() -> None:
    found = vertex_backlogs(_views("a", _load(5, splits=1), _load(0, splits=2)) + _views("b", _load()))
    assert found == {"a": Backlog(records=5, splits=3)}


@pytest.mark.parametrize("missing", [_load(splits=2), None])
def test_a_figure_that_one_subtask_lacks_is_no_sum(missing: m.SubtaskLoad | None) -> None:
    found = vertex_backlogs(_views("a", _load(5, splits=1), missing)).get("a", Backlog())
    assert found.records is None
    assert found.splits == (3 if missing is not None else None)


def test_a_job_has_the_sum_of_its_sources() -> None:
    edges = (m.EdgeView("a", "c"), m.EdgeView("b", "c"), m.EdgeView("c", "b", m.Partitioning.FEEDBACK))
    ends = _views("c", _load(), None)

    def of(*sources: m.SubtaskStatusView) -> Backlog:
        return job_backlog(m.JobStatus("k", subtasks=(*sources, *ends), edges=edges))

    files, kafka = _views("a", _load(size=2048, splits=3)), _views("b", _load(1_200))
    assert of(*files, *kafka) == Backlog(records=1_200, bytes=2048, splits=3)
    assert of(*files, *_views("b", _load())) == Backlog(), "one source knows nothing: the rest is not all"
    assert job_backlog(m.JobStatus("k")) == Backlog()


@pytest.mark.parametrize(
    ("backlog", "text"),
    [
        (Backlog(), "-"),
        (Backlog(records=0), "0 records"),
        (Backlog(records=1_200), "1,200 records"),
        (Backlog(bytes=2048, splits=1), "2.0 KiB in 1 split"),
        (Backlog(bytes=0, splits=0), "0 B"),
        (Backlog(splits=0), "0 splits"),
        (Backlog(1, 3, 2), "1 record + 3 B in 2 splits"),
    ],
)
def test_people_read_what_is_known(backlog: Backlog, text: str) -> None:
    assert str(backlog) == text
