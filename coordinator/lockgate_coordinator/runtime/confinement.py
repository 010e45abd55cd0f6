"""What a job may name whose author may not run code, as far as the leader can tell.

Task managers check it again, where the files are, with the settings of their own.
"""

from __future__ import annotations

from collections.abc import Iterator

from lockgate_common.masking import masked
from lockgate_common.places import Places, cluster_folder
from lockgate_proto.messages import (
    DeltaSink,
    FileSink,
    FileSource,
    FilesystemBackend,
    JobGraph,
    RocksdbBackend,
    SqlSink,
    StateBackend,
)

from lockgate_coordinator.graph.destinations import sqlite_path
from lockgate_coordinator.runtime.settings import CoordinatorSettings


def places_of(settings: CoordinatorSettings) -> Places:
    """What is private on a coordinator's machine, and the cluster's folder in the storage."""
    storage, tls = cluster_folder(settings.storage, settings.cluster), settings.credentials.tls
    return Places((storage, settings.tokens_file, tls.key if tls else "", *settings.private))


def trespass(graph: JobGraph, places: Places) -> str:
    """The first operator that uses a place which it may not use, as a sentence without its end; "" for none."""
    for subject, path, writes, is_path in _named(graph):
        if problem := (places.path_problem if is_path else places.problem)(path, writes=writes):
            return f"{subject} {'writes' if writes else 'reads'} {masked(path)} ({problem})"
    return ""


def _named(graph: JobGraph) -> Iterator[tuple[str, str, bool, bool]]:
    """Subject, path or URI, whether it is written, and whether it is opened as a path even if it looks like a URI."""
    backend = (graph.state_backend or StateBackend()).backend
    if isinstance(backend, FilesystemBackend | RocksdbBackend) and backend.uri:
        yield "the state backend", backend.uri, True, False
    for vertex in graph.vertices:
        for operator in vertex.operators:
            subject = f"operator {operator.id!r}"
            match operator.kind:
                case FileSource(path=path):
                    yield subject, path, False, False
                case FileSink(path=path) | DeltaSink(uri=path):
                    yield subject, path, True, False
                case SqlSink(url=url) if path := sqlite_path(url):
                    yield subject, path, True, True
