"""A new leader adopts what runs on beside subtasks that were replaced and do not know it."""

from __future__ import annotations

from lockgate_coordinator.job.adoption import Adoption

from tests.mutation.rewrite import rewrite

rewrite(Adoption, "problem", "self._stray(ids, places)", "''")
