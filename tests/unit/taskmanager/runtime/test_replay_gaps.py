"""What a subtask keeps for receivers that may start again, and what it says of it to the leader."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest
from lockgate_common.security import Credentials
from lockgate_proto.layout import layout_for
from lockgate_proto.messages import (
    AttemptId,
    Barrier,
    JobGraph,
    Participant,
    Partitioning,
    ReplayGap,
    SubtaskId,
    TaskManagerFailover,
)
from lockgate_taskmanager.exchange.elements import size_of
from lockgate_taskmanager.exchange.peers import PeerChannels
from lockgate_taskmanager.exchange.replay_log import Kept
from lockgate_taskmanager.runtime.output_set import OutputSet
from lockgate_taskmanager.runtime.rejoining import Rejoining
from lockgate_taskmanager.runtime.wiring import Wiring
from lockgate_taskmanager.task.program import Emission, ProgramContext

from tests.unit.coordinator.jobs import word_count

ATTEMPT = AttemptId("job", "run", 1)
PLACES = [Participant(f"tm-{number}", f"127.0.0.1:{number + 1}") for number in range(3)]
RECORD = pa.table({"v": [1]})
SHARE = size_of(Barrier(4)) + 2 * size_of(RECORD)
LARGE = 1 << 20


def graph() -> JobGraph:
    """Two components of three subtasks a vertex. The second one distributes records in turn, so it keeps nothing."""
    words = word_count(parallelism=3)
    (read, count), (edge,) = words.vertices, words.edges
    more = (replace(read, id="lines"), replace(count, id="copy"))
    spread = replace(edge, source="lines", target="copy", partitioning=Partitioning.REBALANCE)
    failover = TaskManagerFailover.TASK_MANAGER_FAILOVER_PART
    return replace(words, vertices=(read, count, *more), edges=(edge, spread), task_manager_failover=failover)


@pytest.fixture
def peers() -> Iterator[PeerChannels]:
    made = PeerChannels(Credentials())
    yield made
    made.close()


def sender(vertex: str, peers: PeerChannels, log_bytes: int = LARGE) -> tuple[Rejoining, OutputSet]:
    """In slot 0, the receivers in slots 0, 1 and 2 on three task managers. Nothing is connected."""
    me, job = SubtaskId(ATTEMPT, vertex, 0), graph()
    rejoining = Rejoining(ProgramContext(me, job, ""), print, lambda: 1)
    wiring = Wiring(ATTEMPT, layout_for(job, PLACES), "tm-x", log_bytes)
    return rejoining, wiring.outputs(me, {}, peers, 1, print, absent=rejoining.absent)


def test_the_channels_of_a_subtask_share_what_it_may_keep(peers: PeerChannels) -> None:
    _, outputs = sender("read", peers, 3 * 1_000)
    outputs.emit([Emission(0, 1, RECORD)])
    kept = dict(outputs.kept())
    assert [kept[slot] for slot in (0, 1, 2)] == [Kept(0, 1_000, 0), Kept(size_of(RECORD), 1_000, 0), Kept(0, 1_000, 0)]


def test_the_leader_learns_which_channels_cannot_send_again_and_from_where_they_can(peers: PeerChannels) -> None:
    rejoining, outputs = sender("read", peers, 3 * SHARE)
    outputs.broadcast(Barrier(4))
    outputs.emit([Emission(0, 1, RECORD), Emission(0, 2, RECORD)])
    assert rejoining.gap(outputs) is None
    outputs.emit([Emission(0, 2, RECORD)])
    outputs.emit([Emission(0, 2, RECORD)])
    assert rejoining.gap(outputs) == ReplayGap((2,), 5, SHARE)
    outputs.broadcast(Barrier(5))
    assert rejoining.gap(outputs) == ReplayGap((2,), 5, SHARE)
    outputs.completed(5)
    assert rejoining.gap(outputs) is None


def test_a_heartbeat_does_not_list_thousands_of_slots(peers: PeerChannels, monkeypatch: pytest.MonkeyPatch) -> None:
    rejoining, outputs = sender("read", peers, 0)
    outputs.emit([Emission(0, 1, RECORD), Emission(0, 2, RECORD)])
    assert rejoining.gap(outputs) == ReplayGap((1, 2), 1, 0)
    monkeypatch.setattr("lockgate_taskmanager.runtime.rejoining._MOST_SLOTS", 1)
    assert rejoining.gap(outputs) == ReplayGap((), 1, 0)


def test_a_component_that_restarts_as_a_whole_keeps_nothing(peers: PeerChannels) -> None:
    rejoining, outputs = sender("lines", peers, 3 * SHARE)
    outputs.emit([Emission(1, 2, RECORD)] * 3)
    assert (rejoining.absent, outputs.kept(), rejoining.gap(outputs)) == (None, (), None)
