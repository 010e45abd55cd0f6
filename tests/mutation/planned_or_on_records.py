"""Spark's exceptions count as known without any record, whenever they come."""

from __future__ import annotations

from lockgate_taskmanager.spark import errors
from lockgate_taskmanager.task.program import ProgramError, UserError


def _wrong(where: str, text: str, error: Exception) -> ProgramError:  # noqa: ARG001
    return UserError(f"{where}: {text}")


errors.on_data = _wrong
