"""The errors that a user of the ZooKeeper server can meet, and where things are looked for."""

from __future__ import annotations

import importlib.util
import shutil
import socket
from collections import namedtuple
from pathlib import Path

import pytest
from lockgate_devtools.zookeeper import server as server_module
from lockgate_devtools.zookeeper.server import ZooKeeperEnsemble, ZooKeeperServer, find_java, jar_folder, java_version
from lockgate_ha.errors import StoreUnavailable, ZooKeeperStartError
from lockgate_ha.zookeeper import connect


def java_home(folder: Path, release: str) -> Path:
    (folder / "bin").mkdir(parents=True)
    java = folder / "bin" / "java"
    java.write_text("#!/bin/sh\nexit 3\n")
    java.chmod(0o755)
    (folder / "release").write_text(release)
    return folder


def test_missing_java_is_reported_with_the_package() -> None:
    with pytest.raises(ZooKeeperStartError, match=r"Java was not found: install OpenJDK 17"):
        find_java({"PATH": "/nowhere"})


def test_a_wrong_java_home_says_so(tmp_path: Path) -> None:
    with pytest.raises(ZooKeeperStartError, match=r"JAVA_HOME is .* cannot be run"):
        find_java({"JAVA_HOME": str(tmp_path)})


def test_an_old_java_says_so(tmp_path: Path) -> None:
    home = java_home(tmp_path / "java", 'JAVA_VERSION="1.8.0_292"\n')
    with pytest.raises(ZooKeeperStartError, match="is Java 8, but Java 17 or later"):
        find_java({"JAVA_HOME": str(home)})


@pytest.mark.parametrize(
    ("release", "version"), [('JAVA_VERSION="17.0.15"', 17), ('JAVA_VERSION="21"', 21), ("nothing", None)]
)
def test_the_version_is_read_from_the_release_file(tmp_path: Path, release: str, version: int | None) -> None:
    home = java_home(tmp_path / "java", release)
    assert java_version(home / "bin" / "java") == version
    if version:
        assert find_java({"JAVA_HOME": str(home)}) == home / "bin" / "java"


@pytest.mark.spark
def test_the_jars_are_found_without_importing_pyspark() -> None:
    assert list(jar_folder().glob("zookeeper-3*.jar"))


def test_missing_pyspark_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(ZooKeeperStartError, match="install pyspark"):
        jar_folder()


@pytest.mark.spark
def test_a_taken_port_says_so(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        server = ZooKeeperServer(tmp_path, port=taken.getsockname()[1])
        with pytest.raises(ZooKeeperStartError, match="stop the process that uses the port or choose another"):
            server.start()
    assert not server.running


@pytest.mark.spark
def test_a_full_disk_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage(100, 99, 1))
    with pytest.raises(ZooKeeperStartError, match=r"is full \(0 MB free\): make room"):
        ZooKeeperServer(tmp_path).start()


@pytest.mark.spark
def test_a_folder_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ZooKeeperStartError, match="cannot write to"):
        ZooKeeperServer(tmp_path / "file" / "data").start()


@pytest.mark.spark
def test_a_server_that_ends_at_once_reports_its_last_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = java_home(tmp_path / "java", 'JAVA_VERSION="17"') / "bin" / "java"
    java.write_text("#!/bin/sh\necho it is all too much >&2\nexit 3\n")
    monkeypatch.setattr(server_module, "find_java", lambda: java)
    server = ZooKeeperServer(tmp_path / "data")
    with pytest.raises(ZooKeeperStartError, match="it is all too much"):
        server.start()
    assert server.wait(0) == 3


@pytest.mark.spark
def test_a_server_that_never_serves_is_stopped_at_the_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = java_home(tmp_path / "java", 'JAVA_VERSION="17"') / "bin" / "java"
    java.write_text("#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setattr(server_module, "find_java", lambda: java)
    server = ZooKeeperServer(tmp_path / "data")
    with pytest.raises(ZooKeeperStartError, match="did not serve at"):
        server.start(timeout_ms=100)
    assert not server.running


def test_an_ensemble_has_one_or_three_servers(tmp_path: Path) -> None:
    with pytest.raises(ZooKeeperStartError, match="1 or 3"):
        ZooKeeperEnsemble(tmp_path, 2)


def test_an_unreachable_address_is_reported_with_the_remedy() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        with pytest.raises(StoreUnavailable, match=r"ZooKeeper does not answer at .*lockgate zookeeper"):
            connect(f"127.0.0.1:{taken.getsockname()[1]}", timeout_ms=50)
