"""The destinations of a job graph's sinks, normalized so that equal places have equal names.

Two jobs that write one folder or table by accident produce a mixture, and nothing in it shows that.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from lockgate_common.masking import bare
from lockgate_common.uris import LOCAL, scheme_of
from lockgate_proto.messages import DeltaSink, FileSink, JobGraph, Operator, SqlSink

_PORTS = {"postgresql": 5432}
_SQLITE = "sqlite"


@dataclass(frozen=True, slots=True)
class Destination:
    """The destination of one sink.

    place: equal for equal places. text: the same for people, without user and password. shared: the author allows other
    jobs to write there.
    """

    operator_id: str
    place: str
    text: str
    shared: bool


def destinations(graph: JobGraph) -> tuple[Destination, ...]:
    """The folders and tables that the graph's sinks write, one for each sink. Topics and functions have none.

    Symbolic links are not followed: they are on the task managers, and the leader may not see them.
    """
    found = (_destination(operator) for vertex in graph.vertices for operator in vertex.operators)
    return tuple(item for item in found if item is not None)


def clashes(wanted: Iterable[Destination], others: Mapping[str, Iterable[Destination]]) -> tuple[str, ...]:
    """Every sink that would write to the destination of another job, as sentences, unless its author allows it.

    others: by key, those of each job that has not ended.
    """
    taken = {
        destination.place: (key, destination.operator_id) for key, theirs in others.items() for destination in theirs
    }
    return tuple(
        f"Sink '{destination.operator_id}' writes {destination.text}, and so does sink "
        f"'{taken[destination.place][1]}' of job "
        f"'{taken[destination.place][0]}', which has not ended: the outputs would be mixed. Choose another "
        f"place, end that job first, or set shared=True at the sink if you want that."
        for destination in wanted
        if not destination.shared and destination.place in taken
    )


def sqlite_path(url: str) -> str:
    """The file in the SQLAlchemy URL of an SQLite database; "" if it is in memory or not SQLite."""
    scheme, _, rest = url.partition("://")
    path = unquote(rest.partition("?")[0].removeprefix("/"))  # as SQLAlchemy reads it
    return "" if scheme.partition("+")[0].lower() != _SQLITE or path == ":memory:" else path


def local_folder(path: str) -> str:
    """The path of a local folder; "" for one in an object store."""
    place = _folder(path)
    return "" if scheme_of(place) else place


def _destination(operator: Operator) -> Destination | None:
    match operator.kind:
        case FileSink(path=path, shared=shared):
            place = _folder(path)
            return Destination(operator.id, f"folder {place}", f"the folder {bare(place)}", shared)
        case DeltaSink(uri=uri, shared=shared):
            place = _folder(uri)
            return Destination(operator.id, f"folder {place}", f"the Delta table {bare(place)}", shared)
        case SqlSink(url=url, table=table, shared=shared):
            database, name = _database(url), table
            if not database.startswith(_SQLITE):
                name = table.removeprefix("public.")
            return Destination(operator.id, f"table {database} {name}", f"the table {name} of {database}", shared)
    return None


def _folder(path: str) -> str:
    scheme = scheme_of(path)
    if scheme in ("", LOCAL):
        return _local(unquote(urlsplit(path).path) if scheme else path)
    _, _, rest = path.partition("://")
    base, mark, options = rest.partition("?")
    store, slash, key = base.partition("/")
    name = posixpath.normpath(key) if key.strip("/") else ""
    scheme = scheme.replace("s3a", "s3").replace("s3n", "s3")
    return f"{scheme}://{store}{slash if name else ''}{name.lstrip('/')}{mark}{options}"


def _database(url: str) -> str:
    scheme, _, rest = url.partition("://")
    backend = scheme.partition("+")[0].lower()
    if backend == _SQLITE:
        return f"{_SQLITE}:{_local(sqlite_path(url))}"
    rest = rest.partition("?")[0]
    authority, _, database = rest.partition("/")
    host = authority.rpartition("@")[2].lower()
    name, colon, port = host.rpartition(":")
    if not (colon and port.isdecimal()):
        name, port = host, str(_PORTS.get(backend, 0))
    return f"{backend}://{name or 'localhost'}:{port}/{unquote(database)}"


def _local(path: str) -> str:
    return posixpath.normpath(f"/{path.lstrip('/')}" if path.startswith("/") else path)
