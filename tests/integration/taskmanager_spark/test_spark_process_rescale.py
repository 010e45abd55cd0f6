"""A process function whose job goes from 2 to 3 to 2 subtasks: timers, lists and maps go where their keys go."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from lockgate_proto.messages import FilesystemBackend, JobGraph, RocksdbBackend, StateBackend

from lockgate import Job as Pipeline
from lockgate import ListState, MapState, ProcessFunction, ValueState
from tests.committed import rows_of

from .results import late_of, rescale

pytestmark = [pytest.mark.integration, pytest.mark.rotating]

Job = Callable[..., Any]
BACKENDS = {
    "incremental": StateBackend(FilesystemBackend(), full_every=3),
    "rocksdb": StateBackend(RocksdbBackend(memory_bytes=16 << 20)),
}
FILES, ROWS, KEYS, DISORDER_MS = 4, 800, 61, 400
SOURCE, FUNCTION = "rows", "seconds"


class Seconds(ProcessFunction):
    """Tells of each second of a key what has come in it, once it is over; and once, by the wall clock, of each key."""

    counts = MapState("BIGINT", "BIGINT")
    over = ListState("BIGINT")
    is_known = ValueState("BOOLEAN")

    def process(self, context: Any, row: dict[str, Any]) -> None:
        second = row["at"] // 1000
        self.counts[second] = self.counts.get(second, 0) + 1
        context.timers.register_event_time(second * 1000 + 999)
        if not self.is_known.exists():
            self.is_known.set(True)
            context.timers.register_processing_time(context.now_ms + 1_000)

    def on_timer(self, context: Any, timer: Any) -> dict[str, Any]:
        if not timer.is_event_time:
            return {"key": context.key, "second": -1, "n": 1, "before": []}
        second = timer.time_ms // 1000
        summary = {"key": context.key, "second": second, "n": self.counts[second], "before": list(self.over)}
        del self.counts[second]
        self.over.append(second)
        return summary


def write_rows(folder: Path) -> dict[str, Counter[int]]:
    """Files over the same minute, out of order by less than DISORDER_MS; by key, how many rows each second has."""
    rng = random.Random(17)
    folder.mkdir()
    rows: dict[str, Counter[int]] = defaultdict(Counter)
    for number in range(FILES):
        lines = []
        for row in range(ROWS):
            key, at = f"k{rng.randrange(KEYS)}", 60_000 * row // ROWS + rng.randrange(DISORDER_MS)
            rows[key][at // 1000] += 1
            lines.append(json.dumps({"key": key, "at": at}))
        (folder / f"{number}.json").write_text("\n".join(lines) + "\n")
    return rows


def seconds(folder: Path, backend: str, parallelism: int) -> JobGraph:
    pipeline = Pipeline("seconds", parallelism=parallelism)
    rows = pipeline.read_json(folder / "in", schema="key STRING, at BIGINT").uid(SOURCE)
    timed = rows.event_time("at", out_of_order=DISORDER_MS).key_by("key")
    summaries = timed.process(Seconds(), schema="key STRING, second BIGINT, n BIGINT, before ARRAY<BIGINT>").uid(
        FUNCTION
    )
    summaries.write_parquet(folder / "out").uid("out")
    return replace(pipeline.graph(), state_backend=BACKENDS[backend])


def tick(run: Any, unix_ms: int) -> None:
    """The wall clock of every keyed subtask."""
    for (vertex_id, _), program in run.programs.items():
        if vertex_id == FUNCTION:
            run.deliver(vertex_id, program.tick(unix_ms))


@pytest.mark.parametrize("backend", BACKENDS)
def test_two_three_two_subtasks_fire_each_timer_once_with_what_its_key_holds(
    job: Job, tmp_path: Path, backend: str
) -> None:
    wanted = write_rows(tmp_path / "in")
    run = job(seconds(tmp_path, backend, 2))
    pending = 0
    for checkpoint_id, parallelism in ((1, 3), (2, 2)):
        tick(run, 500 * checkpoint_id)
        run.fix_batch_size(SOURCE, 9_000)
        for subtask in range(sum(vertex_id == SOURCE for vertex_id, _ in run.programs)):
            run.batch(SOURCE, subtask)
            run.batch(SOURCE, subtask)
        kept = run.checkpoint(checkpoint_id)
        shown = len(rows_of(tmp_path / "out"))
        assert shown > pending, "some seconds are over, and others wait"
        pending = shown
        rescale(run, seconds(tmp_path, backend, parallelism), kept, checkpoint_id)
    tick(run, 10_000)
    run.to_end()
    run.checkpoint(3)
    rows = rows_of(tmp_path / "out")
    assert Counter((row["key"], row["second"]) for row in rows if row["second"] < 0) == dict.fromkeys(
        ((key, -1) for key in wanted), 1
    )
    seen: dict[str, Counter[int]] = defaultdict(Counter)
    for row in rows:
        if row["second"] >= 0:
            assert row["second"] not in seen[row["key"]], "a timer has fired twice"
            seen[row["key"]][row["second"]] = row["n"]
            assert row["before"] == sorted(write_row for write_row in wanted[row["key"]] if write_row < row["second"])
    assert seen == wanted
    assert late_of(run) == 0
    run.close()
