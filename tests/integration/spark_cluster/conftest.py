"""A Spark standalone cluster, and a Spark Connect server, out of PySpark's jars."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .servers import TOKEN, TOKEN_NAME, connect, standalone, stop


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients of a Connect server here, and processes that they start, have its token."""
    monkeypatch.setenv(TOKEN_NAME, TOKEN)


@pytest.fixture(scope="module")
def standalone_master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a master with two workers of one core each."""
    url, servers = standalone(tmp_path_factory.mktemp("standalone"), workers=2)
    yield url
    stop(servers)


@pytest.fixture(scope="module")
def connect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The URL of a Connect server, and that of its UI."""
    (url, ui), servers = connect(tmp_path_factory.mktemp("connect"))
    yield url, ui
    stop(servers)
