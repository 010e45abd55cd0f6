"""Checks where records are made that ZooKeeper takes them: a write that is too large would be tried again for ever."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate

from lockgate_proto.codec import encode
from lockgate_proto.messages import AttemptRecord, JobResult

MAX_RECORD_BYTES = 980_000
"""ZooKeeper takes transactions of 1 MB, and the paths and the checksum need some of it."""


def attempt_problem(record: AttemptRecord) -> str:
    """Why the record cannot be written, for the job's author; "" when it can."""
    size = len(encode(record))
    if size <= MAX_RECORD_BYTES:
        return ""
    positions = sum(len(item.source_state) for item in record.first_positions)
    slots = f"{len(record.task_manager_ids):,} slots on {len(record.addresses):,} task managers"
    if positions:
        what = f"{positions:,} of them for where the partitions of its sources begin, and the rest for its {slots}"
        remedy = "divide the topics among several jobs, or use a lower parallelism"
    else:
        what, remedy = f"for its {slots}", "use a lower parallelism or shorter ids of task managers"
    return (
        f"The record of the job's attempt takes {size:,} bytes, {what}: ZooKeeper has room for {MAX_RECORD_BYTES:,}, "
        f"so {remedy}. The snapshots stay."
    )


def fitting(result: JobResult) -> JobResult:
    """The result with as many of the newest kept snapshots as it has room for. If some are left out, no file of the
    job is deleted.
    """
    room = MAX_RECORD_BYTES - len(encode(replace(result, retained=())))
    sizes = [len(encode(JobResult(retained=(found,)))) for found in result.retained]
    if sum(sizes) <= room:
        return result
    text = (
        f"The job has {len(sizes):,} snapshots, more than its result has room for: the newest are listed, and the "
        "files of all of them stay."
    )
    room -= len(text) + 100
    kept = sum(total <= room for total in accumulate(sizes))
    error = f"{result.error}\n{text}".strip()
    return replace(result, retained=result.retained[:kept], keep_files=True, error=error)
