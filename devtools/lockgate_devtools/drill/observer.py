"""Collects a job's events and newest status in the background."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

from lockgate_common.clock import unix_us
from lockgate_proto.messages import JobEvent, JobStatus

from lockgate.client import TERMINAL, Client, ClientError
from lockgate.client.watch import JobWatch
from lockgate_devtools.drill.sample import Sample
from lockgate_devtools.drill.timeline import righted

_SAMPLES = 1_000
"""More than come in a minute and a half: a kill looks back a few seconds, and is over after less than that."""


class JobObserver:
    """Watches one job on its own thread, across failovers, until the job has ended or `close`."""

    def __init__(
        self,
        client: Client,
        job_key: str,
        on_update: Callable[[JobStatus | JobEvent], None] | None = None,
        *,
        sets_clocks_off: bool = False,
    ) -> None:
        """sets_clocks_off: the times of events are corrected, see `righted`."""
        self._sets_clocks_off = sets_clocks_off
        self._changed = threading.Condition()
        self._events: list[JobEvent] = []
        self._status: JobStatus | None = None
        self._samples: deque[Sample] = deque(maxlen=_SAMPLES)
        self._error: ClientError | None = None
        self._closing = False
        self._on_update = on_update
        self._watch: JobWatch = client.watch(job_key)
        self._thread = threading.Thread(target=self._run, name="job-observer", daemon=True)
        self._thread.start()

    @property
    def events(self) -> tuple[JobEvent, ...]:
        """All events so far, in the order in which they arrived."""
        with self._changed:
            return tuple(self._events)

    @property
    def samples(self) -> tuple[Sample, ...]:
        """The numbers of the newest statuses, in the order in which they arrived."""
        with self._changed:
            return tuple(self._samples)

    @property
    def status(self) -> JobStatus | None:
        """The newest status, None before the first was received."""
        return self._status

    @property
    def has_ended(self) -> bool:
        """True when the job is finished, failed or cancelled."""
        return self._status is not None and self._status.state in TERMINAL

    def wait_for(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        """Waits until `condition` (checked after each update) holds, False at the deadline or the job's end.

        Raises the ClientError that ended the watch.
        """
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while not condition():
                if self._error is not None:
                    raise self._error
                if self.has_ended or not self._changed.wait(max(0.0, deadline - time.monotonic())):
                    return condition()
            return True

    def close(self) -> None:
        """Ends the watch and joins its thread. Idempotent."""
        self._closing = True
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._closing and not self._watch.ended:
                update = self._watch.poll(200)
                if update is not None:
                    self._take(update)
        except ClientError as error:
            with self._changed:
                self._error = error
                self._changed.notify_all()
        finally:
            self._watch.close()

    def _take(self, update: JobStatus | JobEvent) -> None:
        with self._changed:
            if isinstance(update, JobEvent):
                self._events.append(righted(update, unix_us()) if self._sets_clocks_off else update)
            else:
                self._status = update
                self._samples.append(Sample.of(update, unix_us()))
            self._changed.notify_all()
        if self._on_update is not None:
            self._on_update(update)
