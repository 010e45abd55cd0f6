"""A source that has not come to where its receivers are takes part in checkpoints."""

from __future__ import annotations

from lockgate_taskmanager.runtime.rejoining import Rejoining

from tests.mutation.rewrite import rewrite

rewrite(Rejoining, "is_ready", " and not program.is_behind", "")
