"""How the cost of a control plane grows with the number of subtasks."""

from __future__ import annotations

from benchmarks.control_plane import growth_rows


def test_each_column_is_compared_once_both_sizes_were_measured() -> None:
    few = {"subtasks": 1_000, "task_managers": 100, "checkpoint_ms": 100.0, "deployed_ms": 100.0, "rss_mib": 0.0}
    many = {
        "subtasks": 10_000,
        "task_managers": 1_000,
        "checkpoint_ms": 1_200.0,
        "deployed_ms": 1_300.0,
        "rss_mib": 9.0,
    }
    found = [(row.name, row.reached) for row in growth_rows({10_000: many, 1_000: few})]
    assert found == [
        ("10,000 subtasks to 1,000: checkpoint_ms", True),
        ("10,000 subtasks to 1,000: deployed_ms", False),
    ]


def test_other_sizes_are_not_compared() -> None:
    assert growth_rows({1_000: {"checkpoint_ms": 1.0}, 5_000: {"checkpoint_ms": 1.0}}) == ()
