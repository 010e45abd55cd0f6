"""The statuses of answers to requests for savepoints: what may be repeated, and what is final."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest
from grpc import StatusCode
from lockgate_coordinator.job.effects import AnswerSavepoint
from lockgate_coordinator.runtime.guard import status
from lockgate_coordinator.runtime.requests import Requests


@pytest.mark.parametrize(("busy", "code"), [(True, StatusCode.UNAVAILABLE), (False, StatusCode.ABORTED)])
def test_only_a_request_for_which_nothing_was_begun_may_be_repeated(busy: bool, code: StatusCode) -> None:
    requests, answer = Requests(), Future[Any]()
    name = requests.add(answer)
    requests.savepoint(AnswerSavepoint(name, error="Why.", busy=busy))
    error = answer.exception(0)
    assert isinstance(error, Exception)
    assert status(error, "Stop")[:2] == (code, "Why.")
