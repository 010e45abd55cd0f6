"""One owner for a folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from lockgate_common import folder_lock
from lockgate_devtools.zookeeper import server
from lockgate_devtools.zookeeper.server import ZooKeeperServer
from lockgate_ha.errors import ZooKeeperStartError


def test_a_folder_has_one_owner_at_a_time(tmp_path: Path) -> None:
    with folder_lock.take(tmp_path), pytest.raises(folder_lock.FolderInUse):
        folder_lock.take(tmp_path)
    folder_lock.take(tmp_path).close()


def test_the_lock_lasts_as_long_as_a_process_that_has_inherited_it(tmp_path: Path) -> None:
    with folder_lock.take(tmp_path) as lock:
        heir = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=(lock.fileno(),))
    with pytest.raises(folder_lock.FolderInUse):
        folder_lock.take(tmp_path)
    heir.communicate(b"\n")
    folder_lock.take(tmp_path).close()


@pytest.mark.spark
def test_two_zookeeper_servers_never_share_their_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_PATIENCE_S", 0)
    (tmp_path / "zoo.cfg").write_text("of the other one")
    with folder_lock.take(tmp_path), pytest.raises(ZooKeeperStartError, match="another ZooKeeper server uses"):
        ZooKeeperServer(tmp_path).launch()
    assert (tmp_path / "zoo.cfg").read_text() == "of the other one"
