"""Python workers are reached by Unix sockets: a job of some records does not wait for delayed acknowledgements."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from lockgate_taskmanager.spark.engine import SparkEngine

pytestmark = [pytest.mark.integration, pytest.mark.first]


def _families(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The families of the sockets that the worker has open."""
    for _ in batches:
        pass
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            with socket.socket(fileno=os.dup(int(name))) as opened:
                found.append(int(opened.family))
        except OSError:
            continue  # no socket, or closed meanwhile
    yield pa.record_batch({"family": pa.array(found, pa.int32())})


def test_a_worker_has_a_unix_socket_and_no_other(engine: SparkEngine) -> None:
    if not engine._is_local:
        pytest.skip("the workers run elsewhere")
    session = engine._session
    families = session.range(0, 1, 1, 1).mapInArrow(_families, "family INT").toArrow()["family"].to_pylist()
    assert families
    assert set(families) == {int(socket.AF_UNIX)}
    folder = Path(session.conf.get("spark.python.unix.domain.socket.dir"))
    assert folder.stat().st_mode & 0o077 == 0
    assert any(path.is_socket() for path in folder.iterdir())
