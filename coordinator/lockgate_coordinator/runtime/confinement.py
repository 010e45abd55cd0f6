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
from lockgate_coordinator.runtime.metadata_files import metadata_uri
from lockgate_coordinator.runtime.settings import CoordinatorSettings


class Confinement:
    """Of the jobs that a coordinator with these settings accepts."""

    def __init__(self, settings: CoordinatorSettings) -> None:
        """Private are files of this machine, and the cluster's folder in the storage."""
        folder, tls = cluster_folder(settings.storage, settings.cluster), settings.credentials.tls
        self._places = Places((folder, settings.tokens_file, tls.key if tls else "", *settings.private))
        self._own_snapshots = Places(folders=(folder,))

    def trespass(self, graph: JobGraph, restore_from: str) -> str:
        """The first place that is used and may not be, as a sentence without its end; "" for none."""
        for subject, path, writes, is_path in _named(graph):
            if problem := (self._places.path_problem if is_path else self._places.problem)(path, writes=writes):
                return f"{subject} {'writes' if writes else 'reads'} {masked(path)} ({problem})"
        return self._start_problem(restore_from) if restore_from else ""

    def _start_problem(self, pointer: str) -> str:
        """A job starts from a snapshot in the cluster's folder, too, which it may not use otherwise."""
        file = metadata_uri(pointer)
        if not self._own_snapshots.problem(file):
            return ""
        problem = self._places.problem(file)
        return f"restore_from is {masked(pointer)} ({problem})" if problem else ""


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
