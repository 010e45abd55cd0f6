"""Lockgate: streaming jobs on PySpark that outlive their coordinator.

>>> from lockgate import Job, count
>>> job = Job("wordcount", parallelism=2)
>>> words = job.read_text("books").sql("SELECT explode(split(value, ' ')) AS word FROM input")
>>> words.key_by("word").aggregate(n=count()).write_sql("sqlite:///counts.db", "counts", key="word")
>>> job.submit()
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lockgate.client import Client, ClientError, JobFailed, JobHandle
    from lockgate.connectors import CustomSink, CustomSource, Transaction
    from lockgate.pipeline import Job, PipelineError, Restart
    from lockgate.pipeline.counted import CountWindow
    from lockgate.pipeline.csv_options import CSV_OPTIONS
    from lockgate.pipeline.functions import avg, count, max_, min_, sum_
    from lockgate.pipeline.on_error import dead_letter
    from lockgate.pipeline.processing import ListState, MapState, ProcessFunction, ValueState
    from lockgate.pipeline.stragglers import stragglers
    from lockgate.pipeline.windows import TimeWindow, cumulating, session, sliding, tumbling

__all__ = [
    "CSV_OPTIONS",
    "Client",
    "ClientError",
    "CountWindow",
    "CustomSink",
    "CustomSource",
    "Job",
    "JobFailed",
    "JobHandle",
    "ListState",
    "MapState",
    "PipelineError",
    "ProcessFunction",
    "Restart",
    "TimeWindow",
    "Transaction",
    "ValueState",
    "avg",
    "count",
    "cumulating",
    "dead_letter",
    "max_",
    "min_",
    "session",
    "sliding",
    "stragglers",
    "sum_",
    "tumbling",
]

# Imported lazily, so that `lockgate --help` does not wait for gRPC and protobuf.
_HOMES = {
    "CSV_OPTIONS": "lockgate.pipeline.csv_options",
    "Client": "lockgate.client",
    "ClientError": "lockgate.client",
    "JobFailed": "lockgate.client",
    "JobHandle": "lockgate.client",
    "CustomSink": "lockgate.connectors",
    "CustomSource": "lockgate.connectors",
    "Transaction": "lockgate.connectors",
    "CountWindow": "lockgate.pipeline.counted",
    "Job": "lockgate.pipeline",
    "ListState": "lockgate.pipeline.processing",
    "MapState": "lockgate.pipeline.processing",
    "PipelineError": "lockgate.pipeline",
    "ProcessFunction": "lockgate.pipeline.processing",
    "Restart": "lockgate.pipeline",
    "TimeWindow": "lockgate.pipeline.windows",
    "ValueState": "lockgate.pipeline.processing",
    "avg": "lockgate.pipeline.functions",
    "count": "lockgate.pipeline.functions",
    "cumulating": "lockgate.pipeline.windows",
    "dead_letter": "lockgate.pipeline.on_error",
    "max_": "lockgate.pipeline.functions",
    "min_": "lockgate.pipeline.functions",
    "session": "lockgate.pipeline.windows",
    "sliding": "lockgate.pipeline.windows",
    "stragglers": "lockgate.pipeline.stragglers",
    "sum_": "lockgate.pipeline.functions",
    "tumbling": "lockgate.pipeline.windows",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'lockgate' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
