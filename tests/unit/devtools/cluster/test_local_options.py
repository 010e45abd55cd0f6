"""Options, ports and folders: what cannot work is said before anything starts."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
from lockgate_devtools.cluster import ClusterError, ClusterOptions, LocalCluster, files, ports
from lockgate_devtools.cluster.ensemble import EnsemblePlan


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"coordinators": 0}, "at least 1 coordinator"),
        ({"slots": 0}, "at least 1 coordinator and 1 slot"),
        ({"zookeepers": 2}, "use 1 or 3"),
        ({"zookeepers": 0}, "address of a running one"),
        ({"zookeepers": 0, "zookeeper": "zk:x"}, "--zookeeper cannot be 'zk:x': it must be host:port"),
        ({"coordinator_ports": (7070, 7070)}, "port 7070 is given twice"),
        ({"coordinator_ports": (7070,), "zookeeper_ports": (7070,)}, "port 7070 is given twice"),
        ({"coordinator_ports": (7070,), "relayed": True}, "a relayed cluster chooses the coordinators' ports itself"),
        ({"zookeepers": 1, "zookeeper_ports": (2181, 2182)}, "2 ports for 1 ZooKeeper servers"),
        ({"coordinators": 1, "coordinator_ports": (7070, 7071)}, "2 ports for 1 coordinators"),
    ],
)
def test_options_that_cannot_work_are_refused(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ClusterError, match=words):
        LocalCluster(tmp_path, **changes)


def test_keyword_arguments_replace_single_options(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path, ClusterOptions(slots=5, taskmanagers=3), taskmanagers=1)
    assert (cluster.options.slots, cluster.options.taskmanagers) == (5, 1)


@pytest.mark.spark
def test_a_taken_port_is_named_in_one_sentence(tmp_path: Path) -> None:
    with socket.create_server((ports.HOST, 0)) as server:
        port = server.getsockname()[1]
        cluster = LocalCluster(tmp_path, coordinator_ports=(port,))
        with pytest.raises(ClusterError, match=f"port {port} on 127.0.0.1 is taken"):
            cluster.start()


def test_chosen_ports_are_different_and_free() -> None:
    found = ports.choose(9)
    assert len(set(found)) == 9
    assert all(ports.is_free(port) for port in found)


def test_a_single_server_has_no_peer_ports(tmp_path: Path) -> None:
    plan = EnsemblePlan.make(tmp_path, 1, (12181,))
    assert plan.connect_string == "127.0.0.1:12181"
    assert plan.settings(0)["members"] == []


def test_three_servers_know_each_other(tmp_path: Path) -> None:
    plan = EnsemblePlan.make(tmp_path, 3, ())
    settings = [plan.settings(number) for number in range(3)]
    assert len(set(plan.client_ports + plan.peer_ports)) == 9
    assert [setting["number"] for setting in settings] == [1, 2, 3]
    assert settings[0]["members"] == settings[2]["members"]
    assert [member[0] for member in settings[0]["members"]] == [1, 2, 3]
    assert len({setting["data_dir"] for setting in settings}) == 3


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ClusterError, match="cannot use the folder"):
        files.prepare_directory(tmp_path / "file" / "cluster", ("logs",))


def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Usage:
        free = 1024

    monkeypatch.setattr(files.shutil, "disk_usage", lambda _: Usage)
    with pytest.raises(ClusterError, match=r"the disk of .* is full"):
        files.prepare_directory(tmp_path, ("logs",))


def test_writing_leaves_no_temporary_file(tmp_path: Path) -> None:
    files.write_atomically(tmp_path / "cluster.json", "one")
    files.write_atomically(tmp_path / "cluster.json", "two")
    assert (tmp_path / "cluster.json").read_text() == "two"
    assert [path.name for path in tmp_path.iterdir()] == ["cluster.json"]
