"""`map`, `flat_map` and `filter` with functions: what operator they become, and the errors their author gets."""

# ruff: noqa: ARG005  (functions that are never called)

from __future__ import annotations

import pickle
import re
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from lockgate_proto.messages import RecordCall, RecordForm, RecordFunction, SqlTransform

from lockgate import Job, PipelineError
from lockgate.pipeline.stream import Stream

pytestmark = pytest.mark.spark  # cloudpickle is pyspark's

DataFrame = Any


def lines() -> Stream:
    return Job("j").read_text("/in")


def made(stream: Stream) -> Any:
    stream.print()
    return stream._plan.nodes[1].kind


class Score:
    def __init__(self, factor: int) -> None:
        self.factor = factor

    def open(self, context: Any) -> None:
        del context

    def __call__(self, record: dict[str, Any]) -> int:
        return len(record["value"]) * self.factor


class Words:
    def __call__(self, record: dict[str, Any]) -> Iterator[str]:
        yield from record["value"].split()


def test_each_method_says_how_its_function_is_called() -> None:
    kind = made(lines().map(lambda record: record["value"], "value STRING"))
    assert isinstance(kind, RecordFunction)
    assert (kind.call, kind.form, kind.schema) == (RecordCall.MAP, RecordForm.RECORDS, "value STRING")
    assert "test_record_functions.py" in kind.description
    assert pickle.loads(kind.function)({"value": "a"}) == "a"
    kind = made(lines().flat_map(Words(), schema="word STRING"))
    assert (kind.call, kind.form) == (RecordCall.FLAT_MAP, RecordForm.RECORDS)
    assert list(pickle.loads(kind.function)({"value": "a b"})) == ["a", "b"]
    kind = made(lines().filter(lambda record: True))
    assert (kind.call, kind.form, kind.schema) == (RecordCall.FILTER, RecordForm.RECORDS, "")
    assert isinstance(made(lines().where("value <> ''")), SqlTransform)


@pytest.mark.parametrize(("name", "form"), [("arrow", RecordForm.ARROW), ("pandas", RecordForm.PANDAS)])
def test_vectorized_forms_stand_beside_each(name: Any, form: RecordForm) -> None:
    assert made(lines().map(lambda table: table, "value STRING", vectorized=name)).form is form
    assert made(lines().flat_map(lambda table: table, "value STRING", vectorized=name)).form is form
    assert made(lines().filter(lambda table: table, vectorized=name)).form is form


def test_an_object_travels_with_its_fields() -> None:
    kind = made(lines().map(Score(3), "n INT"))
    assert pickle.loads(kind.function)({"value": "ab"}) == 6


def to_frame(df: DataFrame) -> DataFrame:
    return df


def annotated(df: DataFrame) -> DataFrame:
    return df


annotated.__annotations__ = {"df": "pyspark.sql.DataFrame", "return": "DataFrame"}


def each_word(record: dict[str, Any]) -> Iterator[str]:
    yield from record["value"].split()


async def later(record: dict[str, Any]) -> int:
    return len(record)


@pytest.mark.parametrize(
    ("mistake", "text"),
    [
        (lambda: lines().map(lambda df: df), "belongs in transform()"),
        (lambda: lines().map(annotated, "a INT"), "takes a DataFrame; use transform() for a function DataFrame"),
        (lambda: lines().filter(annotated), "takes a DataFrame; use transform()"),
        (lambda: lines().flat_map(len), 'flat_map(function, schema="word STRING, n INT")'),
        (lambda: lines().flat_map(to_frame), 'or flat_map(..., vectorized="pandas")'),
        (lambda: lines().map(Score, "n INT"), "map() takes an object, not the class: map(Score(...))"),
        (lambda: lines().map("upper(value)", "value STRING"), "map() takes a function of (record), not str"),  # type: ignore[arg-type]
        (
            lambda: lines().map(Words(), "word STRING"),
            "map() takes a plain function of (record), without async or yield",
        ),
        (lambda: lines().filter(Words()), "filter() takes a plain function of (record), without async or yield"),
        (lambda: lines().flat_map(later, "n INT"), "flat_map() takes a plain function of (record), without async"),
        (lambda: lines().map(partial(later), "n INT"), "map() takes a plain function of (record), without async"),
        (lambda: lines().filter(partial(each_word)), "filter() takes a plain function of (record), without async"),
        (lambda: lines().map(lambda: 1, "n INT"), "map() calls its function with (record), but"),
        (lambda: lines().map(len, " "), "map() needs schema= as text"),
        (lambda: lines().map(len, "n INT", vectorized="numpy"), 'vectorized must be one of "arrow", "pandas"'),  # type: ignore[arg-type]
        (lambda: lines().filter("a > 1", vectorized="arrow"), "filter() takes vectorized= for a function only"),
        (lambda: lines().filter(7), "filter() needs an SQL condition as text"),  # type: ignore[arg-type]
        (lambda: lines().map(threading.Lock().__enter__, "n INT"), "map() c"),
    ],
)
def test_each_mistake_is_one_sentence_at_the_authors_line(mistake: Callable[[], Any], text: str) -> None:
    with pytest.raises(PipelineError, match=re.escape(text)) as caught:
        mistake()
    assert "test_record_functions.py:" in str(caught.value)


def test_what_cannot_be_pickled_belongs_into_open() -> None:
    lock = threading.Lock()
    with pytest.raises(PipelineError, match=r"make them in open\(\) of an object"):
        lines().map(lambda record: (lock, record), "n INT")
