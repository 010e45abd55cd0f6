"""The clients that ask the cluster on behalf of callers: one for each credential, as long as it is used."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from lockgate_common.http.refusal import HttpRefusal
from lockgate_common.security import Credentials
from lockgate_proto.messages import ClusterStatus, JobStatus

from lockgate.client import Client, ClientError
from lockgate_web.shared_watch import SharedWatch

_KEPT = 32
_PATIENCE_MS = 5_000
_OVERVIEW_S = 0.9  # as old may an overview be, or its failure, that several pages share


class HeldClient:
    """users: requests and streams that use it now. watches: by job, of open pages; on the loop only."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.users = 0
        self.watches: dict[str, SharedWatch] = {}
        self._lock = threading.Lock()
        self._shared: tuple[ClusterStatus, Sequence[JobStatus]] | ClientError | None = None
        self._taken_s = 0.0

    def overview(self) -> tuple[ClusterStatus, Sequence[JobStatus]]:
        """The cluster and its jobs, newest first. Blocks. Raises ClientError, the same one for all who waited."""
        with self._lock:
            if self._shared is None or time.monotonic() - self._taken_s > _OVERVIEW_S:
                self._shared = self._asked()
                self._taken_s = time.monotonic()
            found = self._shared
        if isinstance(found, ClientError):
            raise found.with_traceback(None)  # else each one that raises it adds its frames
        return found

    def _asked(self) -> tuple[ClusterStatus, Sequence[JobStatus]] | ClientError:
        try:
            jobs = sorted(self.client.jobs(with_subtasks=False), key=lambda job: job.submitted_unix_ms, reverse=True)
            return self.client.cluster(), jobs
        except ClientError as error:
            return error


class Clients:
    """Of one dashboard. Thread-safe. address: of its own coordinator, which knows the leader."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._lock = threading.Lock()
        self._held: OrderedDict[object, HeldClient] = OrderedDict()  # the one used last is at the end

    @contextmanager
    def using(self, credentials: Credentials) -> Iterator[HeldClient]:
        """For as long as the block runs. Raises HttpRefusal when too many are in use."""
        with self._lock:
            held = self._taken(credentials)
            held.users += 1
        try:
            yield held
        finally:
            with self._lock:
                held.users -= 1

    def close(self) -> None:
        """Ends calls in progress with an error."""
        with self._lock:
            clients, self._held = list(self._held.values()), OrderedDict()
        for held in clients:
            held.client.close()

    def _taken(self, credentials: Credentials) -> HeldClient:
        key = (credentials.secret, credentials.token)
        held = self._held.get(key)
        if held is None:
            if len(self._held) >= _KEPT:
                self._make_room()
            client = Client((self._address,), credentials=credentials, patience_ms=_PATIENCE_MS)
            held = self._held[key] = HeldClient(client)
        self._held.move_to_end(key)
        return held

    def _make_room(self) -> None:
        idle = next((key for key, held in self._held.items() if not held.users), None)
        if idle is None:
            raise HttpRefusal(503, "too many users have this dashboard open; try again later")
        self._held.pop(idle).client.close()
