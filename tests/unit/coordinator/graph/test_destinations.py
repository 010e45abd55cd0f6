"""Two jobs that write one folder or table are distinguished from two that do not, however the place is spelled."""

from __future__ import annotations

from typing import Any

import pytest
from lockgate_coordinator.graph.destinations import clashes, destinations, sqlite_path
from lockgate_proto.messages import (
    ConsoleSink,
    DeltaSink,
    FileFormat,
    FileSink,
    ForeachBatchSink,
    JobGraph,
    KafkaSink,
    Operator,
    PythonSink,
    SqlSink,
    Vertex,
)
from sqlalchemy import make_url


def writing(kind: Any) -> JobGraph:
    return JobGraph(vertices=(Vertex(id="v", operators=(Operator(id="sink", kind=kind),)),))


def files(path: str, *, shared: bool = False) -> FileSink:
    return FileSink(path, FileFormat.PARQUET, shared)


def rows(url: str, table: str = "counts") -> SqlSink:
    return SqlSink(url, table, ("k",))


def clash(first: Any, other: Any) -> tuple[str, ...]:
    return clashes(destinations(writing(first)), {"first": destinations(writing(other))})


def test_the_file_of_an_sqlite_database() -> None:
    urls = (
        "sqlite:////data/x.db",
        "SQLite+pysqlite:///x.db?mode=ro",
        "sqlite:///:memory:",
        "sqlite://",
        "postgresql://db",
    )
    assert [*map(sqlite_path, urls)] == ["/data/x.db", "x.db", "", "", ""]


@pytest.mark.parametrize("url", ["sqlite:////data/%2E%2E/x%20y.db", "sqlite:///%3Amemory%3A", "sqlite:////a+b%3Fc?d=1"])
def test_the_file_is_the_one_that_sqlalchemy_opens(url: str) -> None:
    assert sqlite_path(url) == (make_url(url).database or "").replace(":memory:", "")


@pytest.mark.parametrize(
    ("first", "other"),
    [
        (files("/out"), files("/out")),
        (files("/out"), files("/out/")),
        (files("/out"), files("//out//.")),
        (files("/out"), files("/a/../out")),
        (files("/out"), files("file:///out")),
        (files("/my out"), files("file:///my%20out")),
        (files("/a://b"), files("/a:/b/")),
        (files("s3://bucket/out"), files("s3a://bucket//out/")),
        (files("s3://bucket/out?region=x"), files("s3://bucket/out/?region=x")),
        (files("/out"), DeltaSink("/out")),
        (rows("sqlite:////data/x.db"), rows("sqlite+pysqlite:////data/./x.db")),
        (rows("postgresql://ann:secret@DB/shop"), rows("postgresql+psycopg://bob@db:5432/shop?sslmode=require")),
        (rows("postgresql://db/shop"), rows("postgresql://db/shop", "public.counts")),
    ],
)
def test_the_same_place_is_refused(first: Any, other: Any) -> None:
    (problem,) = clash(first, other)
    assert "job 'first', which has not ended" in problem
    assert "shared=True" in problem
    assert "secret" not in problem
    assert clash(other, first)


@pytest.mark.parametrize(
    ("first", "other"),
    [
        (files("/out"), files("/out2")),
        (files("/out"), files("/Out")),
        (files("/out"), files("/out/part")),
        (files("s3://bucket/out"), files("s3://other/out")),
        (files("s3://bucket/out?endpoint_override=a"), files("s3://bucket/out?endpoint_override=b")),
        (rows("sqlite:////data/x.db"), rows("sqlite:////data/x.db", "others")),
        (rows("sqlite:////data/x.db"), rows("sqlite:////data/y.db")),
        (rows("postgresql://db/shop"), rows("postgresql://db:5433/shop")),
        (rows("postgresql://db/shop"), rows("postgresql://db/shop", "audit.counts")),
        (files("/out", shared=True), files("/out")),
        (ConsoleSink(), ConsoleSink()),
        (KafkaSink("k:1", "t", value="v"), KafkaSink("k:1", "t", value="v")),  # a topic has many writers
        (ForeachBatchSink(b"x"), ForeachBatchSink(b"x")),
        (PythonSink(b"x"), PythonSink(b"x")),
    ],
)
def test_other_places_are_not(first: Any, other: Any) -> None:
    assert not clash(first, other)


def test_sharing_must_be_allowed_by_the_new_job_itself() -> None:
    assert clash(files("/out"), files("/out", shared=True))


def test_keys_in_a_uri_are_not_shown() -> None:
    uri = "s3://KEY:SECRET@bucket/out?secret_key=SECRET"
    (problem,) = clash(files(uri), files(uri))
    assert "s3://bucket/out" in problem
    assert "SECRET" not in problem
