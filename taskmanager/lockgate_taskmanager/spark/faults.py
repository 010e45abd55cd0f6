"""Fault points of the Spark package, see `lockgate_common.fault_points`."""

from __future__ import annotations

from lockgate_common.fault_points import FaultPoints

POINTS = ("inside-commit",)

point = FaultPoints(POINTS).point
