"""What coordinators and task managers have in common on their pages of metrics."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version

from lockgate_common.metrics.family import Family, Kind
from lockgate_common.metrics.page import INCOMPLETE
from lockgate_common.metrics.samples import Samples
from lockgate_common.security import Credentials

INFO = Family(
    "lockgate_process_info", Kind.GAUGE, "Always 1: which process of which cluster this is.",
    ("role", "id", "cluster", "version"),
)  # fmt: skip
TOKEN = Family(
    "lockgate_fencing_token", Kind.GAUGE, "The fencing token of the leader that this process knows; 0 for none."
)
SESSION = Family(
    "lockgate_zookeeper_session_connected", Kind.GAUGE,
    "1 while the process's ZooKeeper session is connected, 0 while it is suspended, lost or not yet opened.",
)  # fmt: skip
CERTIFICATE_ENDS = Family(
    "lockgate_certificate_not_after_timestamp_seconds", Kind.GAUGE,
    "When the certificate of this process expires, in seconds since 1970; none without TLS.",
)  # fmt: skip

FAMILIES = (INFO, TOKEN, SESSION, CERTIFICATE_ENDS, INCOMPLETE)


class ProcessPart:
    """A part of a MetricsPage. token, is_connected: the present values; see TOKEN and SESSION."""

    def __init__(
        self,
        role: str,
        name: str,
        cluster: str,
        credentials: Credentials,
        token: Callable[[], int],
        is_connected: Callable[[], bool],
    ) -> None:
        self._labels = (role, name, cluster, version("lockgate"))
        self._credentials = credentials
        self._token, self._is_connected = token, is_connected

    def __call__(self, samples: Samples) -> None:
        """Adds its samples."""
        samples.add(INFO, 1, *self._labels)
        samples.add(TOKEN, self._token())
        samples.add(SESSION, float(self._is_connected()))
        tls = self._credentials.tls
        ends = tls.read().ends() if tls is not None and tls.certificate else None
        if ends is not None:
            samples.add(CERTIFICATE_ENDS, ends.timestamp())
