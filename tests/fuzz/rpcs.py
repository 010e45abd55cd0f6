"""Every rpc of real servers in this process: a coordinator that leads, and a task manager's data exchange.

Which services and methods there are, and what messages they take, is found from the descriptors.
"""

from __future__ import annotations

import importlib
import pkgutil
import random
import struct
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import grpc
import lockgate_proto.v1
import pyarrow as pa
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from grpc import StatusCode
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from lockgate_common import token_book
from lockgate_common.proof import Peer
from lockgate_common.security import Credentials
from lockgate_common.serving import wrong_tries
from lockgate_common.token_book import issue
from lockgate_coordinator.runtime.process import Coordinator
from lockgate_coordinator.runtime.settings import CoordinatorSettings
from lockgate_ha.embedded import EmbeddedZooKeeper
from lockgate_proto import messages as m
from lockgate_proto.codec import to_pb
from lockgate_proto.release import own_release
from lockgate_proto.rpc import CHANNEL_OPTIONS, LEADER, call
from lockgate_taskmanager.exchange.elements import ChannelId, to_message
from lockgate_taskmanager.exchange.fencing import TokenFence
from lockgate_taskmanager.exchange.gate import InputGate
from lockgate_taskmanager.exchange.registry import GateRegistry
from lockgate_taskmanager.exchange.server import ExchangeServer
from lockgate_web.dashboard import Dashboard

from lockgate import Job, count
from tests.fuzz.granted import Ask, Granted
from tests.fuzz.ports import port_target
from tests.fuzz.random_messages import RandomMessages
from tests.fuzz.target import CASE_S, Target
from tests.fuzz.web import web_targets
from tests.integration.coordinator.fake_task_manager import FakeFleet, FakeTaskManager
from tests.quick_credentials import QUICK_HASHER

SECRET = Credentials(secret="the secret of the fuzzed servers")
_STRANGER = Credentials(secret="the secret of somebody else")
_HEALTH, _REFLECTION = health_pb2.DESCRIPTOR, reflection_pb2.DESCRIPTOR
_LENGTH = struct.Struct("<I")
_SAMPLES = 12
_GRANTED = b"a call that is granted"
_ROLES = ("read", "submit", "code", "operate", "admin")
_COSTS = {"GetStory": 10, "TriggerSavepoint": 2, "Stop": 2}
_NOWHERE = "/grpc.health.v1.Health/List"
_ATTEMPT = m.AttemptId("job", "run", 1)
_RECEIVER = m.SubtaskId(_ATTEMPT, "count", 0)
_REFUSALS = frozenset(StatusCode) - {StatusCode.OK, StatusCode.UNKNOWN, StatusCode.INTERNAL}


class RpcRefused(Exception):
    """A call that ended with a status which is a refusal. kind: its name."""

    def __init__(self, code: StatusCode, details: str) -> None:
        super().__init__(details)
        self.kind = code.name


@dataclass(frozen=True)
class Server:
    """One of the two. web: what is asked by HTTP.

    tasks: calls that it has in hand; roles: holders of a token, by role; before, after: of a case, around the call;
    settle: ends the calls that are not of a case.
    """

    name: str
    peer: Peer
    channel: grpc.Channel
    tasks: Callable[[], int]
    granted: Granted
    roles: Mapping[str, Credentials]
    before: Callable[[], None] = lambda: None
    after: Callable[[], None] = lambda: None
    settle: Callable[[], None] = lambda: None
    web: Sequence[Target] = ()


@contextmanager
def open_rpcs(folder: Path) -> Iterator[list[Target]]:
    """A target for each method of each server, for each port, and those of HTTP. Nothing may be left at the end."""
    threads = set(threading.enumerate())
    with ExitStack() as stack:
        servers = [stack.enter_context(_coordinator(folder)), stack.enter_context(_exchange())]
        ports = [port_target(server.name, server.peer.address, "/grpc.health.v1.Health/Check") for server in servers]
        yield [*_targets(servers), *ports, *servers[0].web]
        for server in servers:
            server.settle()
            _until(lambda: server.tasks() == 0, f"{server.name} still has {server.tasks()} calls")  # noqa: B023
            _answers(server)
    _until(lambda: not _left(threads), f"threads are left: {_left(threads)}")


def services() -> dict[str, ServiceDescriptor]:
    """Every service there is, by its full name."""
    names = [item.name for item in pkgutil.iter_modules(lockgate_proto.v1.__path__) if item.name.endswith("_pb2")]
    files = [importlib.import_module(f"lockgate_proto.v1.{name}").DESCRIPTOR for name in names]
    every = [service for file in (*files, _HEALTH, _REFLECTION) for service in file.services_by_name.values()]
    return {service.full_name: service for service in every}


