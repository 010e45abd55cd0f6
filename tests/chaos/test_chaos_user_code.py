"""Code and records of the author's that fail, in a cluster of real processes: what passes, what ends, what stays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from lockgate_proto.messages import FailureCause, JobState, JobStatus

from lockgate import Job, ProcessFunction, ValueState
from lockgate.client import TERMINAL, JobFailed
from lockgate.pipeline.submission import Start, send
from tests.chaos.testing_cluster import TestingCluster
from tests.committed import rows_of
from tests.drained import generated, path_of, patient, rows_read

pytestmark = [pytest.mark.chaos, pytest.mark.rotating]

ROWS, KEYS = 6_000, 7


def ended(testing: TestingCluster, key: str, job: Job) -> JobStatus:
    testing.client.submit(key, patient(job.graph()))
    testing.wait_until(lambda: testing.client.job(key).state in TERMINAL, "the end")
    return testing.client.job(key)


def test_one_exception_of_a_process_function_costs_a_restart_and_nothing_else(
    testing: TestingCluster, tmp_path: Path
) -> None:
    marker = str(tmp_path / "raised")

    class Counts(ProcessFunction):
        count = ValueState("BIGINT")

        def process(self, context: Any, row: dict[str, Any]) -> Any:  # noqa: ARG002
            import os

            seen = (self.count.get() or 0) + 1
            if seen == 500 and not os.path.exists(marker):
                with open(marker, "w"):
                    raise TimeoutError("no answer")
            self.count.set(seen)
            return {"k": row["k"], "n": seen}

    job = Job("raises-once", checkpoint_interval_ms=300)
    rows = job.generate(rows=ROWS, rate=1_500, partitions=1).select(f"sequence % {KEYS} AS k")
    rows.key_by("k").process(Counts(), schema="k BIGINT, n BIGINT").write_parquet(tmp_path / "out")
    status = ended(testing, "raises-once", job)
    assert (status.state, status.restarts) == (JobState.FINISHED, 1), status
    found = sorted((row["k"], row["n"]) for row in rows_of(tmp_path / "out"))
    assert found == sorted((k, n + 1) for k in range(KEYS) for n in range((ROWS - k + KEYS - 1) // KEYS))


def test_what_the_first_call_of_foreach_batch_raises_fails_the_submission(testing: TestingCluster) -> None:
    """It is called when a checkpoint is complete: records and a checkpoint are no proof that it works."""

    def save(df: Any, checkpoint_id: int) -> None:
        raise KeyError(f"no table for {checkpoint_id} with {df.count()} rows")

    said: list[str] = []
    job = Job("each-fails", checkpoint_interval_ms=200)
    job.generate(rate=100, partitions=1).foreach_batch(save)
    with pytest.raises(JobFailed, match="no table for"):
        send(testing.client, "each-fails", job.graph(), Start(), said.append)
    assert not any("is running" in line for line in said), said
    status = testing.client.job("each-fails")
    assert status.failure is not None
    assert status.failure.place is not None
    assert 'raise KeyError(f"no table' in status.failure.place.traceback


def test_a_record_that_is_refused_again_and_again_ends_the_job_with_its_place_and_its_state_kept(
    testing: TestingCluster, tmp_path: Path
) -> None:
    job = Job("poisoned", checkpoint_interval_ms=200)
    rows = job.generate(rows=ROWS, rate=1_000, partitions=1)
    text = rows.select("sequence", "CASE WHEN sequence = 3000 THEN 'x' ELSE '1' END AS amount")
    text.select("sequence", "CAST(amount AS INT) AS amount").write_parquet(tmp_path / "out")
    key = "poisoned"
    status = ended(testing, key, job)
    assert status.state is JobState.FAILED
    failure = status.failure
    assert failure is not None
    assert (failure.cause, failure.times) == (FailureCause.DATA_ERROR, 3), status.error
    assert failure.place is not None
    assert any(range_.split == "0" and range_.start <= 3000 < range_.end for range_ in failure.place.ranges), failure
    assert "'x'" in status.error
    assert "3 attempts have failed in this way on the same records" in status.error
    (kept,) = testing.client.checkpoints(key)
    (read,) = rows_read(path_of(kept)).values()
    (end,) = generated(read, 1)
    assert end <= 3000
    found = sorted((row["sequence"], row["amount"]) for row in rows_of(tmp_path / "out"))
    assert found == [(number, 1) for number in range(len(found))]
    is_reported = f"Checkpoint {kept.checkpoint_id} may be only partially committed" in status.error
    assert len(found) == end or (len(found) < end and is_reported), "what the checkpoint holds is shown, or reported"
    testing.client.dispose_savepoint(key, kept.checkpoint_id)
    assert testing.client.checkpoints(key) == ()
