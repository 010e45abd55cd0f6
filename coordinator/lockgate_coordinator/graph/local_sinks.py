"""Sinks that write to the host that a subtask happens to run on, where there are several hosts."""

from __future__ import annotations

from collections.abc import Iterable

from lockgate_common.masking import bare
from lockgate_proto.messages import DeltaSink, FileSink, JobGraph, SqlSink

from lockgate_coordinator.graph.destinations import local_folder, sqlite_path


def local_sinks(graph: JobGraph, addresses: Iterable[str]) -> tuple[str, ...]:
    """Sentences for the submitter; none where one host has everything. addresses: of the task managers, `host:port`."""
    hosts = {address.rpartition(":")[0] for address in addresses}
    if len(hosts) < 2:
        return ()
    found = []
    where = f"the task managers run on {len(hosts)} hosts"
    for operator in (operator for vertex in graph.vertices for operator in vertex.operators):
        match operator.kind:
            case SqlSink(url=url) if sqlite_path(url):
                found.append(
                    f"'{operator.id}' writes to an SQLite database, and {where}: each would have a file of its own "
                    "with a part of the rows. Write to PostgreSQL instead."
                )
            case FileSink(path=path) | DeltaSink(uri=path) if folder := local_folder(path):
                found.append(
                    f"'{operator.id}' writes to {bare(folder)}, and {where}: each would have a part of the rows, "
                    "unless the folder is on storage that all of them mount. Elsewhere write to an object store (s3://...)."
                )
    return tuple(found)
