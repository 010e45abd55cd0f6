"""What a call that fails is answered: without what is secret in the error, whatever the error is."""

from __future__ import annotations

import pytest
from grpc import StatusCode
from lockgate_common.serving.refusals import Refused
from lockgate_coordinator.runtime.errors import Busy, StorageError
from lockgate_coordinator.runtime.guard import status
from lockgate_ha.errors import CorruptRecord
from lockgate_proto.codec import MalformedMessage

SECRET = "geheim9"
TEXT = f"cannot open postgresql://shop:{SECRET}@db/shop?password={SECRET}"


@pytest.mark.parametrize(
    "error",
    [
        Refused(StatusCode.INVALID_ARGUMENT, TEXT),
        Busy(TEXT),
        StorageError(TEXT),
        MalformedMessage(TEXT),
        CorruptRecord("/jobs/job", TEXT),
        ValueError(TEXT),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_status_shows_no_secret(error: Exception) -> None:
    _, details, _ = status(error, "/lockgate.v1.JobService/Submit")
    assert "cannot open postgresql://shop:***@db/shop?password=***" in details
    assert SECRET not in details


def test_a_secret_at_the_bound_of_a_status_is_not_cut_open() -> None:
    _, details, _ = status(Busy(f"{'x' * 5_990} password={SECRET * 10}"), "/lockgate.v1.JobService/Submit")
    assert SECRET[:4] not in details
