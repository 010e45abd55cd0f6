"""The points at which a chaos test can kill a coordinator, see `lockgate_common.fault_points`."""

from __future__ import annotations

from lockgate_common.fault_points import FaultPoints

POINTS = (
    "before-metadata-write",
    "after-metadata-write",
    "before-zookeeper-commit",
    "after-zookeeper-commit",
    "before-notify",
    "after-notify",
    "after-attempt-persist",
    "before-result",
)

ORDER_POINTS = ("before-orders-persist", "after-orders-persist")
"""Passed when a job is rescaled or stopped, and never otherwise."""

SUBMISSION_POINTS = ("before-submission-persist", "after-submission-persist")
"""Passed when a new job is submitted."""

point = FaultPoints(POINTS + ORDER_POINTS + SUBMISSION_POINTS).point
