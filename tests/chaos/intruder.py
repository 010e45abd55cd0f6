"""`python -m tests.chaos.intruder`: tries what a user of the machine without the secret can try at a cluster.

Reads JSON {"zookeeper", "coordinator", "exchanges": [...], "dashboard", "metrics": [...], "authority", "spark":
[ports], "pids": [...]} and prints what came of each attempt: the name or number of the status, the name of the
exception, "let in" where nothing stopped it, or what was read.
"""

from __future__ import annotations

import json
import ssl
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
from kazoo.client import KazooClient
from kazoo.security import OPEN_ACL_UNSAFE, READ_ACL_UNSAFE
from lockgate_common.security import Credentials, TlsFiles
from lockgate_proto.rpc import SERVICES
from lockgate_web.endpoints import endpoints
from lockgate_web.reads import Reads

from tests import spark_ports
from tests.http_client import ask

LET_IN = "let in"
CLUSTER = "/lockgate/default"
_WAIT_S = 60.0
_SILENCE_S = 20.0  # what speaks another protocol than Spark's waits for more of that, and says nothing
_QUESTIONS = (spark_ports.spark_question, spark_ports.spark_block, spark_ports.py4j_call)
_CREDENTIALS = {"nobody": (), "a wrong secret": Credentials("a secret of somebody else").metadata()}
_HEADERS = {
    "nobody": {},
    "a wrong token": {"Authorization": f"Bearer lockgate.{'0' * 12}.{'0' * 64}.{'0' * 64}"},
    "a name of this machine": {"X-Forwarded-For": "127.0.0.1", "X-Real-IP": "127.0.0.1"},
}


def main() -> None:
    targets = json.load(sys.stdin)
    tried: dict[str, str] = dict(_zookeeper(targets["zookeeper"]))
    calls = [
        (f"{address} {name} {who}", address, method.path, who)
        for service, methods in SERVICES.items()
        for address in (targets["exchanges"] if service == "ExchangeService" else [targets["coordinator"]])
        for name, method in methods.items()
        for who in _CREDENTIALS
    ]
    questions = [(port, question) for port in targets["spark"] for question in _QUESTIONS]
    cluster = Credentials(tls=TlsFiles(authority=targets["authority"]))
    with ThreadPoolExecutor(len(questions)) as spark_pool, ThreadPoolExecutor(len(calls)) as pool:
        spark = spark_pool.map(lambda asked: (f"spark {asked[0]} {asked[1].__name__}", _spark(*asked)), questions)
        # Together: each wrong one is answered later than the one before.
        tried |= pool.map(lambda call: (call[0], _call(cluster, *call[1:])), calls)
        tried |= pool.map(lambda page: (f"web {' '.join(page)}", _page(targets["authority"], *page)), _pages(targets))
        tried |= spark
    tried |= {
        f"environ {pid}": _result(lambda pid=pid: Path(f"/proc/{pid}/environ").read_bytes()) for pid in targets["pids"]
    }
    lines = {str(path): _read(path) for path in Path("/proc").glob("[0-9]*/cmdline")}
    json.dump({"tried": tried, "lines": lines}, sys.stdout)


def _result(attempt: Callable[[], object]) -> str:
    try:
        attempt()
    except Exception as error:
        return type(error).__name__
    return LET_IN


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode(errors="replace")
    except OSError:
        return ""  # ended in between


def _zookeeper(hosts: str) -> Iterator[tuple[str, str]]:
    """Without a user, and with one that has another password."""
    for who, user in (("nobody", None), ("a wrong password", [("digest", "lockgate-default:wrong")])):
        client = KazooClient(hosts, auth_data=user)
        client.start(timeout=_WAIT_S)
        try:
            for name, attempt in _nodes(client):
                yield f"zookeeper, {who}: {name}", _result(attempt)
        finally:
            client.stop()
            client.close()


def _nodes(client: Any) -> Iterator[tuple[str, Callable[[], object]]]:
    yield "list", lambda: client.get_children(CLUSTER)
    yield "list jobs", lambda: client.get_children(f"{CLUSTER}/jobs")
    for name in ("leader", "epoch", "jobs", "results", "contenders"):
        yield f"read {name}", lambda name=name: client.get(f"{CLUSTER}/{name}")
    yield "read a job", lambda: client.get(f"{CLUSTER}/jobs/ledger-1/graph")
    yield "write leader", lambda: client.set(f"{CLUSTER}/leader", b"mine")
    yield "write epoch", lambda: client.set(f"{CLUSTER}/epoch", b"99")
    yield "delete leader", lambda: client.delete(f"{CLUSTER}/leader")
    yield "create a job", lambda: client.create(f"{CLUSTER}/jobs/intruder", b"mine")
    yield "create a contender", lambda: client.create(f"{CLUSTER}/contenders/c-x-0000000000", b"", ephemeral=True)
    yield "open it to all", lambda: client.set_acls(CLUSTER, OPEN_ACL_UNSAFE)
    for parent in ("", "/lockgate", "/zookeeper/quota"):
        yield f"fill {parent or '/'}", lambda parent=parent: client.create(f"{parent}/intruder", b"x" * 1_000_000)
        yield f"lock {parent or '/'}", lambda parent=parent: client.set_acls(parent or "/", READ_ACL_UNSAFE)


def _call(cluster: Credentials, address: str, path: str, who: str) -> str:
    """What comes of one rpc: the status, or that it was served."""
    with cluster.channel(address) as channel:
        try:
            list(channel.stream_stream(path)(iter((b"",)), metadata=_CREDENTIALS[who], timeout=_WAIT_S))
        except grpc.RpcError as error:
            return str(error.code().name)
    return LET_IN


def _pages(targets: dict[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    """Address, method, path and caller of every request for which the server asks who it is."""
    guarded = [(each.method, each.path) for each in endpoints(Reads("", "")) if each.role is not None]
    for who in _HEADERS:
        for method, path in guarded:
            yield targets["dashboard"], method, path.replace("{key}", "ledger-1").replace("{id}", "1"), who
        for address in (targets["dashboard"], *targets["metrics"]):
            yield address, "GET", "/metrics", who


def _page(authority: str, address: str, method: str, path: str, who: str) -> str:
    """The status of the answer."""
    headers = {"Content-Type": "application/json", **_HEADERS[who]}
    trusted = ssl.create_default_context(cafile=authority)
    return str(ask(address, path, method, headers, b"{}" if method == "POST" else None, trusted).status)


def _spark(port: int, question: Callable[[int, float], bytes]) -> str:
    """Whatever listens there, it is asked in one of Spark's protocols."""
    try:
        return question(port, _SILENCE_S).decode(errors="replace")
    except Exception as error:  # another protocol is spoken there
        return type(error).__name__


if __name__ == "__main__":
    main()