def _targets(servers: list[Server]) -> Iterator[Target]:
    coordinator, exchange = servers
    served, known = _reflected(coordinator), services()
    assert served <= set(known), f"nothing is known of {served - set(known)}"
    for name, service in known.items():
        for server in servers:
            if (server is coordinator) == (name in served) or (server is exchange and service.file is _HEALTH):
                for method in service.methods:
                    yield _target(server, method)


def _reflected(server: Server) -> set[str]:
    """The services that a server names when it is asked."""
    asked = reflection_pb2.ServerReflectionRequest(list_services="")
    (answer,) = reflection_pb2_grpc.ServerReflectionStub(server.channel).ServerReflectionInfo(
        iter((asked,)), metadata=SECRET.metadata(), timeout=CASE_S, wait_for_ready=True
    )
    return {service.name for service in answer.list_services_response.service}


def _target(server: Server, method: MethodDescriptor) -> Target:
    path = f"/{method.containing_service.full_name}/{method.name}"
    samples, large = _samples(method), _large(method)

    # a path that is no more than damaged must not be made on this machine, nor looked for on another
    def feed(data: bytes) -> str:
        if data == _GRANTED:
            return _feed_granted(server, method, path)
        return _feed(server, method, path, data.replace(b"/", b"_"), data in samples)

    once = (_GRANTED, *large) if path != _NOWHERE else ()
    return Target(
        f"rpc {server.name} {path}",
        feed,
        samples,
        (RpcRefused,),
        is_lenient=True,
        once=once,
        cost=_COSTS.get(method.name, 1),
    )


def _large(method: MethodDescriptor) -> tuple[bytes, bytes]:
    """A message with an unknown field of some MB, and as much noise."""
    size = 5 << 20
    field = b"\xc2\x3e" + b"\x80\x80\xc0\x02" + bytes(size)  # number 1000
    noise = random.Random(method.full_name).randbytes(size)
    return field if not method.client_streaming else _LENGTH.pack(len(field)) + field, noise


def _feed_granted(server: Server, method: MethodDescriptor, path: str) -> str:
    """Calls that are granted, by everybody who shows something that is valid; whoever may not have it is refused."""
    name = path.removeprefix("/").rpartition(".")[2]
    for role, credentials in {"": SECRET, **server.roles}.items():
        server.before()
        metadata = credentials.introduction(server.peer, path).metadata
        code, details = _called(server, method, path, list(server.granted.messages(name)), metadata)
        server.after()
        is_owner = role == "" or (role == "admin" and "JobService" in path)
        assert code is StatusCode.OK or (code is StatusCode.PERMISSION_DENIED and not is_owner), f"{role}: {details}"
    return "granted"


def _samples(method: MethodDescriptor) -> list[bytes]:
    """Requests of one rpc; of a stream several messages, each behind its length."""
    rng = random.Random(method.full_name)
    made = RandomMessages(rng, _known())
    samples = []
    for _ in range(_SAMPLES):
        if not method.client_streaming:
            samples.append(made.make(method.input_type).SerializeToString())
            continue
        messages = [_first(method)] if rng.random() < 0.7 else []
        messages += [made.make(method.input_type).SerializeToString() for _ in range(rng.randrange(6))]
        samples.append(b"".join(_LENGTH.pack(len(message)) + message for message in messages))
    return samples


def _first(method: MethodDescriptor) -> bytes:
    """What a stream begins with."""
    firsts = {
        "TaskManagerMessage": m.TaskManagerMessage(
            0, "tm1", m.Register("127.0.0.1:9", 2, 1, (_ATTEMPT,), "incarnation", release=own_release())
        ),
        "StreamElement": m.StreamElement(m.ChannelOpen(1, m.SubtaskId(_ATTEMPT, "words", 0), _RECEIVER)),
    }
    found = firsts.get(method.input_type.name)
    return b"" if found is None else to_pb(found).SerializeToString()


