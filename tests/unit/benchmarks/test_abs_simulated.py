"""The model of benchmarks.abs_simulated: what snapshots must cost, and what they cannot."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.abs_simulated import VERTICES, Costs, Snapshots, simulated, slowdown

COSTS = Costs(
    record_us=(0.1, 0.1, 0.2, 0.1),
    sync_ms=(0.5, 0.5, 1.0, 2.0),
    store_ms=(5.0, 5.0, 8.0, 12.0),
    commit_ms=20.0,
    leader_ms=15.0,
    leader_subtask_ms=0.06,
)
EVEN = replace(COSTS, spread=0.0)
FREE = replace(EVEN, sync_ms=(0.0,) * VERTICES, store_ms=(0.0,) * VERTICES, commit_ms=0.0, leader_ms=0.0)
SECONDS = 12.0
RECORDS = SECONDS * 1e6 / sum(COSTS.record_us)


@pytest.mark.parametrize("nodes", [1, 2, 7])
def test_without_snapshots_a_run_takes_what_its_records_cost(nodes: int) -> None:
    found = simulated(EVEN, nodes, RECORDS, None)
    assert found.seconds == pytest.approx(SECONDS, rel=0.02)  # but for the first and last batches
    assert found.records == pytest.approx(nodes * RECORDS)
    assert found.durations_ms == ()


@pytest.mark.parametrize("stops", [False, True])
@pytest.mark.parametrize("nodes", [1, 2, 5])
def test_snapshots_lose_no_record(nodes: int, stops: bool) -> None:
    found = simulated(COSTS, nodes, RECORDS, Snapshots(500, stops))
    assert found.records == pytest.approx(nodes * RECORDS)
    assert len(found.durations_ms) >= 4


def test_a_snapshot_that_comes_after_the_end_costs_nothing() -> None:
    assert slowdown(COSTS, 4, Snapshots(3_600_000, False), SECONDS, 1) == 0
    assert slowdown(COSTS, 4, Snapshots(3_600_000, True), SECONDS, 1) == 0


def test_free_snapshots_on_one_node_cost_nothing() -> None:
    assert slowdown(replace(FREE, channel_ms=0.0, leader_subtask_ms=0.0), 1, Snapshots(1000, False), SECONDS) < 1e-3


def test_on_one_node_each_snapshot_costs_its_pauses_and_commits() -> None:
    """Nothing waits for a second channel there, so the sum of its parts is known."""
    found = simulated(EVEN, 1, RECORDS, Snapshots(1000, False))
    each_s = (sum(COSTS.sync_ms) + COSTS.commit_ms) / 1000
    assert found.seconds - SECONDS == pytest.approx(len(found.durations_ms) * each_s, rel=0.25)
    assert max(found.alignments_ms) == 0


def test_on_one_node_the_world_stops_until_the_state_is_stored() -> None:
    """The node has nothing to do from the last batch before the barrier until the leader's word."""
    found = simulated(EVEN, 1, RECORDS, Snapshots(1000, True))
    idle_ms = COSTS.store_ms[-1] + COSTS.leader_ms + VERTICES * (COSTS.leader_subtask_ms + EVEN.channel_ms)
    each_s = (sum(COSTS.sync_ms) + COSTS.commit_ms + idle_ms) / 1000
    assert found.seconds - SECONDS == pytest.approx(len(found.durations_ms) * each_s, rel=0.25)


@pytest.mark.parametrize("stops", [False, True])
@pytest.mark.parametrize("nodes", [1, 5])
def test_more_frequent_snapshots_cost_more(nodes: int, stops: bool) -> None:
    costs = [slowdown(COSTS, nodes, Snapshots(interval, stops), SECONDS) for interval in (500, 2000, 8000)]
    assert costs == sorted(costs, reverse=True)
    assert costs[0] > 2 * costs[-1]


@pytest.mark.parametrize("nodes", [1, 2, 10])
def test_to_stop_the_world_costs_more(nodes: int) -> None:
    barriers, stopped = (slowdown(COSTS, nodes, Snapshots(1000, stops), SECONDS) for stops in (False, True))
    assert stopped > 1.5 * barriers


def test_channels_wait_for_slower_nodes() -> None:
    uneven, even = (simulated(costs, 5, RECORDS, Snapshots(1000, False)) for costs in (COSTS, EVEN))
    assert min(uneven.alignments_ms) > 0
    assert sum(uneven.alignments_ms) / len(uneven.alignments_ms) > sum(even.alignments_ms) / len(even.alignments_ms)


def test_a_slow_storage_stops_only_the_stopped_world() -> None:
    slow = replace(EVEN, store_ms=(300.0,) * VERTICES)
    stopped, barriers = Snapshots(1000, True), Snapshots(1000, False)
    assert slowdown(slow, 2, barriers, SECONDS) == pytest.approx(slowdown(EVEN, 2, barriers, SECONDS), abs=0.02)
    assert slowdown(slow, 2, stopped, SECONDS) > slowdown(EVEN, 2, stopped, SECONDS) + 0.15


def test_the_same_seed_gives_the_same_run() -> None:
    snapshots = Snapshots(1000, False)
    assert simulated(COSTS, 3, RECORDS, snapshots, 4) == simulated(COSTS, 3, RECORDS, snapshots, 4)
    assert simulated(COSTS, 3, RECORDS, snapshots, 4) != simulated(COSTS, 3, RECORDS, snapshots, 5)
