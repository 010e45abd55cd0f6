"""SQL of jobs without the role code, in Spark: it reads no files and no environment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from lockgate_coordinator.graph.code import brings_code
from lockgate_proto.messages import Edge, JobGraph, Partitioning
from lockgate_taskmanager.spark.engine import SparkEngine
from lockgate_taskmanager.task.program import UserError

from tests.integration.taskmanager_spark.conftest import Run
from tests.integration.taskmanager_spark.graphs import graph, sql, text, vertex

pytestmark = pytest.mark.integration

_SUSPECT = ("avro", "file", "http", "java", "kafka", "log", "path", "proto", "python", "read", "reflect", "url", "xml")
HARMLESS = {
    *("current_catalog", "current_path", "input_file_block_length", "input_file_block_start", "input_file_name"),
    *("log", "log10", "log1p", "log2", "parse_url", "try_parse_url", "try_url_decode", "url_decode", "url_encode"),
    *("xpath", "xpath_boolean", "xpath_double", "xpath_float", "xpath_int", "xpath_long", "xpath_number"),
    *("xpath_short", "xpath_string"),
}
"""xpath resolves no external entities and loads no DTD, see below."""


EDGES = (Edge("source", "next", Partitioning.REBALANCE),)
NEXT = vertex("next", sql("SELECT * FROM input"))


def of(query: str, folder: Path) -> JobGraph:
    return graph(
        vertex("source", text(folder / "in.txt"), sql(query)),
        NEXT,
        edges=EDGES,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in.txt").write_text("a\n")
    (tmp_path / "secret").write_text("of the secret file\n")
    return tmp_path


def rows(run: Run) -> str:
    run.to_end()
    return str(run.rows("next"))


@pytest.mark.parametrize(
    "query",
    ["SELECT * FROM text.`{}/secret`", "SELECT (SELECT max(value) FROM text.`{}/secret`) AS value FROM input"],
)
def test_sql_does_not_read_files(job: Callable[..., Run], folder: Path, query: str) -> None:
    found = of(query.format(folder), folder)
    assert "may read files from SQL" in brings_code(found)
    assert "of the secret file" in rows(job(found))
    with pytest.raises(UserError, match="secret"):
        job(replace(found, confined=True))


def test_sql_does_not_see_the_environment(job: Callable[..., Run], folder: Path, engine: SparkEngine) -> None:
    if engine._server is not None:
        pytest.skip("the environment is that of Connect's server")
    found = of("SELECT '${env:PATH}' AS value FROM input", folder)
    assert "names a variable in SQL" in brings_code(found)
    assert "/bin" in rows(job(found))
    assert "${env:PATH}" in rows(job(replace(found, confined=True)))


def test_xml_entities_are_not_resolved(job: Callable[..., Run], folder: Path) -> None:
    document = f'<!DOCTYPE a [<!ENTITY x SYSTEM "file://{folder}/secret">]><a>&x;</a>'
    found = of(f"SELECT xpath_string('{document}', 'a') AS value FROM input", folder)
    assert brings_code(found) == ""
    assert "of the secret file" not in rows(job(replace(found, confined=True)))


def test_the_source_of_a_confined_job_is_checked(job: Callable[..., Run], folder: Path, engine: SparkEngine) -> None:
    assert engine._limits.places is not None
    engine._limits.places.add(str(folder / "secret"))
    found = graph(vertex("source", text(folder / "secret")), NEXT, edges=EDGES)
    assert "of the secret file" in rows(job(found))
    with pytest.raises(UserError, match="needs the role code"):
        job(replace(found, confined=True))
    with pytest.raises(UserError, match="needs the role code"):
        engine.discover(replace(found, confined=True), "source", ())


def test_every_function_that_could_reach_further_is_known(engine: SparkEngine) -> None:
    """A new version of Spark may have others: look at each, and add it to HARMLESS or to the leader's list."""
    names = {row[0] for row in engine._session.sql("SHOW FUNCTIONS").collect()}
    suspects = {name for name in names if any(word in name for word in _SUSPECT)} - HARMLESS
    assert "reflect" in suspects
    free = {name for name in suspects if not brings_code(graph(vertex("v", sql(f"SELECT {name}(value) FROM input"))))}
    assert free == set()
