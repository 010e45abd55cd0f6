"""Fault points of a task manager, see `lockgate_common.fault_points`."""

from __future__ import annotations

from lockgate_common.fault_points import FaultPoints

POINTS = ("on-deploy", "before-upload", "after-upload", "before-ack", "before-commit", "after-commit")

point = FaultPoints(POINTS).point
