"""A model on one stream, records on another, on real Spark: 2 to 3 to 1 subtasks, and a preview."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lockgate_proto.messages import JobGraph
from lockgate_taskmanager.spark.engine import SparkEngine
from lockgate_taskmanager.spark.functions.stage import FunctionStage

from lockgate import Job as Pipeline
from lockgate import count, tumbling
from lockgate.preview import preview as previews
from lockgate.testing import preview
from tests.committed import rows_of

from .results import rescale

pytestmark = [pytest.mark.integration, pytest.mark.rotating]

Job = Callable[..., Any]
ROWS, MODELS = 3_000, 40


class Scored:
    """Each record with the version of the model, and the sum of all that was broadcast until then."""

    state_fields = ("version", "total")

    def __init__(self) -> None:
        self.version, self.total = -1, 0

    def process_broadcast(self, record: dict[str, Any]) -> None:
        if record["sequence"] != self.version + 1:
            raise ValueError(f"{record['sequence']} comes after {self.version}")
        self.version, self.total = record["sequence"], self.total + record["sequence"]

    def __call__(self, record: dict[str, Any]) -> dict[str, Any]:
        return {**record, "version": self.version, "total": self.total}


def graph(folder: Path, parallelism: int) -> JobGraph:
    pipeline = Pipeline("swap", parallelism=parallelism)
    models = pipeline.generate(MODELS, partitions=1).uid("models")
    records = pipeline.generate(ROWS, partitions=6).uid("records").select("partition", "sequence")
    scored = records.with_broadcast(models).map(
        Scored(), schema="partition BIGINT, sequence BIGINT, version BIGINT, total BIGINT"
    )
    scored.uid("scored").write_parquet(folder / "out").uid("out")
    return pipeline.graph()


def objects(run: Any) -> list[Scored]:
    stages = (stage for program in run.programs.values() for stage in program._layout.stages)
    return [stage._function for stage in stages if isinstance(stage, FunctionStage)]


def test_every_subtask_has_the_same_state_in_each_snapshot_whatever_their_number(job: Job, tmp_path: Path) -> None:
    run = job(graph(tmp_path, 2))
    run.fix_batch_size("models", 10)
    run.fix_batch_size("records", 5_000)
    for number, parallelism in ((1, 3), (2, 1)):
        for subtask in range(len(run.programs) // 2):
            run.batch("records", subtask)
            run.batch("models")
        states = {(function.version, function.total) for function in objects(run)}
        assert len(states) == 1
        assert states != {(-1, 0)}
        kept = run.checkpoint(number)
        run.batch("models")  # behind the snapshot: it comes again
        rescale(run, graph(tmp_path, parallelism), kept, number)
        assert [(function.version, function.total) for function in objects(run)] == [*states] * parallelism
    run.to_end()
    run.checkpoint(3)
    assert [(function.version, function.total) for function in objects(run)] == [(MODELS - 1, sum(range(MODELS)))]
    written = rows_of(tmp_path / "out")
    assert sorted((row["partition"], row["sequence"]) for row in written) == [
        (partition, sequence) for partition in range(6) for sequence in range(ROWS)
    ]
    assert all(row["total"] == sum(range(row["version"] + 1)) for row in written)
    assert len({row["version"] for row in written}) > 2
    counted = {counter.operator_id: counter for program in run.programs.values() for counter in program.counters()}
    assert counted["scored"].records_out == len(written)


def test_a_preview_has_the_whole_model_first_and_windows_do_not_wait_for_it(
    engine: SparkEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(previews._Engine, "started", engine)
    pipeline = Pipeline("preview", parallelism=2)
    records = pipeline.generate(100).event_time("sequence", out_of_order=0, column="at")
    scored = records.with_broadcast(pipeline.generate(MODELS)).map(
        Scored(), "partition BIGINT, sequence BIGINT, at BIGINT, version BIGINT, total BIGINT"
    )
    counts = scored.key_by("version").window(tumbling(50)).aggregate(n=count())
    counts.select("version", "n").print().uid("shown")
    assert preview(pipeline, 100)["shown"] == [{"version": MODELS - 1, "n": 50}, {"version": MODELS - 1, "n": 50}]
