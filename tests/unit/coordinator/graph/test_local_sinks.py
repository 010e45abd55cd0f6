"""Sinks on the host of a subtask, where there are several hosts."""

from __future__ import annotations

import pytest
from lockgate_coordinator.graph.local_sinks import local_sinks
from lockgate_proto.messages import DeltaSink, FileSink, JobGraph, Operator, SqlSink, Vertex

SEVERAL = ("10.0.0.1:7000", "10.0.0.2:7000", "10.0.0.2:7001")


def said(kind: FileSink | SqlSink | DeltaSink, addresses: tuple[str, ...] = SEVERAL) -> str:
    return " ".join(local_sinks(JobGraph("j", (Vertex("v", operators=(Operator("s", kind=kind),)),)), addresses))


def test_local_files_are_warned_of_only_where_there_are_several_hosts() -> None:
    text = said(SqlSink("sqlite:////data/t.db", "t"))
    assert text.startswith("'s' writes to an SQLite database, and the task managers run on 2 hosts")
    assert said(FileSink("/out")).startswith("'s' writes to /out, and the task managers run on 2 hosts")
    assert "'s' writes to /out" in said(DeltaSink("file:///out"))
    assert said(FileSink("/out"), SEVERAL[1:]) == said(FileSink("/out"), ()) == ""
    assert said(FileSink("/out"), ("[::1]:1", "[::1]:2")) == ""


@pytest.mark.parametrize(
    "kind", [FileSink("s3://bucket/out"), SqlSink("postgresql://h/d", "t"), DeltaSink("s3://bucket/t")]
)
def test_a_sink_that_every_host_reaches_causes_no_warning(kind: FileSink | SqlSink | DeltaSink) -> None:
    assert said(kind) == ""
