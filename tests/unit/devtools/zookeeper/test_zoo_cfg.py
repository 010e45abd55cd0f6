"""What ZooKeeper's settings file says to Java, and with how many servers its data may start."""

from __future__ import annotations

from pathlib import Path

import pytest
from lockgate_devtools.zookeeper import zoo_cfg
from lockgate_ha.errors import ZooKeeperStartError

THREE = {f"server.{number}": f"127.0.0.1:{number}:{number}" for number in (1, 2, 3)}


def started(folder: Path, servers: dict[str, str], *, has_data: bool = True) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    zoo_cfg.write(folder, {"dataDir": folder, **servers})
    if has_data:
        (folder / "version-2").mkdir(exist_ok=True)
    return folder


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("/data/zü ö/", r"/data/z\u00fc\u0020\u00f6/"),
        ("/data/𝄞", r"/data/\ud834\udd1e"),
        ("C:\\new", r"C:\u005cnew"),
        (" a\nb\t", r"\u0020a\u000ab\u0009"),
        ("zk1:2888:3888", "zk1:2888:3888"),
        ("=:#!", "=:#!"),  # they are special in keys and where a line begins only
    ],
)
def test_a_value_is_written_as_java_reads_it(tmp_path: Path, value: str, written: str) -> None:
    assert zoo_cfg.write(tmp_path, {"key": value}).read_bytes() == f"key={written}\n".encode("ascii")
    assert [path.name for path in tmp_path.iterdir()] == ["zoo.cfg"]


def test_a_path_that_java_cannot_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ZooKeeperStartError, match=r"ZooKeeper cannot use '/data/z\\udcfc': the name is not UTF-8"):
        zoo_cfg.write(tmp_path, {"dataDir": "/data/z\udcfc"})


@pytest.mark.parametrize(("servers", "found", "wanted"), [({}, "1 ZooKeeper server", 3), (THREE, "3 ZooKeeper", 1)])
def test_another_number_of_servers_than_the_data_has_is_refused(
    tmp_path: Path, servers: dict[str, str], found: str, wanted: int
) -> None:
    folder = started(tmp_path / "server-0", servers)
    zoo_cfg.check_number([folder], int(found[0]))
    remedy = f"start {found[0]} again, or choose another folder with --dir"
    with pytest.raises(ZooKeeperStartError, match=f"{folder} has the data of {found}.*lose: {remedy}"):
        zoo_cfg.check_number([folder], wanted)


def test_a_folder_without_data_takes_any_number(tmp_path: Path) -> None:
    (tmp_path / "server-0").mkdir()
    for folder in (tmp_path / "missing", tmp_path / "server-0", started(tmp_path / "tried", {}, has_data=False)):
        zoo_cfg.check_number([folder], 3)


def test_the_first_folder_with_data_decides(tmp_path: Path) -> None:
    """Others may be left from a try with three servers; without the first, two of three still have everything."""
    first, *others = (tmp_path / f"server-{number}" for number in range(3))
    for folder in others:
        started(folder, THREE)
    with pytest.raises(ZooKeeperStartError, match="start 3 again"):
        zoo_cfg.check_number([first, *others], 1)
    zoo_cfg.check_number([first, *others], 3)
    started(first, {})
    zoo_cfg.check_number([first, *others], 1)
    with pytest.raises(ZooKeeperStartError, match="start 1 again"):
        zoo_cfg.check_number([first, *others], 3)