def _known() -> dict[str, tuple[Any, ...]]:
    """Values by name: without them hardly a random message would get beyond the first check."""
    table = pa.table({"word": ["a", "b", None], "__hash": pa.array([1, 2, 3])})
    return {
        "JobGraph": (to_pb(job_graph()),),
        "AttemptId": (to_pb(_ATTEMPT),),
        "RecordBatch": (to_pb(to_message(table)),),
        "SubtaskId": (to_pb(_RECEIVER), to_pb(m.SubtaskId(_ATTEMPT, "words", 0))),
        "job_key": ("job", "job", "other"),
        "run_id": ("run", ""),
        "task_manager_id": ("tm1", "tm2"),
        "exchange_address": ("127.0.0.1:9",),
        "coordinator_id": ("c1", "c2"),
        "token": (0, 1, 1, 1, 2, 1 << 40),
        "service": ("", LEADER, "lockgate.v1.JobService"),
        "file_containing_symbol": ("lockgate.v1.JobService",),
        "slots": (1, 2),
    }


def job_graph(place: str = "out") -> m.JobGraph:
    """A small one. place: a folder."""
    job = Job("numbers", parallelism=2)
    job.generate(rows=100).key_by("partition").aggregate(n=count()).write_parquet(place)
    return job.graph()


def _feed(server: Server, method: MethodDescriptor, path: str, data: bytes, is_sample: bool) -> str:
    """One call. Returns the name of its status, raises RpcRefused."""
    rng = random.Random(zlib.crc32(data))
    metadata, is_owner = (_owner(server, path), True) if is_sample else _caller(rng, server, path)
    server.before()
    code, details = _called(server, method, path, _messages(rng, method, data), metadata)
    server.after()
    assert is_owner or code in (StatusCode.UNAUTHENTICATED, *_OF_FREE) or _is_free(path), f"let in: {code} {metadata}"
    if code is StatusCode.OK:
        return code.name
    assert code in _REFUSALS, f"{code.name}: {details}"
    assert not details.startswith("Deadline Exceeded"), "no answer came in time"
    raise RpcRefused(code, details)


_OF_FREE = (StatusCode.UNIMPLEMENTED,)


def _is_free(path: str) -> bool:
    """What anybody on this machine may call."""
    return path.startswith(("/grpc.", "/lockgate.v1.JobService/GetLeader"))


def _owner(server: Server, path: str) -> tuple[tuple[str, str], ...]:
    return SECRET.introduction(server.peer, path).metadata


def _caller(rng: random.Random, server: Server, path: str) -> tuple[tuple[tuple[str, str], ...], bool]:
    """Call metadata, and whether it proves anything."""
    proof = _owner(server, path)
    if server.roles and rng.random() < 0.2:
        role = rng.choice(tuple(server.roles.values()))
        return role.introduction(server.peer, path).metadata, True
    ((name, shown),) = proof
    at = rng.randrange(len(shown) - 20, len(shown))
    other = Peer(server.peer.address, "0" * 32)
    wrong = (
        (),
        _STRANGER.metadata(),
        _STRANGER.introduction(server.peer, path).metadata,
        SECRET.introduction(other, path).metadata,  # replayed from a process that was here before
        _owner(server, f"{path}x"),  # replayed from another method
        ((name, shown[:at] + chr(ord(shown[at]) ^ 1) + shown[at + 1 :]),),
        ((name, shown[:at]),),
        ((name, "Bearer lockgate." + "0" * 12 + "." + "0" * 64 + "." + "0" * 64),),
        ((name, rng.choice(("", " ", "Lockgate ", "Lockgate ...", "Bearer", "Bearer " * 500))),),
    )
    kind = rng.random()
    if kind < 0.7:
        return proof, True
    return (SECRET.metadata(), True) if kind < 0.8 else (rng.choice(wrong), False)


def _messages(rng: random.Random, method: MethodDescriptor, data: bytes) -> list[bytes]:
    """One message, or those of a stream: as they are, in another order, or some twice."""
    if not method.client_streaming:
        return [data]
    found, place = [], 0
    while place + _LENGTH.size <= len(data) and len(found) < 60:
        (length,) = _LENGTH.unpack_from(data, place)
        found.append(data[place + _LENGTH.size :][:length])
        place += _LENGTH.size + length
    if rng.random() < 0.2:
        rng.shuffle(found)
    return found + (found[: rng.randrange(4)] if rng.random() < 0.2 else [])


def _called(
    server: Server, method: MethodDescriptor, path: str, messages: list[bytes], metadata: tuple[tuple[str, str], ...]
) -> tuple[StatusCode, str]:
    """Status and details of a call. A stream that goes on is given up after its first answer."""
    rpc = server.channel.stream_stream(path)(iter(messages), metadata=metadata, timeout=CASE_S, wait_for_ready=True)
    is_over = threading.Event()
    if not rpc.add_callback(is_over.set):
        is_over.set()
    try:
        for _ in rpc:
            if not method.client_streaming and method.server_streaming:
                rpc.cancel()
                return StatusCode.OK, ""
    except grpc.RpcError:
        pass
    is_over.wait(CASE_S)
    return rpc.code(), str(rpc.details())


