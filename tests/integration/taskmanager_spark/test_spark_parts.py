"""Aggregates are computed in parts and added up: what cannot be is refused before a record is read, in words."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from lockgate_proto.messages import (
    AggregateFunction,
    Edge,
    FileFormat,
    FileSource,
    JobGraph,
    Partitioning,
    TumblingWindow,
    Window,
)
from lockgate_taskmanager.task.program import DataError, UserError

from .graphs import HASH, aggregate, graph, sql, vertex

pytestmark = pytest.mark.integration

Job = Callable[..., Any]
COUNT, SUM, MIN, MAX, AVG = (AggregateFunction[name] for name in ("COUNT", "SUM", "MIN", "MAX", "AVG"))


def totals(folder: Path, window: Window | None = None, **outputs: tuple[AggregateFunction, str]) -> JobGraph:
    """Aggregates of `outputs` by k, over three records."""
    lines = [{"k": "a", "n": n, "at": 1000 * n} for n in (1, 2, 2)]
    (folder / "in").mkdir()
    (folder / "in" / "rows.json").write_text("".join(json.dumps(line) + "\n" for line in lines))
    source = FileSource(str(folder / "in"), FileFormat.JSON_LINES, schema="k STRING, n BIGINT, at BIGINT")
    kind = aggregate(("k",), **outputs)
    kind = type(kind)(kind.keys, kind.aggregates, window)
    return graph(
        vertex("source", source, sql("SELECT * FROM input")),
        vertex("totals", kind),
        vertex("end", sql("SELECT * FROM input")),
        edges=(Edge("source", "totals", HASH, ("k",)), Edge("totals", "end", HASH, ("k",))),
    )


@pytest.mark.parametrize(
    "text",
    [
        "DISTINCT n",
        "distinct (n)",
        "DISTINCT n % 5",
        "ALL n",
        "n) + count(DISTINCT n",
        "n), max(n",
        "n, k",
        "n AS m",
        "(SELECT max(n) FROM input)",
        "CASE WHEN EXISTS (SELECT 1 FROM input) THEN 1 END",
        "n IN (SELECT n FROM input)",
        "max(n)",
        "row_number() OVER (ORDER BY n)",
        "explode(array(n, n))",
        "rand()",
        "n +* 2",
        "nowhere",
    ],
)
def test_an_aggregate_that_cannot_be_added_up_is_refused(job: Job, tmp_path: Path, text: str) -> None:
    function = SUM if "(" in text else COUNT
    with pytest.raises(UserError, match="operator 'totals0': aggregate 'x' of ") as refused:
        job(totals(tmp_path, y=(COUNT, ""), x=(function, text)))
    assert "\n" not in str(refused.value)


def test_in_windows_as_well(job: Job, tmp_path: Path) -> None:
    window = Window(TumblingWindow(1000), "at")
    with pytest.raises(UserError, match=r"aggregate 'x' of 'DISTINCT n': .* deduplicate"):
        job(totals(tmp_path, window, x=(COUNT, "DISTINCT n")))


@pytest.mark.parametrize(
    ("function", "text", "result"),
    [
        (COUNT, "n", 3),
        (COUNT, "nullif(n, 2)", 1),
        (SUM, "n * 2", 10),
        (SUM, "CASE WHEN n > 1 THEN n END", 4),
        (MAX, "named_struct('a', n).a", 2),
        (MIN, "n -- the number", 1),
        (AVG, "CAST(n AS DECIMAL(5, 2)) + 1", 8 / 3),
        (MAX, "if(k = 'DISTINCT n', 0, n)", 2),
    ],
)
def test_expressions_of_one_record_match_spark(
    job: Job, tmp_path: Path, function: AggregateFunction, text: str, result: Any
) -> None:
    run = job(totals(tmp_path, x=(function, text)))
    run.to_end()
    assert run.rows("end")[-1] == {"k": "a", "x": pytest.approx(result)}


@pytest.mark.parametrize("edges", [1, 2], ids=["in the job before", "in a job of its own"])
@pytest.mark.parametrize(
    ("text", "problem"), [("n + 9223372036854775000", "overflow"), ("CAST(k AS INT)", "cannot be cast|malformed")]
)
def test_operators_that_fail_on_records_are_named(
    job: Job, tmp_path: Path, edges: int, text: str, problem: str
) -> None:
    made = totals(tmp_path, m=(MAX, "n"), small=(SUM, "n"), big=(SUM, text))
    if edges == 2:
        more = vertex("more", sql("SELECT * FROM input"))
        made = replace(
            made,
            vertices=(*made.vertices, more),
            edges=(*made.edges, Edge("source", "more", Partitioning.REBALANCE)),
        )
    run = job(made)
    with pytest.raises(
        DataError, match=rf"operator 'totals0': aggregate 'big' \(sum of '.*'\): .*({problem})"
    ) as failed:
        run.to_end()
    assert failed.value.operator_id == "totals0"
    assert "\n" not in str(failed.value)


def test_a_sum_that_overflows_in_state_names_itself(job: Job, tmp_path: Path) -> None:
    run = job(totals(tmp_path, small=(SUM, "n"), big=(SUM, "n * 3074457345618258603")))
    run.fix_batch_size("source", 10)
    with pytest.raises(DataError, match=r"operator 'totals0': aggregate 'big'.*64-bit"):
        run.to_end()
