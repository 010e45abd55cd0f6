"""JobWork: the blocking calls of one job on ZooKeeper and files, off the actor thread."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import TypeVar

from lockgate_coordinator.runtime.errors import Stopped
from lockgate_coordinator.runtime.runner_services import RunnerServices

T = TypeVar("T")


class JobWork:
    """Calls run in order on the job's worker; their results are handled on the actor thread, until it is closed."""

    def __init__(
        self,
        key: str,
        services: RunnerServices,
        guarded: Callable[[str, Callable[[], None]], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        """guarded: makes a call, whose name comes first, and handles its errors. failed: the default error handler."""
        self._key = key
        self._services = services
        self._guarded = guarded
        self._failed = failed
        self._is_closed = False

    def do(
        self, call: Callable[[], T], then: Callable[[T], None], failed: Callable[[BaseException], None] | None = None
    ) -> None:
        """Makes the call, and passes its result to `then` or its error to `failed`."""

        def answered(answer: Future[T]) -> None:
            error = answer.exception()
            if error is None:
                self._services.actor.tell(partial(self._done, partial(then, answer.result())))
            elif not isinstance(error, Stopped):
                self._services.actor.tell(partial(self._ended_by, error, failed or self._failed))

        self._services.workers.submit(self._key, call).add_done_callback(answered)

    def close(self) -> None:
        """The term is over: results are ignored from now on."""
        self._is_closed = True

    def _done(self, then: Callable[[], None]) -> None:
        if not self._is_closed:
            self._guarded("handling the result of a read or write", then)

    def _ended_by(self, error: BaseException, failed: Callable[[BaseException], None]) -> None:
        if not self._is_closed:
            self._guarded("taking in a failure", partial(failed, error))
