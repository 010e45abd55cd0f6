"""A file sink acknowledges a snapshot before what it has staged is on the disk."""

from __future__ import annotations

from lockgate_taskmanager.spark.sinks.staged import StagedSink

assert hasattr(StagedSink, "sync")
StagedSink.sync = lambda *_: None  # type: ignore[method-assign]