@contextmanager
def _coordinator(folder: Path) -> Iterator[Server]:
    """With a task manager that says it runs whatever is deployed."""
    tokens = folder / "tokens.json"
    settings = CoordinatorSettings(
        zookeeper="embedded",
        storage=str(folder / "storage"),
        bind="127.0.0.1:0",
        credentials=SECRET,
        coordinator_id="c1",
        heartbeat_timeout_ms=int(CASE_S * 1000),
        tokens_file=str(tokens),
        dashboard="127.0.0.1:0",
        metrics="127.0.0.1:0",
    )
    with (
        mock.patch.object(wrong_tries, "_FIRST_S", 0.0),  # thousands of callers are wrong here
        mock.patch.object(token_book, "PasswordHasher", QUICK_HASHER),
        ExitStack() as stack,
    ):
        coordinator = Coordinator(settings, EmbeddedZooKeeper().connector(), Dashboard)
        stack.callback(coordinator.stop)
        coordinator.start()
        coordinator.dispatcher.wait_leading(CASE_S).results_known.result(CASE_S)
        peer = coordinator._server.peer
        channel = stack.enter_context(grpc.insecure_channel(peer.address, options=CHANNEL_OPTIONS))

        def ask(method: str, request: Any) -> Any:
            return call(channel, "JobService", method)(request, metadata=SECRET.metadata(), timeout=CASE_S)

        grpc.channel_ready_future(channel).result(CASE_S)
        fake = FakeTaskManager(FakeFleet(), SECRET, "fake", slots=500)
        stack.callback(fake.die)
        fake.connect(peer.address)
        ask("Submit", m.SubmitRequest("job", job_graph()))
        roles = {role: Credentials(token=issue(tokens, SECRET.secret, role, (role,), 0)) for role in _ROLES}
        in_hand = lambda: len(coordinator._server.thread._tasks)  # noqa: E731
        dashboard, metrics = coordinator.dashboard.partition("//")[2], coordinator.metrics
        assert metrics is not None
        web = tuple(web_targets(dashboard, metrics.address, SECRET.secret, str(roles["read"].token)))
        yield Server("coordinator", peer, channel, in_hand, _granted(ask), roles, settle=fake.die, web=web)


def _granted(ask: Ask | None = None) -> Granted:
    return Granted(job_graph, m.ChannelOpen(1, m.SubtaskId(_ATTEMPT, "words", 0), _RECEIVER), ask)


@contextmanager
def _exchange() -> Iterator[Server]:
    fence, registry = TokenFence(), GateRegistry()
    server = ExchangeServer(SECRET, fence, registry, instance="11" * 16, wait_s=0.02, max_channels=64)
    address = server.start("127.0.0.1:0")
    gates: list[InputGate] = []

    def before() -> None:
        gates.append(InputGate([ChannelId("words", 0)], max_bytes=1 << 30, max_elements=1 << 20))
        registry.register(_RECEIVER, gates[-1])

    def after() -> None:
        gate = gates.pop()
        for _, element in gate.poll(0):
            if isinstance(element, pa.Table):
                element.combine_chunks().validate(full=True)
        registry.unregister(_RECEIVER)
        gate.close()

    channel = grpc.insecure_channel(address, options=CHANNEL_OPTIONS)
    try:
        yield Server(
            "exchange",
            Peer(address, "11" * 16),
            channel,
            lambda: int(server._server._state.active_rpc_count or 0),  # type: ignore[attr-defined]
            _granted(),
            {},
            before,
            after,
        )
        channel.close()
    finally:
        server.stop()


def _answers(server: Server) -> None:
    """It is not stuck."""
    check = server.channel.unary_unary(
        "/grpc.health.v1.Health/Check",
        request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
        response_deserializer=health_pb2.HealthCheckResponse.FromString,
    )
    assert check(health_pb2.HealthCheckRequest(), timeout=CASE_S).status == health_pb2.HealthCheckResponse.SERVING
    if server.name == "coordinator":
        listed = call(server.channel, "JobService", "List")(m.ListRequest(), metadata=SECRET.metadata(), timeout=CASE_S)
        assert "job" in {job.job_key for job in listed.jobs}


def _left(before: set[threading.Thread]) -> list[str]:
    return [thread.name for thread in set(threading.enumerate()) - before if not thread.name.startswith("Dummy")]


def _until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + CASE_S
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, what
        pause.wait(0.02)
