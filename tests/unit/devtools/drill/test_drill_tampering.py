"""What a drill does to links, clocks and the storage, in parts; `tests/chaos/test_chaos_drill.py` has the whole."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from lockgate_common.clock import unix_ms
from lockgate_common.fault_points import VARIABLE
from lockgate_common.storage import locate, write_durably
from lockgate_devtools.drill.arena import DrillError
from lockgate_devtools.drill.model import CLOCK_OFF_S, Target
from lockgate_devtools.drill.tampering import Tampering, prepare, take_away

LEADER, BUSY, OTHER = 11, 12, 13


class Links:
    """Notes what is cut, and what the job could have seen while it was."""

    def __init__(self) -> None:
        self.cuts: list[tuple[str, str, bool]] = []
        self.others: dict[str, set[str]] = {}
        self.is_whole = True

    def servers_of(self, name: str) -> set[str]:
        return {"zookeeper-2", "taskmanager-0"} if name == "coordinator-1" else self.others.get(name, set())

    @contextmanager
    def cut_off(self, one: str, other: str, *, one_way: bool = False) -> Iterator[None]:
        self.cuts.append((one, other, one_way))
        self.is_whole = False
        try:
            yield
        finally:
            self.is_whole = True


class Cluster:
    """Of four processes; this one is a task manager, where a test needs one that runs."""

    def __init__(self, folder: Path, busy: int = BUSY) -> None:
        self.directory, self.storage, self.links = folder / "cluster", str(folder / "storage"), Links()
        self._pids = {"coordinator-0": 10, "coordinator-1": LEADER, "taskmanager-0": busy, "taskmanager-1": OTHER}

    def pids(self) -> dict[str, int]:
        return self._pids


def tampering(cluster: Cluster) -> Tampering:
    made: Any = cluster
    return Tampering(made)


@pytest.fixture(autouse=True)
def no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lockgate_devtools.drill.tampering._never.wait", lambda _seconds: False)


@pytest.mark.parametrize(
    ("target", "pair"),
    [
        (Target.LINK_LEADER_ZOOKEEPER, ("coordinator-1", "zookeeper-2")),
        (Target.LINK_LEADER_TASKMANAGER, ("coordinator-1", "taskmanager-0")),
        (Target.LINK_TASKMANAGERS, ("taskmanager-0", "taskmanager-1")),
    ],
)
def test_the_link_that_is_named_is_cut_and_whole_again(tmp_path: Path, target: Target, pair: tuple[str, str]) -> None:
    cluster = Cluster(tmp_path)
    victim = tampering(cluster).victim(target, LEADER, BUSY, random.Random(1))
    assert victim.tamper is not None
    assert not cluster.links.cuts
    victim.tamper()
    assert cluster.links.cuts == [(*pair, False)]
    assert cluster.links.is_whole


def test_the_task_manager_to_be_cut_off_is_one_with_a_connection_if_there_is_one(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    cluster._pids["taskmanager-2"] = 14
    texts = {tampering(cluster).victim(Target.LINK_TASKMANAGERS, LEADER, BUSY, random.Random(n)).text for n in range(9)}
    assert len(texts) == 2
    assert all("carries nothing now" in text for text in texts)
    cluster.links.others = {"taskmanager-2": {"taskmanager-0"}}
    texts = {tampering(cluster).victim(Target.LINK_TASKMANAGERS, LEADER, BUSY, random.Random(n)).text for n in range(9)}
    assert texts == {"the link between taskmanager-0 and taskmanager-2, cut for 6 s"}


def test_the_seed_decides_which_direction_of_a_link_is_cut(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    for seed in range(20):
        victim = tampering(cluster).victim(Target.ONE_WAY_LEADER_ZOOKEEPER, LEADER, BUSY, random.Random(seed))
        assert victim.tamper is not None
        victim.tamper()
        one, other, _ = cluster.links.cuts[-1]
        assert f"from {one} to {other}" in victim.text
    both = {("coordinator-1", "zookeeper-2", True), ("zookeeper-2", "coordinator-1", True)}
    assert set(cluster.links.cuts) == both


def test_a_link_of_a_leader_that_has_no_connection_is_not_cut(tmp_path: Path) -> None:
    with pytest.raises(DrillError, match="coordinator-0 has no connection to ZooKeeper"):
        tampering(Cluster(tmp_path)).victim(Target.LINK_LEADER_ZOOKEEPER, 10, BUSY, random.Random(1))


def test_a_drill_that_is_ended_while_a_link_is_cut_heals_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(tmp_path)

    def interrupted(_seconds: float) -> bool:
        assert not cluster.links.is_whole
        raise KeyboardInterrupt

    monkeypatch.setattr("lockgate_devtools.drill.tampering._never.wait", interrupted)
    victim = tampering(cluster).victim(Target.LINK_TASKMANAGERS, LEADER, BUSY, random.Random(1))
    assert victim.tamper is not None
    with pytest.raises(KeyboardInterrupt):
        victim.tamper()
    assert cluster.links.is_whole


def test_a_clock_is_off_until_it_is_repaired(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(tmp_path, busy=os.getpid())
    monkeypatch.setenv(VARIABLE, prepare(cluster.directory)[VARIABLE])
    place, right_ms = tampering(cluster), unix_ms()
    victim = place.victim(Target.TASKMANAGER_CLOCK, LEADER, os.getpid(), random.Random(1))
    assert victim.tamper is not None
    victim.tamper()
    assert abs(unix_ms() - right_ms) == pytest.approx(CLOCK_OFF_S * 1_000, abs=60_000)
    place.repair()
    assert unix_ms() == pytest.approx(right_ms, abs=60_000)


def test_a_storage_is_full_for_every_process_and_then_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(tmp_path, busy=os.getpid())
    monkeypatch.setenv(VARIABLE, prepare(cluster.directory)[VARIABLE])
    state = locate(f"{cluster.storage}/state")

    def look(_seconds: float) -> bool:
        with pytest.raises(OSError, match="No space left"):
            write_durably(state, b"state")
        return False

    monkeypatch.setattr("lockgate_devtools.drill.tampering._never.wait", look)
    victim = tampering(cluster).victim(Target.FULL_STORAGE, LEADER, BUSY, random.Random(1))
    assert victim.tamper is not None
    victim.tamper()
    write_durably(state, b"state")


def test_a_drill_that_is_ended_while_the_storage_is_away_puts_it_back(tmp_path: Path) -> None:
    storage = tmp_path / "storage"
    storage.mkdir()
    (storage / "snapshot").touch()

    def interrupted(_seconds: float) -> bool:
        assert storage.is_file(), "no writer can make a folder there"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        take_away(storage, interrupted)
    assert [path.name for path in tmp_path.rglob("*")] == ["storage", "snapshot"]
