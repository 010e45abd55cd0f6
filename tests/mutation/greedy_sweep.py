"""An attempt that starts removes every staged file but its own, its successor's too."""

from __future__ import annotations

from lockgate_taskmanager.spark.sinks.staged import StagedSink

from tests.mutation.rewrite import rewrite

_OLDER = "int(match.group(1)) < context.attempt"

rewrite(StagedSink, "_sweep", _OLDER, _OLDER.replace("<", "!="))
