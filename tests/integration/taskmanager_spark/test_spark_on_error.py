"""Records that an operator fails on are left out or become dead letters, on real Spark, and the others go on."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from lockgate_taskmanager.spark import isolation
from lockgate_taskmanager.spark.plan import Plan
from lockgate_taskmanager.task.program import Canceled, DataError, UserCodeFailed

from lockgate import Job as Pipeline
from lockgate import ProcessFunction, ValueState, count, dead_letter, sum_, tumbling
from lockgate.pipeline.on_error import Choice
from lockgate.pipeline.stream import Stream

pytestmark = [pytest.mark.integration, pytest.mark.rotating]

Job = Callable[..., Any]
BAD = dead_letter("bad")


def lines(folder: Path, *values: object, name: str = "0.txt") -> Path:
    """A folder with one file."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("".join(f"{value}\n" for value in values))
    return folder


def written_rows(folder: Path) -> list[dict[str, Any]]:
    """The rows that a file sink has committed, file by file."""
    return [json.loads(line) for path in sorted(folder.glob("part-*")) for line in path.read_text().splitlines()]


def finished(job: Job, pipeline: Pipeline) -> Any:
    """A run to its end, committed."""
    run = job(pipeline.graph())
    run.to_end()
    run.checkpoint(1)
    return run


