"""Leaders of one attempt number their requests for splits alike, so that a late answer to one is taken by the next."""

from __future__ import annotations

from lockgate_coordinator.job.attempt import Attempt

from tests.mutation.rewrite import rewrite

rewrite(Attempt, "take_over", "(self._token % _TOKENS) * _ROUNDS + 1", "1")
