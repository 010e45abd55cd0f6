"""`map`, `flat_map` and `filter` with Python functions, between real Spark operators."""

from __future__ import annotations

import datetime as dt
import json
import threading
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from lockgate_proto.messages import AttemptId, SubtaskId
from lockgate_taskmanager.spark.engine import SparkEngine
from lockgate_taskmanager.spark.plan import Plan
from lockgate_taskmanager.task.program import Canceled, DataError, ProgramContext, UserCodeFailed, UserError

from lockgate import Job as Pipeline
from lockgate import count, dead_letter, tumbling
from lockgate.preview import preview as previews
from lockgate.testing import preview
from tests.integration.taskmanager_spark.test_spark_on_error import failed, finished, lines, written_rows

pytestmark = pytest.mark.integration

Job = Callable[..., Any]
MOMENT = dt.datetime(2026, 3, 1, 12, 30, tzinfo=dt.UTC)


@pytest.fixture(autouse=True)
def _spark(engine: SparkEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(previews._Engine, "started", engine)


def test_each_form_between_spark_operators(job: Job, tmp_path: Path) -> None:
    pipeline = Pipeline("forms", parallelism=2)
    source = pipeline.read_text(lines(tmp_path / "in", "to be", "", "or not to be", "x"))
    words = source.flat_map(lambda record: record["value"].split(), schema="word STRING")
    long = words.filter(lambda record: len(record["word"]) > 1).select("word", "length(word) AS n")
    long.map(lambda record: (record["word"].upper(), record["n"] + 1), "word STRING, n INT").write_json(tmp_path / "a")
    tables = long.map(lambda table: table.append_column("m", pc.add(table["n"], 1)), "word STRING, n INT, m BIGINT",
                      vectorized="arrow")  # fmt: skip
    tables.filter(lambda frame: frame["word"] != "or", vectorized="pandas").write_json(tmp_path / "b")
    twice = long.flat_map(lambda table: pa.concat_tables([table, table]), "word STRING, n INT", vectorized="arrow")
    twice.key_by("word").aggregate(k=count()).write_json(tmp_path / "c")
    finished(job, pipeline)
    words_of = ["to", "be", "or", "not", "to", "be"]
    assert written_rows(tmp_path / "a") == [{"word": word.upper(), "n": len(word) + 1} for word in words_of]
    assert written_rows(tmp_path / "b") == [
        {"word": word, "n": len(word), "m": len(word) + 1} for word in words_of if word != "or"
    ]
    assert {row["word"]: row["k"] for row in written_rows(tmp_path / "c")} == {"to": 4, "be": 4, "or": 2, "not": 2}


NESTED_SCHEMA = (
    "s STRUCT<b: BOOLEAN, i: INT, d: DOUBLE, p: DECIMAL(10,2), s: STRING, y: BINARY, at: TIMESTAMP, day: DATE, "
    "list: ARRAY<INT>, m: MAP<STRING, BIGINT>>"
)


NESTED = {
    "b": True, "i": 1, "d": 1.5, "p": Decimal("1.25"), "s": "ä", "y": b"\x00\xff", "at": MOMENT,
    "day": dt.date(2026, 3, 1), "list": [1, None], "m": [("k", 1)],
}  # fmt: skip


@pytest.mark.parametrize("form", [None, "arrow"])
def test_values_of_every_kind_and_nulls_come_back_equal(form: Any) -> None:
    job = Pipeline("types")
    rows = job.generate(2, partitions=1)
    made = rows.map(lambda record: {"s": NESTED if record["sequence"] == 0 else None}, NESTED_SCHEMA)
    through_spark = made.select("s")
    through_spark.map(lambda given: given, NESTED_SCHEMA, vectorized=form).print().uid("out")
    through_spark.filter("s.i = 1 AND s.m['k'] = 1 AND s.at = TIMESTAMP '2026-03-01 12:30:00'").print().uid("sql")
    found = preview(job)
    assert found["out"] == [{"s": NESTED}, {"s": None}]
    assert found["sql"] == [{"s": NESTED}]


def test_event_time_and_windows_go_on_behind_a_function() -> None:
    job = Pipeline("times")
    rows = job.generate(50, partitions=1).map(lambda record: record["sequence"] * 100, "at BIGINT")
    timed = rows.event_time("at", out_of_order="1 second").map(
        lambda record: (record["at"], "k"), "at BIGINT, k STRING"
    )
    timed.key_by("k").window(tumbling("1 second"), on="at").aggregate(n=count()).print().uid("windows")
    assert [row["n"] for row in preview(job)["windows"]] == [10] * 5


def test_an_empty_batch_calls_nothing_and_a_batch_may_become_empty(job: Job, tmp_path: Path) -> None:
    pipeline = Pipeline("empty")
    source = pipeline.read_text(lines(tmp_path / "in", "a", "b"))
    none = source.filter(lambda record: False)  # noqa: ARG005
    never = none.map(lambda table: 1 // 0, "value STRING", vectorized="arrow")  # noqa: ARG005
    never.flat_map(lambda record: 1 // 0, "value STRING").write_json(tmp_path / "out")  # noqa: ARG005
    finished(job, pipeline)
    assert written_rows(tmp_path / "out") == []


def test_functions_of_one_vertex_need_no_spark_job_between_them(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs: list[int] = []
    run_plan = Plan.run
    monkeypatch.setattr(Plan, "run", lambda plan, content: (jobs.append(1), run_plan(plan, content))[1])
    pipeline = Pipeline("jobs")
    stream = pipeline.read_text(lines(tmp_path / "in", "a", "b"))
    for _ in range(3):
        stream = stream.map(lambda record: record["value"] + "x", "value STRING").filter(lambda record: True)  # noqa: ARG005
    stream.write_json(tmp_path / "out")
    finished(job, pipeline)
    assert written_rows(tmp_path / "out") == [{"value": "axxx"}, {"value": "bxxx"}]
    assert len(jobs) == 1, "the one that makes lines of the file's text"


WRONG: list[tuple[Callable[[Any], Any], str]] = [
    (
        lambda record: {"n": 1 if record["value"] != "b" else "x"},
        "the Python function returned 'x' of type str for column 'n', which is int32; the record: {\"value\":\"b\"}",
    ),
    (
        lambda record: 1 // (record["value"] != "b"),
        "the Python function raised ZeroDivisionError: integer division or modulo by zero (line ",
    ),
    (lambda record: record.value, "a record is a dict, as in record['word']; a function of a DataFrame belongs"),
]


@pytest.mark.parametrize(("function", "text"), WRONG)
def test_a_wrong_record_is_one_sentence_with_operator_and_record(
    job: Job, tmp_path: Path, function: Any, text: str
) -> None:
    pipeline = Pipeline("wrong")
    pipeline.read_text(lines(tmp_path / "in", "a", "b", "b")).map(function, "n INT").uid("counted").print()
    run = job(pipeline.graph())
    with pytest.raises(DataError) as caught:
        run.to_end()
    assert str(caught.value).startswith("operator 'map' (id 'counted'): the Python function ")
    assert text in str(caught.value)
    assert "; the record: " in str(caught.value)
    assert caught.value.operator_id == "counted"
    assert run.programs["read_text-1", 0].place().operator_id == "counted"


@pytest.mark.parametrize("form", [None, "arrow", "pandas"])
def test_failing_records_are_skipped_or_dead_letters(job: Job, tmp_path: Path, form: Any) -> None:
    def number(record: Any) -> Any:
        if form is None:
            return int(record["value"])
        return pa.array([int(value) for value in record["value"]]) if form == "arrow" else record["value"].astype(int)

    pipeline = Pipeline("spared")
    source = pipeline.read_text(lines(tmp_path / "in", *("x" if n in (0, 77, 99) else n for n in range(100))))
    numbers = source.map(number, "n BIGINT", vectorized=form, on_error=dead_letter("bad"))
    small = numbers.map(lambda record: record["n"] if record["n"] != 50 else 2**40, "n INT", on_error="skip")
    small.write_json(tmp_path / "out")
    pipeline.dead_letters("bad").write_json(tmp_path / "bad")
    run = finished(job, pipeline)
    assert [row["n"] for row in written_rows(tmp_path / "out")] == [n for n in range(100) if n not in (0, 50, 77, 99)]
    letters = written_rows(tmp_path / "bad")
    assert [letter["operator"] for letter in letters] == ["map-1"] * 3
    assert [json.loads(letter["record"]) for letter in letters] == [{"value": "x"}] * 3
    assert all(
        letter["error"].startswith("the Python function raised ValueError: invalid literal") for letter in letters
    )
    assert failed(run) == {"map-1": 3, "map-2": 1}


@pytest.mark.parametrize("form", [None, "arrow"])
def test_an_outage_is_no_records_fault(job: Job, tmp_path: Path, form: Any) -> None:
    def away(record: Any) -> Any:  # noqa: ARG001
        raise ConnectionError("away")

    pipeline = Pipeline("outage")
    source = pipeline.read_text(lines(tmp_path / "in", "a"))
    source.map(away, "n INT", vectorized=form, on_error="skip").print()
    with pytest.raises(UserCodeFailed, match="raised ConnectionError: away") as caught:
        job(pipeline.graph()).to_end()
    assert caught.value.is_environmental


class Noted:
    """Writes down when it is opened and closed, and with which records it was called."""

    def __init__(self, notes: Path, fails_at: str = "") -> None:
        self.notes, self.fails_at = notes, fails_at
        self.seen = 0

    def note(self, text: str) -> None:
        with self.notes.open("a") as file:
            file.write(f"{text}\n")

    def open(self, context: Any) -> None:
        self.about = f"{context.attempt}/{context.subtask}/{context.parallelism}/{context.operator_id}"
        self.note(f"open {self.about}")
        if self.fails_at == "open":
            raise ConnectionError("no database")

    def __call__(self, record: dict[str, Any]) -> Any:
        self.seen += 1
        if record["value"] == self.fails_at:
            raise ValueError(self.fails_at)
        return {"value": record["value"], "seen": self.seen}

    def close(self) -> None:
        self.note(f"close {self.about} after {self.seen}")
        raise RuntimeError("an error in close() is only logged")


def noted(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def test_an_object_lives_as_long_as_its_subtask(job: Job, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    pipeline = Pipeline("objects")
    source = pipeline.read_text(lines(tmp_path / "in", *"abcdefgh"))
    source.map(Noted(notes), "value STRING, seen INT").uid("noted").write_json(tmp_path / "out")
    run = job(pipeline.graph())
    run.fix_batch_size("read_text-1", 4)  # two lines
    assert noted(notes) == ["open 1/0/1/noted"]
    while run.batch("read_text-1"):
        pass
    run.checkpoint(1)
    run.close()
    run.close()
    assert noted(notes) == ["open 1/0/1/noted", "close 1/0/1/noted after 8"]
    assert [row["seen"] for row in written_rows(tmp_path / "out")] == list(range(1, 9))


def test_it_is_closed_after_a_failure_and_opened_again_by_the_next_attempt(job: Job, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    pipeline = Pipeline("objects")
    source = pipeline.read_text(lines(tmp_path / "in", *"abcd"))
    source.map(Noted(notes, fails_at="c"), "value STRING, seen INT").uid("noted").write_json(tmp_path / "out")
    run = job(pipeline.graph())
    for attempt in (1, 2):
        with pytest.raises(DataError, match="raised ValueError: c"):
            run.to_end()
        run.close()
        assert noted(notes)[2 * attempt - 2 :] == [f"open {attempt}/0/1/noted", f"close {attempt}/0/1/noted after 3"]
        run.start()


def test_an_object_that_cannot_be_opened_fails_the_attempt_and_the_others_are_closed(job: Job, tmp_path: Path) -> None:
    notes, other = tmp_path / "notes", tmp_path / "other"
    pipeline = Pipeline("objects")
    first = pipeline.read_text(lines(tmp_path / "in", "a")).map(Noted(notes), "value STRING, seen INT")
    first.map(Noted(other, fails_at="open"), "value STRING, seen INT").print()
    run = job(pipeline.graph(), start=False)
    with pytest.raises(UserCodeFailed, match=r"open\(\) of the Python function raised ConnectionError: no database"):
        run.start()
    run.close()
    assert [len(noted(notes)), len(noted(other))] == [2, 2], "what open() has begun, close() can end"


def test_a_warm_up_opens_nothing(engine: SparkEngine, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    pipeline = Pipeline("warm")
    source = pipeline.read_text(lines(tmp_path / "in", "a"))
    source.map(Noted(notes), "value STRING, seen INT").key_by("value").aggregate(n=count()).print()
    where = SubtaskId(AttemptId("job", "warm", 0), "read_text-1", 0)
    program = engine.build(ProgramContext(where, pipeline.graph(), str(tmp_path), is_warmup=True))
    program.open()
    program.warm_up()
    program.close()
    assert noted(notes) == []


@pytest.mark.parametrize("choice", ["fail", "skip"])
def test_a_function_without_end_is_ended_and_its_object_closed(job: Job, tmp_path: Path, choice: Any) -> None:
    notes = tmp_path / "notes"

    class Endless(Noted):
        def __call__(self, record: dict[str, Any]) -> Any:
            self.note("called")
            while record:
                pass

    pipeline = Pipeline("endless")
    source = pipeline.read_text(lines(tmp_path / "in", "a", "b"))
    source.map(Endless(notes), "value STRING", on_error=choice).print()
    run = job(pipeline.graph())
    program = run.programs["read_text-1", 0]
    failures: list[BaseException] = []

    def work() -> None:
        try:
            program.poll()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=work, name="subtask", daemon=True)
    thread.start()
    pause = threading.Event()
    for _ in range(600):
        if "called" in noted(notes):
            break
        pause.wait(0.1)
    assert "operator 'map'" in program.at_work().what
    for _ in range(300):
        program.cancel()
        thread.join(0.1)
        if not thread.is_alive():
            break
    assert [type(failure) for failure in failures] == [Canceled]
    program.close()
    assert [note.split()[0] for note in noted(notes)] == ["open", "called", "close"]


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ("n INTT", "its schema 'n INTT' is wrong"),
        ("v VARIANT", "VARIANT"),
        ("__hash BIGINT", "the column name '__hash' is reserved"),
    ],
)
def test_a_schema_that_is_wrong_is_refused_at_the_start(job: Job, tmp_path: Path, schema: str, text: str) -> None:
    pipeline = Pipeline("schema")
    pipeline.read_text(lines(tmp_path / "in", "a")).map(lambda record: record, schema).print()
    with pytest.raises(UserError, match=r"operator 'map'.*its schema") as caught:
        job(pipeline.graph())
    assert text.lower() in str(caught.value).lower()


def test_text_that_is_not_utf8_is_refused(job: Job, tmp_path: Path) -> None:
    def broken(table: pa.Table) -> pa.Array:
        offsets = pa.py_buffer(b"".join(n.to_bytes(4, "little") for n in range(table.num_rows + 1)))
        return pa.Array.from_buffers(pa.string(), table.num_rows, [None, offsets, pa.py_buffer(b"\xff" * 9)])

    pipeline = Pipeline("utf8")
    pipeline.read_text(lines(tmp_path / "in", "a")).map(broken, "value STRING", vectorized="arrow").print()
    with pytest.raises(DataError, match="column 'value' has text that is not UTF-8"):
        job(pipeline.graph()).to_end()