def failed(run: Any) -> dict[str, int]:
    """Records that failed, by operator."""
    totals: dict[str, int] = {}
    for program in run.programs.values():
        for counter in program.counters():
            totals[counter.operator_id] = totals.get(counter.operator_id, 0) + counter.records_failed
    return {name: number for name, number in totals.items() if number}


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list that gets an entry for each Spark job of a plan."""
    jobs: list[int] = []
    run = Plan.run
    monkeypatch.setattr(Plan, "run", lambda plan, content: (jobs.append(1), run(plan, content))[1])
    return jobs


def test_without_failures_no_extra_job_runs(job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = []
    for choice in ("fail", "skip", BAD):
        pipeline = Pipeline("clean")
        source = pipeline.read_text(lines(tmp_path / "in", *range(100)))
        source.select("CAST(value AS INT) AS n", on_error=choice).write_json(tmp_path / "out")  # type: ignore[arg-type]
        if choice == BAD:
            pipeline.dead_letters("bad").write_json(tmp_path / "bad")
        with monkeypatch.context() as patched:
            seen = counted(patched)
            run = finished(job, pipeline)
        jobs.append(len(seen))
        assert failed(run) == {}
    assert jobs == [jobs[0]] * 3


def test_the_record_that_fails_is_skipped_and_the_rest_keeps_its_order(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = Pipeline("skip")
    values = [n if n not in (0, 41, 127) else f"x{n}" for n in range(128)]
    source = pipeline.read_text(lines(tmp_path / "in", *values))
    source.select("CAST(value AS INT) AS n", on_error="skip").write_json(tmp_path / "out")
    jobs = counted(monkeypatch)
    run = finished(job, pipeline)
    assert [row["n"] for row in written_rows(tmp_path / "out")] == [n for n in range(128) if n not in (0, 41, 127)]
    assert failed(run) == {"select-1": 3}
    assert len(jobs) < 3 * 2 * 7 + 10  # by halves, not one by one


def test_a_dead_letter_contains_operator_error_and_record(job: Job, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.json").write_text('{"k": "a", "v": "1"}\n{"k": "b", "v": "zwei"}\n{"k": "c", "v": "3"}\n')
    pipeline = Pipeline("letters")
    source = pipeline.read_json(tmp_path / "in", schema="k STRING, v STRING")
    renamed = source.select("k AS name", "v AS text")
    renamed.select("name", "CAST(text AS INT) AS n", on_error=BAD).uid("cast").write_json(tmp_path / "out")
    pipeline.dead_letters("bad").write_json(tmp_path / "bad")
    run = finished(job, pipeline)
    assert written_rows(tmp_path / "out") == [{"name": "a", "n": 1}, {"name": "c", "n": 3}]
    (letter,) = written_rows(tmp_path / "bad")
    assert letter["operator"] == "cast"
    assert json.loads(letter["record"]) == {"name": "b", "text": "zwei"}
    assert "'zwei' of the type \"STRING\" cannot be cast" in letter["error"]
    assert failed(run) == {"cast": 1}


def test_only_the_failing_word_of_an_exploded_line_is_left_out_and_order_stays(job: Job, tmp_path: Path) -> None:
    pipeline = Pipeline("words")
    source = pipeline.read_text(lines(tmp_path / "in", "1 2", "3 x 4", "5", "y", "6 7"))
    words = source.sql("SELECT explode(split(value, ' ')) AS word FROM input", on_error="skip")
    # a nested type, of which Spark says in one job that nothing in it is NULL, and in two that something may be
    numbers = words.select("CAST(word AS INT) AS n", "array(1, 2) AS a", "named_struct('b', 1) AS s", on_error=BAD)
    numbers.write_json(tmp_path / "out")
    pipeline.dead_letters("bad").write_json(tmp_path / "bad")
    run = finished(job, pipeline)
    assert [row["n"] for row in written_rows(tmp_path / "out")] == [1, 2, 3, 4, 5, 6, 7]
    assert [json.loads(row["record"])["word"] for row in written_rows(tmp_path / "bad")] == ["x", "y"]
    assert failed(run) == {"select-1": 2}


def test_types_that_cannot_leave_spark_are_allowed_between_chained_operators(job: Job, tmp_path: Path) -> None:
    pipeline = Pipeline("variants")
    source = pipeline.read_text(lines(tmp_path / "in", '{"n": 1}', "no json", '{"n": "x"}', '{"n": 4}'))
    parsed = source.select("parse_json(value) AS v", on_error=BAD)
    parsed.select("variant_get(v, '$.n', 'int') AS n", on_error=BAD).write_json(tmp_path / "out")
    pipeline.dead_letters("bad").write_json(tmp_path / "bad")
    run = finished(job, pipeline)
    assert [row["n"] for row in written_rows(tmp_path / "out")] == [1, 4]
    assert [json.loads(row["record"])["value"] for row in written_rows(tmp_path / "bad")] == ["no json", '{"n": "x"}']
    assert sum(failed(run).values()) == 2


def test_partial_aggregates_behind_it_hold_the_others(job: Job, tmp_path: Path) -> None:
    pipeline = Pipeline("sums", parallelism=2)
    source = pipeline.read_text(lines(tmp_path / "in", "1 2", "3 x 4", "5", "y", "6 7"))
    words = source.sql("SELECT explode(split(value, ' ')) AS word FROM input")
    numbers = words.select("CAST(word AS INT) AS n", "CAST(word AS INT) % 2 AS odd", on_error="skip")
    numbers.key_by("odd").aggregate(total=sum_("n"), n=count()).write_sql(f"sqlite:///{tmp_path}/x.db", "t", key="odd")
    run = finished(job, pipeline)
    with closing(sqlite3.connect(tmp_path / "x.db")) as database:
        assert database.execute("SELECT odd, total, n FROM t ORDER BY odd").fetchall() == [(0, 12, 3), (1, 16, 4)]
    assert failed(run) == {"select-1": 2}


def test_an_operator_that_fails_still_fails_beside_one_that_skips(job: Job, tmp_path: Path) -> None:
    pipeline = Pipeline("mixed")
    source = pipeline.read_text(lines(tmp_path / "in", 1, 2, "x"))
    cast = source.select("CAST(value AS INT) AS n").uid("strict")
    cast.select("100 / n AS part", on_error="skip").write_json(tmp_path / "out")
    with pytest.raises(DataError, match="operator 'select' \\(id 'strict'\\): The value 'x'"):
        finished(job, pipeline)


def test_records_that_fail_only_together_fail_the_batch(job: Job, tmp_path: Path) -> None:
    pipeline = Pipeline("together")
    source = pipeline.read_text(lines(tmp_path / "in", 2**62, 2**62, 1))
    source.sql("SELECT sum(CAST(value AS BIGINT)) AS n FROM input", on_error="skip").write_json(tmp_path / "out")
    with pytest.raises(DataError, match="overflow"):
        finished(job, pipeline)


def test_more_failures_than_can_be_sorted_out_fail_the_batch(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = Pipeline("all")
    source = pipeline.read_text(lines(tmp_path / "in", *["x"] * 100))
    source.select("CAST(value AS INT) AS n", on_error="skip").write_json(tmp_path / "out")
    monkeypatch.setattr(isolation, "MOST_RUNS", 10)
    jobs = counted(monkeypatch)
    with pytest.raises(DataError, match="too many records of one batch fail") as caught:
        finished(job, pipeline)
    assert "The value 'x'" in str(caught.value)
    assert len(jobs) < 15


def test_a_cancel_gets_through_between_two_jobs(job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = Pipeline("cancel")
    source = pipeline.read_text(lines(tmp_path / "in", *["x"] * 1000))
    source.select("CAST(value AS INT) AS n", on_error="skip").write_json(tmp_path / "out")
    run = job(pipeline.graph())
    program = next(iter(run.programs.values()))
    ran: list[int] = []
    original = Plan.run

    def ten(plan: Plan, content: Any) -> Any:
        ran.append(1)
        if len(ran) == 10:
            program._call._canceled.set()
        return original(plan, content)

    monkeypatch.setattr(Plan, "run", ten)
    with pytest.raises(Canceled):
        run.to_end()
    assert len(ran) == 10


def over_rows(raised: str) -> Callable[[Any], Any]:
    def udf(frame: Any) -> Any:
        def call(batches: Any) -> Any:
            for batch in batches:
                for value in batch.column(0).to_pylist():
                    if value == "x":
                        raise {"value": ValueError, "os": ConnectionError, "other": RuntimeError}[raised]("no x")
                yield batch

        return frame.mapInArrow(call, "value STRING")

    return udf


@pytest.mark.parametrize("raised", ["value", "other"])
def test_an_exception_of_a_python_function_over_a_record(job: Job, tmp_path: Path, raised: str) -> None:
    pipeline = Pipeline("python")
    source = pipeline.read_text(lines(tmp_path / "in", "a", "x", "b"))
    source.transform(over_rows(raised), on_error=BAD).write_json(tmp_path / "out")
    pipeline.dead_letters("bad").write_json(tmp_path / "bad")
    finished(job, pipeline)
    assert [row["value"] for row in written_rows(tmp_path / "out")] == ["a", "b"]
    name = {"value": "ValueError", "other": "RuntimeError"}[raised]
    (error,) = [row["error"] for row in written_rows(tmp_path / "bad")]
    assert re.fullmatch(
        rf"the Python function raised {name}: no x \(line \d+ of {Path(__file__).name}, in call\)", error
    )


def test_an_outage_is_not_the_fault_of_a_record(job: Job, tmp_path: Path) -> None:
    pipeline = Pipeline("away")
    source = pipeline.read_text(lines(tmp_path / "in", "a", "x", "b"))
    source.transform(over_rows("os"), on_error="skip").write_json(tmp_path / "out")
    with pytest.raises(UserCodeFailed, match="ConnectionError: no x"):
        finished(job, pipeline)


def test_event_time_follows_the_remaining_records(job: Job, tmp_path: Path) -> None:
    pipeline = Pipeline("times")
    source = pipeline.read_text(lines(tmp_path / "in", 1000, "x", 2000, 9000, "y"))
    timed = source.event_time("CAST(value AS BIGINT)", out_of_order=0, on_error=BAD)
    timed.key_by("value").window(tumbling("1 s")).aggregate(n=count()).write_json(tmp_path / "out")
    pipeline.dead_letters("bad").write_json(tmp_path / "bad")
    run = job(pipeline.graph())
    poll = run.programs["read_text-1", 0].poll()
    assert poll.watermark.event_time_ms == 8999
    run.deliver("read_text-1", poll)
    run.to_end()
    run.checkpoint(1)
    assert sorted(row["value"] for row in written_rows(tmp_path / "out")) == ["1000", "2000", "9000"]
    assert [json.loads(row["record"])["value"] for row in written_rows(tmp_path / "bad")] == ["x", "y"]


def test_invalid_lines_are_attributed_to_the_source(job: Job, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.csv").write_text("1,2\nx,3\n4,0\n5,5\n")

    def pipeline(**options: str) -> Pipeline:
        made = Pipeline("csv")
        source = made.read_csv(tmp_path / "in", schema="a INT, b INT", **options)
        source.select("a div b AS n", on_error="skip").write_json(tmp_path / "out")
        return made

    with pytest.raises(DataError, match="a line does not match"):
        finished(job, pipeline())
    run = finished(job, pipeline(mode="DROPMALFORMED"))
    assert [row["n"] for row in written_rows(tmp_path / "out")] == [0, 1]
    assert failed(run) == {"select-1": 1}
    assert sum(counter.records_malformed for program in run.programs.values() for counter in program.counters()) == 1


def test_the_generator_and_received_tables(job: Job, tmp_path: Path) -> None:
    pipeline = Pipeline("rows")
    first = pipeline.generate(rows=16).select("sequence", "100 div (sequence - 7) AS n", on_error="skip")
    behind = first.rebalance().select("sequence", "n div (sequence - 9) AS m", on_error=BAD)
    behind.write_json(tmp_path / "out")
    pipeline.dead_letters("bad").write_json(tmp_path / "bad")
    run = finished(job, pipeline)
    assert [row["sequence"] for row in written_rows(tmp_path / "out")] == [n for n in range(16) if n not in (7, 9)]
    assert [json.loads(row["record"])["sequence"] for row in written_rows(tmp_path / "bad")] == [9]
    assert failed(run) == {"select-1": 1, "select-2": 1}


class Sums(ProcessFunction):
    total = ValueState("BIGINT")

    def process(self, context: Any, row: dict[str, Any]) -> Any:  # noqa: ARG002
        yield {"key": row["key"], "total": -1}
        self.total.set(self.total.get(0) + row["value"])
        if row["value"] == 13:
            raise ValueError("thirteen")
        yield {"key": row["key"], "total": self.total.get()}
        if row["value"] == 14:
            yield {"key": row["key"], "total": "no number"}


def summed(tmp_path: Path, on_error: Choice) -> tuple[Pipeline, Stream]:
    (tmp_path / "in").mkdir(exist_ok=True)
    rows = [("a", 1), ("b", 13), ("a", 13), ("a", 2), ("c", 3), ("a", 14), ("b", 5), ("d", 13)]
    (tmp_path / "in" / "0.json").write_text("".join(json.dumps({"key": k, "value": v}) + "\n" for k, v in rows))
    pipeline = Pipeline("sums")
    source = pipeline.read_json(tmp_path / "in", schema="key STRING, value BIGINT")
    return pipeline, source.key_by("key").process(Sums(), schema="key STRING, total BIGINT", on_error=on_error)


def test_a_call_that_fails_leaves_the_state_of_its_key_as_it_was(job: Job, tmp_path: Path) -> None:
    pipeline, totals = summed(tmp_path, BAD)
    totals.write_json(tmp_path / "out")
    pipeline.dead_letters("bad").write_json(tmp_path / "bad")
    run = finished(job, pipeline)
    found: dict[str, list[int]] = {}
    for row in written_rows(tmp_path / "out"):
        found.setdefault(row["key"], []).append(row["total"])
    assert found == {"a": [-1, 1, -1, 3], "c": [-1, 3], "b": [-1, 5]}
    letters = {
        (item["key"], item["value"]): row["error"]
        for row in written_rows(tmp_path / "bad")
        for item in [json.loads(row["record"])]
    }
    assert sorted(letters) == [("a", 13), ("a", 14), ("b", 13), ("d", 13)]
    assert letters["a", 13].startswith("the Python function raised ValueError: thirteen (line ")
    assert "emitted a value for column 'total' that is not of type int64" in letters["a", 14]
    assert failed(run) == {"process-1": 4}


class Years(ProcessFunction):
    def process(self, context: Any, row: dict[str, Any]) -> Any:  # noqa: ARG002
        yield {"key": row["key"], "total": row["at"].year}


def test_a_date_that_python_does_not_have_is_the_fault_of_its_record(job: Job, tmp_path: Path) -> None:
    summed(tmp_path, "fail")  # writes the input

    def years(on_error: Choice) -> Pipeline:
        pipeline = Pipeline("years")
        dated = pipeline.read_json(tmp_path / "in", schema="key STRING, value BIGINT").select(
            "key", "timestamp_micros(CASE value WHEN 13 THEN 253402300800000000 ELSE 0 END) AS at"
        )
        found = dated.key_by("key").process(Years(), schema="key STRING, total BIGINT", on_error=on_error)
        found.write_json(tmp_path / "out")
        return pipeline

    with pytest.raises(
        DataError, match=r"^operator '.*: the record has a value in column 'at'.*; the record: {'key': "
    ):
        finished(job, years("fail"))
    finished(job, years("skip"))
    assert sorted(row["key"] for row in written_rows(tmp_path / "out")) == ["a", "a", "a", "b", "c"]


def test_failures_are_counted_once_across_attempts(job: Job, tmp_path: Path) -> None:
    values = [n if n % 20 else f"x{n}" for n in range(80)]
    pipeline = Pipeline("restored")
    source = pipeline.read_text(lines(tmp_path / "in", *values))
    source.select("CAST(value AS INT) AS n", on_error=BAD).write_json(tmp_path / "out")
    pipeline.dead_letters("bad").write_json(tmp_path / "bad")
    run = job(pipeline.graph())
    run.fix_batch_size("read_text-1", 80)
    assert run.batch("read_text-1")
    kept = run.checkpoint(1)
    assert run.batch("read_text-1")  # is lost with its dead letters
    run.close()
    run.start(kept, 1)
    run.to_end()
    run.checkpoint(2)
    assert sorted(row["n"] for row in written_rows(tmp_path / "out")) == [n for n in range(80) if n % 20]
    letters = sorted(json.loads(row["record"])["value"] for row in written_rows(tmp_path / "bad"))
    assert letters == sorted(f"x{n}" for n in range(0, 80, 20))
    assert failed(run) == {"select-1": 4}
