"""Where a real ZooKeeper server keeps its data, and what it refuses to do with it."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from lockgate_devtools.cluster import ClusterError, LocalCluster
from lockgate_devtools.zookeeper.server import Member, ZooKeeperEnsemble, ZooKeeperServer, free_ports
from lockgate_ha.errors import ZooKeeperStartError
from lockgate_ha.session import Create
from lockgate_ha.zookeeper import connect

from tests.certificates import make_certificates

pytestmark = [pytest.mark.integration, pytest.mark.rotating]


@pytest.mark.parametrize("locale", ["C.UTF-8", "C"])
def test_data_and_certificates_may_have_any_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, locale: str) -> None:
    monkeypatch.setenv("LC_ALL", locale)
    inside = tmp_path / "zü ö"
    inside.mkdir()
    server = ZooKeeperServer(inside / "data ", tls=make_certificates(inside), secret="its secret")
    server.start()
    try:
        assert (server.data_dir / "version-2").is_dir()
    finally:
        server.stop()
    assert list(tmp_path.iterdir()) == [inside]
    assert [path.name for path in inside.iterdir() if path.is_dir()] == ["data "]


def test_data_of_one_server_is_not_started_with_three(tmp_path: Path) -> None:
    """The two without data could elect each other first, and the third one would take over that there is nothing."""
    single = ZooKeeperEnsemble(tmp_path, 1)
    single.start()
    try:
        with closing(connect(single.address)) as session:
            session.transact([Create("/kept", b"")])
    finally:
        single.stop()
    with pytest.raises(ZooKeeperStartError, match="start 1 again, or choose another folder with --dir"):
        ZooKeeperEnsemble(tmp_path, 3)
    peer, election = free_ports(2)
    members = [Member(number, peer, election, "localhost") for number in (1, 2, 3)]
    with pytest.raises(ZooKeeperStartError, match="start 1 again, or choose another folder with --dir"):
        ZooKeeperServer(tmp_path / "server-1", members=members, number=1).launch()
    again = ZooKeeperEnsemble(tmp_path, 1)
    again.start()
    try:
        with closing(connect(again.address)) as session:
            assert session.get("/kept")
    finally:
        again.stop()


def test_a_cluster_keeps_the_number_of_its_servers(tmp_path: Path) -> None:
    server = ZooKeeperServer(tmp_path / "zookeeper" / "server-0")
    server.start()
    server.stop()
    with pytest.raises(ClusterError, match="start 1 again, or choose another folder with --dir"):
        LocalCluster(tmp_path, zookeepers=3).start()
