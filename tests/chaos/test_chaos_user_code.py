"""Code and records of the author's that fail, in a cluster of real processes: what passes, what ends, what stays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from lockgate_proto.messages import FailureCause, JobState, JobStatus

from lockgate import Job, ProcessFunction, ValueState
from lockgate.client import TERMINAL
from tests.chaos.ground import Ground
from tests.committed import rows_of

pytestmark = pytest.mark.chaos

ROWS, KEYS = 6_000, 7


def ended(ground: Ground, key: str, job: Job) -> JobStatus:
    ground.client.submit(key, job.graph())
    ground.wait_until(lambda: ground.client.job(key).state in TERMINAL, "the end")
    return ground.client.job(key)


def test_one_exception_of_a_process_function_costs_a_restart_and_nothing_else(ground: Ground, tmp_path: Path) -> None:
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
    status = ended(ground, "raises-once", job)
    assert (status.state, status.restarts) == (JobState.FINISHED, 1), status
    found = sorted((row["k"], row["n"]) for row in rows_of(tmp_path / "out"))
    assert found == sorted((k, n + 1) for k in range(KEYS) for n in range((ROWS - k + KEYS - 1) // KEYS))


def test_a_record_that_is_refused_again_and_again_ends_the_job_with_its_place_and_its_state_kept(
    ground: Ground, tmp_path: Path
) -> None:
    job = Job("poisoned", checkpoint_interval_ms=200)
    rows = job.generate(rows=ROWS, rate=1_000, partitions=1)
    text = rows.select("sequence", "CASE WHEN sequence = 3000 THEN 'x' ELSE '1' END AS amount")
    text.select("sequence", "CAST(amount AS INT) AS amount").write_parquet(tmp_path / "out")
    key = "poisoned"
    status = ended(ground, key, job)
    assert status.state is JobState.FAILED
    failure = status.failure
    assert failure is not None
    assert (failure.cause, failure.times) == (FailureCause.DATA_ERROR, 3), status.error
    assert failure.place is not None
    assert any(one.split == "0" and one.start <= 3000 < one.end for one in failure.place.ranges), failure
    assert "'x'" in status.error
    assert "3 attempts have failed in this way on the same records" in status.error
    (kept,) = ground.client.checkpoints(key)
    assert Path(kept.pointer.removeprefix("file://")).is_file()
    ground.client.dispose_savepoint(key, kept.checkpoint_id)
    assert ground.client.checkpoints(key) == ()
