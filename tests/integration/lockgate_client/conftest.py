"""Fixtures of the client's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.lockgate_client.fake_cluster import SECRET, Cluster


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Two coordinators, the first leads."""
    made = Cluster()
    made.lead(made.add())
    made.add()
    yield made
    for coordinator in made.coordinators:
        coordinator.die()


@pytest.fixture
def user_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cluster: Cluster) -> Path:
    """The working folder of a user whose commands find the cluster and know its secret."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("LOCKGATE_CONFIG", "LOCKGATE_SECRET_FILE", "LOCKGATE_ZOOKEEPER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LOCKGATE_CLUSTER", ",".join(cluster.addresses))
    secret = tmp_path / "config" / "lockgate" / "secret"
    secret.parent.mkdir(parents=True)
    secret.write_text(SECRET)
    secret.chmod(0o600)
    return tmp_path
