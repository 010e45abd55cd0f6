"""A kazoo client for one task of a tool."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence

from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.retry import KazooRetry
from lockgate_common.tls import TlsFiles

from lockgate_ha.errors import StoreUnavailable
from lockgate_ha.zookeeper.reasons import no_answer
from lockgate_ha.zookeeper.tls import transport

_kazoo_logger = logging.getLogger(f"{__name__}.kazoo")
_kazoo_logger.setLevel(logging.CRITICAL)  # it warns at every attempt to connect; one error is raised here


@contextlib.contextmanager
def connected(
    hosts: str,
    users: Sequence[tuple[str, str]],
    tls: TlsFiles | None,
    timeout_ms: int,
    *,
    retry: KazooRetry | None = None,
    checks_host: bool = True,
) -> Iterator[KazooClient]:
    """Connected while the block runs. Raises StoreUnavailable without an answer in `timeout_ms`, SecurityError.

    users: as `rights.login` gives them; retry: of `client.retry`; checks_host: TLS compares the server's name.
    """
    client = KazooClient(
        hosts,
        auth_data=list(dict.fromkeys(users)),
        logger=_kazoo_logger,
        command_retry=retry,
        **transport(tls, checks_host=checks_host),
    )
    try:
        client.start(timeout_ms / 1000)
        yield client
    except KazooTimeoutError as error:
        raise StoreUnavailable(no_answer(hosts, tls)) from error
    finally:
        client.stop()
        client.close()
