"""A drill kills by process id: only a process that has shown that it is the cluster's."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lockgate_devtools.drill.arena import DrillError, Victim
from lockgate_devtools.drill.identity import listens_at
from lockgate_devtools.drill.model import Target
from lockgate_devtools.drill.processes import ProcessArena
from lockgate_proto.messages import ClusterStatus, CoordinatorStatus, JobStatus, LeaderRecord, TaskManagerStatus

LISTEN = "import socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); input()"
ELSEWHERE = "192.0.2.1"  # in a network that is for documentation


class Process:
    """A process that listens."""

    def __init__(self) -> None:
        command = [sys.executable, "-c", LISTEN]
        self.child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.child.stdout is not None
        self.pid, self.port = self.child.pid, int(self.child.stdout.readline())
        self.address = f"127.0.0.1:{self.port}"

    def end(self) -> int:
        """Its exit status."""
        self.child.kill()
        self.child.communicate()
        return self.child.returncode


@pytest.fixture
def first() -> Iterator[Process]:
    process = Process()
    yield process
    process.end()


@pytest.fixture
def other() -> Iterator[Process]:
    process = Process()
    yield process
    process.end()


def test_the_holder_of_the_port_is_the_process(first: Process, other: Process) -> None:
    assert listens_at(first.pid, first.address)
    assert listens_at(first.pid, f"localhost:{first.port}")
    assert not listens_at(other.pid, first.address)
    assert not listens_at(os.getpid(), first.address)


def test_the_same_number_and_port_on_another_host_is_another_process(first: Process) -> None:
    assert not listens_at(first.pid, f"{ELSEWHERE}:{first.port}")
    assert not listens_at(first.pid, f"coordinator-1.invalid:{first.port}")
    assert not listens_at(first.pid, "nonsense")


def test_a_connection_to_the_port_is_not_the_port(first: Process) -> None:
    with socket.create_connection(("127.0.0.1", first.port)):
        assert not listens_at(os.getpid(), first.address)


def test_an_ended_process_is_not_found(first: Process) -> None:
    first.end()
    assert not listens_at(first.pid, first.address)


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_a_dual_stack_listener_counts() -> None:
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as both:
        assert listens_at(os.getpid(), f"127.0.0.1:{both.getsockname()[1]}")


class Announcing:
    """A client of a cluster that says where its processes are."""

    def __init__(self, leader: tuple[str, int], standby: tuple[str, int], manager: tuple[str, int]) -> None:
        lead = LeaderRecord(1, leader[0], "ab", leader[1], "c-1", 0)
        coordinators = (CoordinatorStatus("c-1", *leader), CoordinatorStatus("c-2", *standby))
        self.status = ClusterStatus(
            leader=lead, coordinators=coordinators, task_managers=(TaskManagerStatus("tm", *manager),)
        )

    def cluster(self) -> ClusterStatus:
        return self.status


def arena(leader: tuple[str, int], other: Process) -> ProcessArena:
    made: Any = Announcing(leader, (other.address, other.pid), (other.address, other.pid))
    return ProcessArena(made, None, Path("unused"))


@pytest.mark.parametrize("host", ["coordinator-1.invalid", ELSEWHERE])
def test_a_cluster_in_containers_is_refused_although_its_pids_are_alive_here(
    first: Process, other: Process, host: str
) -> None:
    with pytest.raises(DrillError) as refused:
        arena((f"{host}:{first.port}", first.pid), other).survey(Target.LEADER)
    assert str(refused.value).endswith(f"; these processes do not listen here: {host}:{first.port} (pid {first.pid})")
    assert first.child.poll() is None


def test_a_cluster_of_this_machine_is_taken_and_its_leader_killed(first: Process, other: Process) -> None:
    place = arena((first.address, first.pid), other)
    place.survey(Target.LEADER)
    victim = place.victim(Target.LEADER, JobStatus("job"), random.Random(1))
    place.kill(victim)
    assert first.child.wait() == -signal.SIGKILL
    standby = place.victim(Target.STANDBY, JobStatus("job"), random.Random(1))
    assert (standby.pid, standby.address) == (other.pid, other.address)


def test_a_process_that_has_got_the_pid_meanwhile_is_spared(first: Process, other: Process) -> None:
    place = arena((first.address, first.pid), other)
    with pytest.raises(DrillError, match="is no longer leader c-1; nothing was killed"):
        place.kill(Victim(other.pid, "leader c-1", address=first.address))
    assert other.child.poll() is None
