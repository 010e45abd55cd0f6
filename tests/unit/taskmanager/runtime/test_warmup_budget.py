"""When a warm-up with small micro-batches is over, and how much of the time it takes."""

from __future__ import annotations

import pytest
from lockgate_taskmanager.runtime.process import small_batches_of
from lockgate_taskmanager.runtime.settings import TaskManagerSettings
from lockgate_taskmanager.runtime.warmup_budget import SHARE, SHARE_BESIDE_A_JOB, Budget, rest_s


def test_it_is_over_after_so_many_micro_batches() -> None:
    budget = Budget(batches=2, seconds=100.0)
    assert not budget.is_used_up
    budget.spend(0.1)
    assert not budget.is_used_up
    budget.spend(0.1)
    assert budget.is_used_up


def test_it_is_over_after_so_many_seconds_in_them() -> None:
    budget = Budget(batches=100, seconds=1.0)
    budget.spend(0.5)
    assert not budget.is_used_up
    budget.spend(0.5)
    assert budget.is_used_up, "however few they were: the machine is slow, or busy"


@pytest.mark.parametrize(
    ("share", "is_beside_a_job", "expected"),
    [(1.0, False, 1.0), (SHARE, False, SHARE), (1.0, True, SHARE_BESIDE_A_JOB), (0.01, True, 0.01)],
)
def test_a_rest_is_in_proportion_to_what_the_step_took(share: float, is_beside_a_job: bool, expected: float) -> None:
    assert 0.03 / (0.03 + rest_s(0.03, share, is_beside_a_job)) == pytest.approx(expected)


def test_nothing_is_left_once_it_was_closed() -> None:
    budget = Budget()
    budget.close()
    assert budget.is_used_up


@pytest.mark.spark
@pytest.mark.parametrize(
    ("master", "runs", "expected"),
    [("", 6, True), ("local[4]", 1, True), ("", 0, False), ("spark://h:7077", 6, False), ("sc://h:15002", 6, False)],
)
def test_only_a_task_manager_with_its_own_spark_has_a_budget(master: str, runs: int, expected: bool) -> None:
    settings = TaskManagerSettings("zk:2181", "/work", spark_master=master, warmup_runs=runs)
    assert (small_batches_of(settings) is not None) == expected
