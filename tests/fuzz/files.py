"""Readers of files that users or earlier attackers have written: graphs, settings, credentials."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from lockgate_common.json_input import JsonError, parse_json
from lockgate_common.proof import Peer, answer_to
from lockgate_common.security import Credentials, SecurityError, load_secret, load_token
from lockgate_common.token import Token, check_of, parse_token, presented_token
from lockgate_common.token_book import TokenBook, TokenFileError, issue, read_entries
from lockgate_proto.codec import encode, to_json

from lockgate import Job, count, tumbling
from lockgate.client.target import find_cluster
from lockgate.errors import SettingsError
from lockgate.pipeline.graph_file import GraphFileError, graph_text, read_graph
from lockgate.settings import load_settings
from tests.fuzz.target import Target

SECRET = "the secret of the fuzzed cluster"
ME = Peer("127.0.0.1:7070", "00" * 16)
METHOD = "/lockgate.v1.JobService/List"
SETTINGS = b"""
[cluster]
name = "default"
coordinators = ["a:7070", "b:7070"]

[zookeeper]
hosts = "a:2181,b:2181"
session_timeout_ms = 4000

[taskmanager]
slots = 2
spark_options = { "spark.driver.memory" = "2g" }

[security]
secret_file = "secret"
"""


def targets(folder: Path) -> list[Target]:
    """folder: an empty one for the files."""
    return [
        Target("json", parse_json, [b'{"a": [1, 2.5, null, "x"], "b": {"c": true}}', b"[[[[]]]]"], (JsonError,)),
        *_graph_files(folder),
        Target("cluster.json", _in_file(folder / "cluster" / "cluster.json", _cluster), _cluster_files(), _SETTINGS),
        Target("lockgate.toml", _in_file(folder / "lockgate.toml", load_settings), [SETTINGS], _SETTINGS),
        Target("spark options", _spark_options, [b'{"spark.driver.memory": "2g"}', b"{}"], _SETTINGS),
        *_credentials(folder),
    ]


_SETTINGS = (SettingsError,)


def _in_file(path: Path, read: Callable[[Path], object]) -> Callable[[bytes], object]:
    """Reads the bytes out of a file, which only its owner can read."""
    path.parent.mkdir(exist_ok=True)
    path.touch(mode=0o600)

    def feed(data: bytes) -> object:
        path.write_bytes(data)
        return read(path)

    return feed


def _graph_files(folder: Path) -> list[Target]:
    job = Job("words", parallelism=2)
    words = job.read_text("/input").sql("SELECT explode(split(value, ' ')) AS word FROM input")
    words.key_by("word").aggregate(n=count()).write_parquet("/output")
    early = Job("early")
    timed = (
        early.read_json("/input", schema="at TIMESTAMP, user STRING")
        .event_time("at", out_of_order="1 second")
        .key_by("user")
    )
    windows = timed.window(tumbling("1 minute")).trigger(every_count=3, every="10 seconds", purge=True)
    windows.aggregate(n=count()).write_parquet("/output")
    graphs = (job.graph(), early.graph())
    read = (
        ("graph.json", [graph_text(graph).encode() for graph in graphs]),
        ("graph.pb", [encode(graph) for graph in graphs]),
    )
    return [
        Target(name, _in_file(folder / name, lambda path: to_json(read_graph(path))), samples, (GraphFileError,))
        for name, samples in read
    ]


def _cluster(path: Path) -> object:
    return find_cluster(str(path.parent))


def _cluster_files() -> list[bytes]:
    known = {"coordinators": ["127.0.0.1:7070", "127.0.0.1:7071"], "zookeeper": "127.0.0.1:2181", "pids": [1, 2]}
    return [json.dumps(known).encode(), json.dumps(known, indent=2).encode()]


def _spark_options(data: bytes) -> object:
    text = data.decode("utf-8", "surrogateescape")  # as the environment holds it
    return load_settings(environment={"LOCKGATE_TASKMANAGER_SPARK_OPTIONS": text})


def _credentials(folder: Path) -> list[Target]:
    book = folder / "tokens.json"
    token = issue(book, SECRET, "reader", ("read",), 0)
    issue(book, SECRET, "operator", ("operate", "submit"), 2_000_000_000)
    samples = [book.read_bytes()]

    def tokens(path: Path) -> object:
        TokenBook(path, SECRET).principal(Token("0" * 12, token.random, check_of(SECRET, "0" * 12)))
        return [entry.principal for entry in read_entries(path)]

    shown = [value.encode() for _, value in Credentials(token=token).introduction(ME, METHOD).metadata]
    shown += [value.encode() for _, value in Credentials(SECRET).introduction(ME, METHOD).metadata]
    return [
        Target("tokens.json", _in_file(book, tokens), samples, (TokenFileError,)),
        Target("token", _in_file(folder / "token", load_token), [str(token).encode()], (SecurityError,)),
        Target("secret", _in_file(folder / "secret", _secret), [SECRET.encode()], (SecurityError,)),
        Target("authorization", _authorization, [*shown, f"Bearer {token}".encode()], (Stranger,)),
    ]


def _secret(path: Path) -> object:
    return load_secret(path, create=False)


class Stranger(Exception):
    """Metadata that proves nothing."""


def _authorization(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    parse_token(text)
    if answer_to(SECRET, ME, METHOD, text) is None and presented_token(SECRET, ME, METHOD, text) is None:
        raise Stranger("it proves nothing")
