"""A client with addresses of coordinators opens what it needs for ZooKeeper when it asks ZooKeeper."""

from __future__ import annotations

import subprocess
import sys

import pytest
from lockgate_common import ports
from lockgate_proto.messages import LeaderRecord

from lockgate.client.deadline import Deadline
from lockgate.client.directory import CombinedDirectory, LaterDirectory
from lockgate.client.errors import ClusterUnreachable


class Known:
    """A directory that has an answer, or none."""

    def __init__(self, address: str = "") -> None:
        self.record = LeaderRecord(address=address)
        self.is_closed = False

    def locate(self, deadline: Deadline) -> LeaderRecord:  # noqa: ARG002
        if not self.record.address:
            raise ClusterUnreachable("no answer", silent=True)
        return self.record

    def close(self) -> None:
        self.is_closed = True


def test_it_is_made_when_the_coordinators_know_no_leader_and_only_once() -> None:
    coordinators, zookeeper = Known("a:1"), Known("b:1")
    made: list[Known] = []

    def make() -> Known:
        made.append(zookeeper)
        return zookeeper

    combined = CombinedDirectory(coordinators, LaterDirectory(make))
    assert combined.locate(Deadline(1_000)).address == "a:1"
    assert not made
    coordinators.record = LeaderRecord()
    for _ in range(2):
        assert combined.locate(Deadline(1_000)).address == "b:1"
    assert made == [zookeeper]
    combined.close()
    assert zookeeper.is_closed


def test_after_the_close_it_is_not_made() -> None:
    def make() -> Known:
        raise AssertionError("it is closed")

    later = LaterDirectory(make)
    later.close()
    with pytest.raises(ClusterUnreachable, match="closed"):
        later.locate(Deadline(1_000))


def test_a_command_does_not_import_the_client_of_zookeeper_before_it_needs_it() -> None:
    program = f"""
import sys
from lockgate.client import Client
with Client(["127.0.0.1:{ports.choose("127.0.0.1", 1)[0]}"], "127.0.0.1:1"):
    print([name for name in sys.modules if name.startswith(("kazoo", "lockgate_ha."))])
"""
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "[]\n"
