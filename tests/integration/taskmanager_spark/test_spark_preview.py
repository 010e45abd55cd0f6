"""A pipeline on a sample, in one process: `lockgate run` and `lockgate.testing.preview`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from lockgate_taskmanager.spark.engine import SparkEngine

from lockgate import Job, count, dead_letter, sum_, tumbling
from lockgate.cli import run
from lockgate.preview import preview as previews
from lockgate.preview.preview import PreviewFailed
from lockgate.testing import preview

pytestmark = [pytest.mark.integration, pytest.mark.spark]


@pytest.fixture(autouse=True)
def _spark(engine: SparkEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(previews._Engine, "started", engine)


def test_keyed_counts_come_out_and_nothing_is_written(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("to be or not\nto be\n")
    job = Job("words", parallelism=2)
    words = job.read_text(tmp_path / "in.txt").sql("SELECT explode(split(value, ' ')) AS word FROM input")
    counts = words.key_by("word").aggregate(n=count())
    counts.write_sql(f"sqlite:///{tmp_path}/t.db", "t").uid("table")
    words.write_parquet(tmp_path / "out").uid("files")
    found = preview(job)
    newest = {row["word"]: row["n"] for row in found["table"]}
    assert newest == {"to": 2, "be": 2, "or": 1, "not": 1}
    assert len(found["files"]) == 6
    assert [path.name for path in tmp_path.iterdir()] == ["in.txt"]


def test_windows_fire_at_the_end_of_the_sample_and_dead_letters_come_out() -> None:
    job = Job("windows", parallelism=2)
    rows = job.generate(rate=1000, partitions=2).select(
        "sequence",
        "timestamp_millis(sequence * 100) AS at",
        "IF(sequence = 3, CAST('x' AS INT), 0) AS bad",
        on_error=dead_letter("bad"),
    )
    timed = rows.event_time("at", out_of_order="1 second")
    timed.key_by("bad").window(tumbling("1 second")).aggregate(n=count()).print().uid("windows")
    job.dead_letters("bad").print().uid("letters")
    found = preview(job, rows=50)
    assert sum(row["n"] for row in found["windows"]) == 48
    assert len(found["letters"]) == 2


def test_windows_with_a_trigger_show_early_and_final_results() -> None:
    job = Job("early")
    rows = job.generate(rate=1000, partitions=1).select("sequence", "sequence % 2 AS k")
    timed = rows.event_time("sequence", out_of_order=0)
    windows = timed.key_by("k").window(tumbling("1 hour")).trigger(every_count=1, every="1 hour")
    windows.aggregate(total=sum_("sequence")).print().uid("totals")
    found = preview(job, rows=10)["totals"]
    assert list(found[0]) == ["k", "window_start", "window_end", "is_early", "total"]
    assert [row["total"] for row in found if row["k"] == 1 and not row["is_early"]] == [1 + 3 + 5 + 7 + 9]
    assert {row["k"] for row in found if row["is_early"]} == {0, 1}


def test_count_windows_are_emitted_when_they_are_complete() -> None:
    job = Job("counts")
    rows = job.generate(rate=1000, partitions=1).select("sequence", "sequence % 2 AS k").key_by("k")
    rows.count_window(3).aggregate(total=sum_("sequence")).print().uid("aggregated")
    called = rows.count_window(4, every=3).process(
        lambda *given: (len(given[2]), given[1].start), schema="n INT, s INT"
    )
    called.print().uid("called")
    found = preview(job, rows=10)
    (first, *_) = [row for row in found["aggregated"] if row["k"] == 1]
    assert first == {"k": 1, "window_start": 0, "window_end": 3, "total": 1 + 3 + 5}
    assert {(row["n"], row["s"]) for row in found["called"]} >= {(3, 0)}


def test_a_failure_has_the_text_of_a_cluster_and_the_authors_traceback() -> None:
    job = Job("fails")
    job.generate(10).transform(lambda df: df.nope).print()
    with pytest.raises(PreviewFailed, match="operator 'transform'") as caught:
        preview(job)
    assert "df.nope" in caught.value.traceback


def test_a_function_that_exits_does_not_end_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "job.py").write_text(
        "import sys\nfrom lockgate import Job\njob = Job('exits')\n"
        "rows = job.generate(5, rate=100, partitions=1)\n"
        "rows.filter(lambda record: record['sequence'] < 3 or sys.exit(0)).print()\njob.submit()\n"
    )
    assert run(["run", str(tmp_path / "job.py")]) == 1
    error = capsys.readouterr().err
    assert "the Python function raised SystemExit: 0 (line 5 of job.py)" in error
    assert '; the record: {"partition":0,"sequence":3}' in error


def test_the_command_prints_what_each_sink_gets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "p.py"
    file.write_text(
        "import sys\nfrom lockgate import Job\njob = Job('p', key='k')\n"
        "job.generate(rate=5, partitions=1).select(f'sequence + {sys.argv[1]} AS n', 'CAST(NULL AS INT) AS empty')\\\n"
        ".print()\njob.submit()\n"
    )
    assert run(["run", str(file), "--rows", "2", "--", "40"]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines() == ["", "print (id 'print-1'): 2 rows", "n   empty", "40  NULL", "41  NULL"]
    assert "preview of k on 2 rows" in err
    file.write_text("from lockgate import Job\njob = Job('p')\njob.generate(5).select('nope').print()\njob.submit()\n")
    assert run(["run", str(file)]) == 1
    assert "unknown column 'nope'" in capsys.readouterr().err


def test_a_lookup_join_as_documented_sees_the_table_of_its_batch(tmp_path: Path) -> None:
    customers = pa.table({"customer_id": [1, 2], "name": ["ann", "bob"]})
    pq.write_table(customers, tmp_path / "customers.parquet")
    table = str(tmp_path / "customers.parquet")
    (tmp_path / "orders.json").write_text('{"customer_id": 2}\n{"customer_id": 3}\n')

    def with_names(orders: Any) -> Any:
        return orders.join(orders.sparkSession.read.parquet(table), "customer_id", "left")

    job = Job("lookup")
    rows = job.read_json(tmp_path / "orders.json", schema="customer_id BIGINT").transform(with_names)
    rows.print().uid("named")
    found = preview(job)["named"]
    assert sorted((row["customer_id"], row["name"]) for row in found) == [(2, "bob"), (3, None)]
