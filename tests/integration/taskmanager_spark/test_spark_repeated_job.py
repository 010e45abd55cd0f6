"""A plan's later executions start no SQL execution, and otherwise work as the first one does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lockgate_taskmanager.spark.engine import SparkEngine
from lockgate_taskmanager.spark.leaf import DataFrame, Form, LeafSpec, SlotLeaf
from lockgate_taskmanager.spark.plan import Plan
from lockgate_taskmanager.task.program import DataError, UserCodeFailed

pytestmark = [pytest.mark.integration, pytest.mark.first]

SETTING = "spark.sql.session.timeZone"
MakePlan = Callable[[Callable[[DataFrame], DataFrame]], Plan]


@pytest.fixture
def session(engine: SparkEngine) -> Any:
    return engine._session.newSession()


@pytest.fixture
def plan(session: Any, tmp_path: Path) -> Iterator[MakePlan]:
    made: list[Plan] = []

    def make(build: Callable[[DataFrame], DataFrame]) -> Plan:
        path = str(tmp_path / f"{len(made)}.slot")
        made.append(Plan(SlotLeaf(session, LeafSpec(Form.TEXT), path), build, "operator 'o'"))
        return made[-1]

    yield make
    for item in made:
        item.close()
    assert not list(tmp_path.iterdir())


def _newest_execution(session: Any) -> int:
    """Its id: Spark keeps the last 20 alone, so that their number says nothing."""
    session.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    kept = session._jsparkSession.sharedState().statusStore().executionsList()
    return int(kept.last().executionId()) if kept.nonEmpty() else -1


def test_only_the_first_one_is_an_sql_execution(plan: MakePlan, session: Any) -> None:
    made = plan(lambda frame: frame.selectExpr("upper(value) AS v"))
    before = _newest_execution(session)
    assert made.run([b"a\n"]).to_pylist() == [{"v": "A"}]
    assert _newest_execution(session) == before + 1
    for text in ("b", "c"):
        assert made.run([f"{text}\n".encode()]).to_pylist() == [{"v": text.upper()}]
    assert _newest_execution(session) == before + 1


def test_several_record_batches_keep_their_order(plan: MakePlan) -> None:
    made = plan(lambda frame: frame.selectExpr("CAST(value AS BIGINT) AS n"))
    made.run([b"1\n"])
    rows = 300_000
    found = made.run([b"".join(b"%d\n" % number for number in range(rows))])
    assert found.column("n").num_chunks > 1
    assert found.column("n").to_pylist() == list(range(rows))
    assert made.run([b"7\n"]).to_pylist() == [{"n": 7}], "what a larger batch has left is not read"


def test_tasks_have_the_settings_of_their_own_session(plan: MakePlan, engine: SparkEngine, tmp_path: Path) -> None:
    def reads(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        for batch in batches:
            value = TaskContext.get().getLocalProperty(SETTING)  # type: ignore[union-attr]
            yield pa.record_batch({"zone": [value] * batch.num_rows})

    other = engine._session.newSession()
    other.conf.set(SETTING, "Asia/Kolkata")
    spec, build = LeafSpec(Form.TEXT), lambda frame: frame.mapInArrow(reads, "zone STRING")
    made, elsewhere = plan(build), Plan(SlotLeaf(other, spec, str(tmp_path / "x")), build, "operator 'o'")
    for _ in range(3):
        assert made.run([b"a\n"]).to_pylist() == [{"zone": "UTC"}]
        assert elsewhere.run([b"a\n"]).to_pylist() == [{"zone": "Asia/Kolkata"}]
    elsewhere.close()


@pytest.mark.parametrize("earlier", [0, 1, 2])
def test_errors_are_the_same_sentence_in_every_execution(plan: MakePlan, earlier: int) -> None:
    made = plan(lambda frame: frame.selectExpr("CAST(value AS INT) AS n"))
    for _ in range(earlier):
        made.run([b"1\n"])
    with pytest.raises(DataError) as caught:
        made.run([b"x\n"])
    assert caught.value.text.startswith('The value \'x\' of the type "STRING" cannot be cast to "INT"')
    assert made.run([b"2\n"]).to_pylist() == [{"n": 2}], "the next batch is not affected"


@pytest.mark.parametrize("earlier", [0, 2])
def test_so_are_those_of_functions(plan: MakePlan, earlier: int) -> None:
    def fails(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if "x" in batch.column("value").to_pylist():
                raise OSError("the model is away")
            yield batch

    made = plan(lambda frame: frame.mapInArrow(fails, "value STRING"))
    for _ in range(earlier):
        made.run([b"a\n"])
    with pytest.raises(UserCodeFailed, match=r"operator 'o': .*OSError: the model is away"):
        made.run([b"x\n"])
