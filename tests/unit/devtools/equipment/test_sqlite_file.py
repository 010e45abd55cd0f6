"""The job writes to the file that drill and demo read, whatever the name of its folder contains."""

from __future__ import annotations

from pathlib import Path

import pytest
from lockgate_devtools.demo import wordcount
from lockgate_devtools.drill.oracle import Total
from lockgate_devtools.drill.pipeline import DrillPipeline
from lockgate_proto.messages import JobGraph, SqlSink
from lockgate_taskmanager.runtime.warmup_jobs import _sample
from lockgate_taskmanager.spark.sinks.database import Database

from lockgate import Job, count

NAMES = ("a#b", "a%20b", "a?b", "a?mode=ro&c", "${HOME}", "x:y@z", "ü 1", "a%b#c?d")


@pytest.fixture(params=NAMES)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    found = tmp_path / request.param
    found.mkdir()
    return found


def write(graph: JobGraph, *statements: str) -> None:
    """By the URL of the sink in the graph, as a task manager opens it."""
    (url,) = (
        operator.kind.url
        for vertex in graph.vertices
        for operator in vertex.operators
        if isinstance(operator.kind, SqlSink)
    )
    database = Database(url, "the sink")
    with database.transaction() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)
    database.close()


def test_a_drill_reads_what_its_job_has_written(folder: Path, tmp_path: Path) -> None:
    pipeline = DrillPipeline(folder, 1, 3, 1.0, 1, 1000)
    write(
        pipeline.graph(),
        'CREATE TABLE totals ("partition" INT, rows_seen INT, total INT, last INT)',
        "INSERT INTO totals VALUES (0, 3, 3, 2)",
    )
    assert pipeline.read_totals() == {0: Total(3, 3, 2)}
    assert [*tmp_path.rglob("*")] == [folder, pipeline.totals], "nothing is written elsewhere"


def test_the_demo_reads_what_its_job_has_written(folder: Path, tmp_path: Path) -> None:
    file = folder / "words.db"
    write(
        wordcount.graph(folder, file, 500),
        "CREATE TABLE words (word TEXT, n INT)",
        "INSERT INTO words VALUES ('a', 2)",
    )
    assert wordcount.read_counts(file) == {"a": 2}
    assert [*tmp_path.rglob("*")] == [folder, file]


def test_warming_up_stays_in_its_folder(folder: Path, tmp_path: Path) -> None:
    write(_sample(folder), "CREATE TABLE totals (n INT)")
    assert [*tmp_path.rglob("*")] == [folder, folder / "totals.db"]


def test_a_relative_file_of_a_pipeline_is_in_the_present_folder(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if folder.name.startswith("$"):
        pytest.skip("in a URL of an author's it stands for a variable of the task manager")
    monkeypatch.chdir(folder)
    job = Job("j")
    job.read_text("in").key_by("value").aggregate(n=count()).write_sql("sqlite:///t%20u.db", "t", key="value")
    write(job.graph(), "CREATE TABLE t (n INT)")
    assert [*tmp_path.rglob("*")] == [folder, folder / "t u.db"], "the name is a part of a URL, the folder is not"
