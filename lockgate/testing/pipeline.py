"""Runs a pipeline in a test."""

from __future__ import annotations

from typing import Any

from lockgate.pipeline import Job
from lockgate.preview.preview import preview_graph


def preview(job: Job, rows: int = 1000) -> dict[str, list[dict[str, Any]]]:
    """What each sink of the job would get, by the sink's operator id: one dict for each row, in the order of arrival.

    It runs in this process, without a cluster, and writes nothing. rows: how many of each source are read at least, or
    all that there are; then the input ends. Spark is started at the first call, and ends with the process. Raises
    UserError: for a job that a cluster would refuse, and PreviewFailed for one that fails, with the text that a cluster
    would show.
    """
    output = preview_graph(job.graph(), rows)
    return {
        operator_id: output.tables[operator_id].to_pylist() if operator_id in output.tables else []
        for operator_id in output.names
    }
