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
    from lockgate.functions import avg, count, max_, min_, sum_
    from lockgate.pipeline import Job, PipelineError, Restart

__all__ = [
    "Client",
    "ClientError",
    "Job",
    "JobFailed",
    "JobHandle",
    "PipelineError",
    "Restart",
    "avg",
    "count",
    "max_",
    "min_",
    "sum_",
]

# Imported when asked for, so that `lockgate --help` need not wait for gRPC and protobuf.
_HOMES = {
    "Client": "lockgate.client",
    "ClientError": "lockgate.client",
    "JobFailed": "lockgate.client",
    "JobHandle": "lockgate.client",
    "Job": "lockgate.pipeline",
    "PipelineError": "lockgate.pipeline",
    "Restart": "lockgate.pipeline",
    "avg": "lockgate.functions",
    "count": "lockgate.functions",
    "max_": "lockgate.functions",
    "min_": "lockgate.functions",
    "sum_": "lockgate.functions",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'lockgate' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
