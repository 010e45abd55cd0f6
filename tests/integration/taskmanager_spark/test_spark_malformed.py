"""Lines of CSV and JSON that are no records: they fail the job with the source's name, are dropped, or are kept."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lockgate_proto.messages import Edge, FileFormat, FileSource, Partitioning
from lockgate_taskmanager.spark.engine import SparkEngine
from lockgate_taskmanager.spark.framing import csv_options
from lockgate_taskmanager.spark.leaf import Form, LeafSpec, SlotLeaf, TableLeaf
from lockgate_taskmanager.spark.malformed import Malformed
from lockgate_taskmanager.spark.plan import Plan
from lockgate_taskmanager.task.program import DataError, UserError

from tests.integration.taskmanager_spark.graphs import graph, sql, vertex

pytestmark = pytest.mark.integration

LINES = {
    Form.CSV: [b"1,x\n", b"zwei,y\n", b"3,z\n", b"4,z,too many\n"],
    Form.JSON: [b'{"a":1,"s":"x"}\n', b'{"a":"zwei","s":"y"}\n', b'{"a":3,"s":"z"}\n', b'{"a":4,"s":\n'],
}
TEXTS = {form: [line.decode().rstrip() for line in lines] for form, lines in LINES.items()}
KEPT = "a INT, s STRING, _corrupt_record STRING"


@pytest.fixture(params=["slot", "table"])
def plan(request: pytest.FixtureRequest, engine: SparkEngine, tmp_path: Path) -> Callable[..., Plan]:
    session = engine._session.newSession()

    def make(form: Form, ddl: str, *columns: str, **options: str) -> Plan:
        spec = LeafSpec(form, ddl=ddl, options=tuple(sorted(options.items())))
        leaf = (
            SlotLeaf(session, spec, str(tmp_path / "0.slot")) if request.param == "slot" else TableLeaf(session, spec)
        )
        return Plan(leaf, lambda frame: frame.selectExpr(*columns or ("*",)), "operator 'o'")

    return make


@pytest.mark.parametrize("form", LINES)
def test_a_line_that_is_not_a_record_fails_by_default(plan: Callable[..., Plan], form: Form) -> None:
    made = plan(form, "a INT, s STRING")
    assert made.run([LINES[form][0], LINES[form][2]]).to_pylist() == [{"a": 1, "s": "x"}, {"a": 3, "s": "z"}]
    for number in (1, 3):
        with pytest.raises(DataError, match="a line does not match the source's schema") as caught:
            made.run(LINES[form][: number + 1][-1:])
        assert repr(TEXTS[form][number]) in str(caught.value)
    assert made.run([LINES[form][0]]).num_rows == 1


def test_with_pruned_columns_the_number_of_fields_is_not_checked(engine: SparkEngine, tmp_path: Path) -> None:
    line = b"4,z,5,too many\n"
    for pruned in ("true", "false"):
        options = tuple(sorted(csv_options({"columnPruning": pruned} if pruned == "true" else {}).items()))
        spec = LeafSpec(Form.CSV, ddl="a INT, s STRING, b INT", options=options)
        leaf = SlotLeaf(engine._session.newSession(), spec, str(tmp_path / pruned))
        made = Plan(leaf, lambda frame: frame.select("a"), "operator 'o'")
        if pruned == "true":
            assert made.run([line]).to_pylist() == [{"a": 4}]
        else:
            with pytest.raises(DataError, match="does not match the source's schema"):
                made.run([line])


@pytest.mark.parametrize("form", LINES)
def test_such_lines_can_be_dropped_and_are_counted(plan: Callable[..., Plan], form: Form) -> None:
    made = plan(form, "a INT, s STRING", mode="DROPMALFORMED")
    for _ in range(2):
        assert made.run(LINES[form]).to_pylist() == [{"a": 1, "s": "x"}, {"a": 3, "s": "z"}]
        assert made.malformed == 2
    made.run([LINES[form][0]])
    assert made.malformed == 0


@pytest.mark.parametrize("form", LINES)
def test_such_lines_can_be_kept_as_text_and_are_counted(plan: Callable[..., Plan], form: Form) -> None:
    made = plan(form, KEPT, mode="permissive")
    found = [row["_corrupt_record"] for row in made.run(LINES[form]).to_pylist()]
    assert found == [None, TEXTS[form][1], None, TEXTS[form][3]]
    assert made.malformed == 2


@pytest.mark.parametrize("mode", ["FAILFAST", "DROPMALFORMED", "PERMISSIVE"])
@pytest.mark.parametrize("form", LINES)
def test_a_pipeline_may_use_no_column_at_all(plan: Callable[..., Plan], form: Form, mode: str) -> None:
    made = plan(form, "a INT, s STRING", "1 AS one", mode=mode)
    assert made.run([LINES[form][0]] * 2).to_pylist() == [{"one": 1}] * 2


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(UserError, match="mode is MAYBE; it must be one of FAILFAST, DROPMALFORMED, PERMISSIVE"):
        Malformed({"MODE": "MAYBE"})


def _graph(path: Path, **options: str) -> Any:
    source = FileSource(path=str(path), format=FileFormat.CSV, schema="a INT, s STRING", options=options)
    reads = vertex("v", source, sql("SELECT a + 1 AS b FROM input"))
    return graph(reads, vertex("w", sql("SELECT * FROM input")), edges=(Edge("v", "w", Partitioning.REBALANCE),))


def test_the_source_is_blamed_and_not_the_operator_behind_it(job: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "x.csv").write_bytes(b"".join(LINES[Form.CSV]))
    run = job(_graph(tmp_path / "in"))
    with pytest.raises(DataError, match=r"^operator 'v0': a line does not match the source's schema: 'zwei,y'"):
        run.to_end()


def test_dropped_lines_are_in_the_counters_and_survive_a_restart(job: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "x.csv").write_bytes(b"".join(LINES[Form.CSV]) * 3)
    run = job(_graph(tmp_path / "in", mode="DROPMALFORMED"))
    run.fix_batch_size("v", len(b"".join(LINES[Form.CSV])))
    assert run.batch("v")
    states = run.checkpoint(1)
    run.close()
    run.start(states, 1)
    run.to_end()
    counters = {counter.operator_id: counter for counter in run.programs["v", 0].counters()}
    assert counters["v0"].records_malformed == 6
    assert counters["v0"].records_in == 12
    assert [row["b"] for row in run.rows("w")] == [2, 4] * 2
