"""Heartbeats cost a leader the same in all, however many task managers it has."""

from __future__ import annotations

from lockgate_coordinator.runtime.heartbeat_pace import A_TASK_MANAGER_MS, HeartbeatPace


def test_a_small_cluster_has_the_interval_of_its_settings() -> None:
    assert HeartbeatPace(500, 3_000).interval_ms(0) == 500
    assert HeartbeatPace(500, 3_000).interval_ms(500 // A_TASK_MANAGER_MS) == 500


def test_the_interval_grows_with_the_task_managers() -> None:
    assert HeartbeatPace(500, 60_000).interval_ms(1_000) == 1_000 * A_TASK_MANAGER_MS


def test_three_heartbeats_fit_into_the_timeout_however_many_task_managers_there_are() -> None:
    assert HeartbeatPace(500, 3_000).interval_ms(10_000) == 1_000


def test_slow_heartbeats_of_the_settings_stay_as_they_are() -> None:
    assert HeartbeatPace(2_000, 4_000).interval_ms(10_000) == 2_000
