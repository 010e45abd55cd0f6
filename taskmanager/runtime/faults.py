"""The points at which a chaos test can make a task manager die, see `lockgate_process.fault_points`."""

from __future__ import annotations

from lockgate_process.fault_points import FaultPoints

POINTS = ("on-deploy", "before-upload", "after-upload", "before-ack", "before-commit", "after-commit")

point = FaultPoints(POINTS).point
