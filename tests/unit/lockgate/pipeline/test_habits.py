"""Hints for methods and keywords of PySpark and Flink."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from lockgate import Job, PipelineError
from lockgate.pipeline.habits import INSTEAD, keyword_problem


def rows() -> Any:
    return Job("j").generate(10)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("groupBy", 'a Stream has no groupBy(); use key_by("word").aggregate(n=count())'),
        ("withColumn", "use select("),
        ("orderBy", "orderBy(); a stream has no end to sort"),
        ("xyzzy", "docs/pipeline-authors.md lists what there is"),
        ("write_parqet", "did you mean write_parquet()?"),
    ],
)
def test_a_method_that_there_is_not_names_the_one_that_does_it(name: str, hint: str) -> None:
    with pytest.raises(PipelineError) as caught:
        getattr(rows(), name)
    assert hint in str(caught.value)
    assert "test_habits.py:" in str(caught.value), "the author's line"


def test_jobs_and_keyed_streams_hint_as_well() -> None:
    job: Any = Job("j")
    with pytest.raises(PipelineError, match="a Job has no readStream"):
        job.readStream  # noqa: B018
    with pytest.raises(PipelineError, match="a KeyedStream has no agg"):
        rows().key_by("partition").agg  # noqa: B018


def test_no_hint_is_for_a_method_that_there_is_and_protocols_are_not_disturbed() -> None:
    assert not [name for name in INSTEAD if name in dir(type(rows()))]
    assert not hasattr(rows(), "__arrow_c_stream__")
    assert not hasattr(rows(), "groupBy")
    assert copy.copy(rows()) is not None


def test_an_unknown_keyword_names_those_that_there_are() -> None:
    with pytest.raises(TypeError) as caught:
        rows().write_parquet("/out", partitionBy="day")
    problem = keyword_problem(caught.value)
    assert problem.startswith("write_parquet() has no argument partitionBy; it takes path, shared. Files are not")
    made: Any = Job
    with pytest.raises(TypeError) as wrong:
        made("j", checkpointLocation="/c")
    assert keyword_problem(wrong.value).startswith("Job() has no argument checkpointLocation; it takes name, ")
    assert keyword_problem(TypeError("Other.f() got an unexpected keyword argument 'x'")) == ""
    assert keyword_problem(TypeError("unsupported operand")) == ""
