"""Job graphs in files: protobuf bytes (.pb) and protobuf's JSON (.json)."""

from __future__ import annotations

from pathlib import Path

from google.protobuf import json_format
from lockgate_common.json_input import JsonError, parse_json
from lockgate_proto.codec import MalformedMessage, decode, encode, to_pb
from lockgate_proto.messages import JobGraph
from lockgate_proto.v1 import graph_pb2

from lockgate.errors import UserError


class GraphFileError(UserError):
    """The file is not a job graph."""


def read_graph(path: Path) -> JobGraph:
    """Reads a graph by its suffix. Raises GraphFileError."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise GraphFileError(f"cannot read {path}: {error.strerror}") from error
    try:
        if path.suffix == ".json":
            found = parse_json(content)
            if not isinstance(found, dict):
                raise JsonError("it is no object")
            content = json_format.ParseDict(found, graph_pb2.JobGraph()).SerializeToString()
        graph = decode(JobGraph, content)
    except (json_format.ParseError, MalformedMessage, JsonError) as error:
        raise GraphFileError(f"{path} is not a job graph: {error}") from error
    if not graph.vertices:
        raise GraphFileError(f"{path} contains a job graph without vertices")
    return graph


def graph_text(graph: JobGraph) -> str:
    """The graph in protobuf's JSON, which `read_graph` reads."""
    text: str = json_format.MessageToJson(to_pb(graph), preserving_proto_field_name=True)
    return text


def write_graph(graph: JobGraph, path: Path) -> None:
    """Writes a graph by its suffix. Raises GraphFileError."""
    try:
        path.write_bytes(graph_text(graph).encode() + b"\n" if path.suffix == ".json" else encode(graph))
    except OSError as error:
        raise GraphFileError(f"cannot write {path}: {error.strerror}") from error
