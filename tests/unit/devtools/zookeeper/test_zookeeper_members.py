"""How the servers of an ensemble on several machines are named."""

from __future__ import annotations

from pathlib import Path

import pytest
from lockgate_devtools.zookeeper.server import Member, ZooKeeperServer, parse_members
from lockgate_ha.errors import ZooKeeperStartError


def test_members_are_numbered_in_the_order_in_which_they_are_named() -> None:
    assert parse_members("zk1, zk2.example") == (Member(1, 2888, 3888, "zk1"), Member(2, 2888, 3888, "zk2.example"))


def test_a_member_may_have_its_own_ports() -> None:
    assert parse_members("zk1:4000:4001") == (Member(1, 4000, 4001, "zk1"),)


@pytest.mark.parametrize("ensemble", ["", "zk1,,zk2", "zk1:2888", "zk1:a:b", ":2888:3888", "zk1:1:2:3"])
def test_a_master_without_a_server_is_refused(ensemble: str) -> None:
    with pytest.raises(ZooKeeperStartError, match="give HOST or HOST:PEER_PORT:ELECTION_PORT"):
        parse_members(ensemble)


@pytest.mark.spark
def test_a_member_is_configured_with_the_hosts_of_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(_java_that_ends(tmp_path)))
    data = tmp_path / "data"
    with pytest.raises(ZooKeeperStartError, match="ended while starting"):
        ZooKeeperServer(data, bind="0.0.0.0", members=parse_members("zk1,zk2,zk3"), number=2).start()
    lines = (data / "zoo.cfg").read_text().splitlines()
    assert {"server.1=zk1:2888:3888", "server.2=zk2:2888:3888", "server.3=zk3:2888:3888"} <= set(lines)
    assert {"clientPortAddress=0.0.0.0", "quorumListenOnAllIPs=true"} <= set(lines)
    assert (data / "myid").read_text() == "2\n"


def _java_that_ends(folder: Path) -> Path:
    home = folder / "java"
    (home / "bin").mkdir(parents=True)
    (home / "release").write_text('JAVA_VERSION="17"\n')
    (home / "bin" / "java").write_text("#!/bin/sh\nexit 3\n")
    (home / "bin" / "java").chmod(0o755)
    return home
