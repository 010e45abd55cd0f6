"""Numbers and texts that no job may have are refused in words, and the leader goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import grpc
import pytest
from lockgate_proto import messages as m

from tests.integration.coordinator.conftest import Caller, Running, graph

pytestmark = pytest.mark.integration


def _generating(**changes: Any) -> m.JobGraph:
    whole = graph()
    first = whole.vertices[0]
    source = m.Operator("numbers", kind=m.GeneratorSource(**changes))
    return replace(whole, vertices=(replace(first, operators=(source,)), *whole.vertices[1:]))


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (_generating(partitions=2**31 - 1), "partitions 2147483647: the limit is 32768"),
        (_generating(rows_per_second=1e308), "rows_per_second"),
        (_generating(rows_per_second=5e-324), "rows per second"),
        (graph(interval_ms=2**63 - 1), "interval_ms"),
        (graph(name="a\0b"), "NUL"),
        (replace(graph(), state_backend=m.StateBackend(m.FilesystemBackend("/tmp/a\0b"))), "NUL"),
    ],
)
def test_a_poison_job_is_refused_and_the_leader_takes_the_next(api: Caller, bad: m.JobGraph, message: str) -> None:
    error = api.fails("Submit", m.SubmitRequest("poison", bad))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert message in (error.details() or "")
    assert api("Submit", m.SubmitRequest("good", graph())).created


def test_a_start_with_a_nul_is_refused(api: Caller) -> None:
    error = api.fails("Submit", m.SubmitRequest("job", graph(), restore_from="/s/chk-1\0"))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "restore_from with a NUL" in (error.details() or "")


@pytest.mark.parametrize("timeout_ms", [-1, 2**63 - 1])
def test_no_request_waits_forever_or_a_negative_time(running: Callable[..., Running], timeout_ms: int) -> None:
    job = running()
    for method, request in (
        ("TriggerSavepoint", m.TriggerSavepointRequest("job", timeout_ms)),
        ("Stop", m.StopRequest("job", timeout_ms=timeout_ms)),
        ("Rescale", m.RescaleRequest("job", (m.VertexParallelism("count", 1),), timeout_ms)),
    ):
        error = job.api.fails(method, request)
        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "timeout_ms" in (error.details() or "")
    assert job.api.status("job").state is m.JobState.RUNNING
