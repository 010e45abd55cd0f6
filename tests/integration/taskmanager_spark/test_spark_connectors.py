"""Sources and sinks of an author's own in whole chains on real Spark."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lockgate_proto.messages import Edge, JobGraph, Partitioning, PythonSink, PythonSource, SocketSource
from lockgate_taskmanager.task.program import Exhausted, Idle, UserError
from pyspark import cloudpickle

from tests.connectors import JsonFolder, Squares

from .graphs import count_by, graph, sql, vertex

pytestmark = pytest.mark.integration

Job = Callable[..., Any]
HASH = Partitioning.HASH


def source(*ends: int | None, schema: str = Squares.schema, form: str = "arrow") -> PythonSource:
    return PythonSource(cloudpickle.dumps(Squares(*ends, form=form)), schema=schema)


def sink(folder: Path) -> PythonSink:
    return PythonSink(cloudpickle.dumps(JsonFolder(folder)))


def chain(folder: Path, form: str) -> JobGraph:
    kinds = (
        source(2000, 3000, form=form),
        sql("SELECT split, n + square AS m FROM input WHERE n % 2 = 0"),
        sink(folder),
    )
    return graph(vertex("all", *kinds, parallelism=2))


@pytest.mark.parametrize("form", ["arrow", "pandas", "spark"])
def test_a_chain_is_exact_across_attempts(job: Job, tmp_path: Path, form: str) -> None:
    run = job(chain(tmp_path / "out", form))
    run.batch("all", 0)
    run.batch("all", 1)
    kept = run.checkpoint(1, commit=False)  # complete, and the process dies before it commits
    run.batch("all", 0)
    run.checkpoint(2, commit=False)  # never complete: what it has staged must go
    run.close()
    run.start(restore=kept)
    run.to_end()
    run.checkpoint(3)
    found = sorted((row["split"], row["m"]) for row in JsonFolder(tmp_path / "out").visible())
    wanted = [(name, n + n * n) for name, end in (("a", 2000), ("b", 3000)) for n in range(0, end, 2)]
    assert found == wanted
    assert list(JsonFolder(tmp_path / "out").staged()) == []
    (first, *_), _ = (program.counters() for program in run.programs.values())
    assert first.records_out in (2000, 3000)


def test_rows_of_a_custom_source_are_aggregated(job: Job, tmp_path: Path) -> None:
    run = job(
        graph(
            vertex("read", source(100, 250)),
            vertex("count", count_by("split"), sink(tmp_path / "out")),
            edges=(Edge("read", "count", HASH, ("split",)),),
        )
    )
    run.to_end()
    run.checkpoint(1)
    last = {row["split"]: row["n"] for row in JsonFolder(tmp_path / "out").visible()}
    assert last == {"a": 100, "b": 250}


def test_lines_of_a_socket_count_at_most_once_over_a_failover(job: Job, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(30)
        address = server.getsockname()
        upper = sql("SELECT upper(value) AS line FROM input")
        run = job(graph(vertex("all", SocketSource(*address), upper, sink(tmp_path / "out"))))

        def feed(text: str) -> socket.socket:
            """Reads until a line has come; the first poll makes the connection."""
            run.batch("all")
            peer, _ = server.accept()
            peer.sendall(text.encode())
            assert any(run.batch("all") or pause.wait(0.02) for _ in range(1000))
            return peer

        pause = threading.Event()
        with feed("one\n") as peer:
            kept = run.checkpoint(1)
            peer.sendall(b"lost\n")
            assert any(run.batch("all") or pause.wait(0.02) for _ in range(1000))
            run.close()
        run.start(restore=kept)
        with feed("two\nthree"):
            pass
        while not isinstance(polled := run.programs["all", 0].poll(), Exhausted):
            if isinstance(polled, Idle):
                pause.wait(polled.wait_ms / 1000)
        run.checkpoint(2)
    assert sorted(row["line"] for row in JsonFolder(tmp_path / "out").visible()) == ["ONE", "THREE", "TWO"]


def test_an_invalid_schema_is_reported_in_one_sentence(job: Job, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"operator 'all0': the schema 'n SOMETHING' is wrong: ") as caught:
        job(graph(vertex("all", source(1, schema="n SOMETHING"), sink(tmp_path))))
    assert "\n" not in str(caught.value)
