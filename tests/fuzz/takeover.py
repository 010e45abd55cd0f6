"""A coordinator that comes to lead finds a job whose records somebody has damaged, and one that is whole."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

from lockgate_coordinator.runtime.process import Coordinator
from lockgate_coordinator.runtime.settings import CoordinatorSettings
from lockgate_ha import steps
from lockgate_ha.embedded import EmbeddedZooKeeper
from lockgate_ha.paths import Paths
from lockgate_ha.store import Create
from lockgate_proto import messages as m
from lockgate_proto.codec import encode
from lockgate_proto.rpc import call

from tests.fuzz.rpcs import SECRET, job_graph
from tests.fuzz.target import CASE_S, Target

_PATHS = Paths("default")
_DAMAGED, _WHOLE = "damaged", "whole"
_RECORDS: tuple[Callable[[str], str], ...] = (_PATHS.graph, _PATHS.attempt, _PATHS.orders, _PATHS.checkpoint_id)


def takeover(folder: Path) -> Target:
    """folder: an empty one, for the storage. Records carry no seals here: the damage gets as far as it can."""
    contents = {**_job(_DAMAGED), **_job(_WHOLE)}
    places = [path(_DAMAGED) for path in _RECORDS] + [_PATHS.checkpoint(_DAMAGED, 3), _PATHS.result(_DAMAGED)]
    samples = [data for path, data in contents.items() if path in places and data]

    def feed(data: bytes) -> str:
        data = data.replace(b"/", b"_")  # no folders are to be made or looked for
        place = random.Random(zlib.crc32(data)).choice(places)
        return _led(folder, {**contents, place: data})

    return Target("takeover", feed, samples, (), is_lenient=True, cost=20)


def _job(key: str) -> dict[str, bytes]:
    """The nodes of a job that has run, with a completed checkpoint."""
    graph = encode(job_graph())
    metadata = encode(m.CheckpointMetadata(1, key, "run", 3, token=1))
    checkpoint = m.CompletedCheckpoint(
        3, "file:chk-3", f"crc32:{zlib.crc32(metadata):08x}", len(metadata), 1, metadata=metadata
    )
    return {
        _PATHS.job(key): b"",
        _PATHS.graph(key): encode(m.JobRecord(key, "run", graph=graph, graph_checksum="c", token=1)),
        _PATHS.attempt(key): encode(m.AttemptRecord(2, ("tm1",), 1)),
        _PATHS.orders(key): encode(m.JobOrders()),
        _PATHS.checkpoint_id(key): b"3",
        _PATHS.checkpoints(key): b"",
        _PATHS.checkpoint(key, 3): encode(checkpoint),
    }


def _led(folder: Path, contents: Mapping[str, bytes]) -> str:
    """What a coordinator makes of the damaged job; the whole one has to wait for slots as if nothing were."""
    server = EmbeddedZooKeeper()
    session = server.open()
    steps.prepare(session, _PATHS)
    for path, data in contents.items():
        session.transact([Create(path, data)])
    settings = CoordinatorSettings(
        zookeeper="embedded", storage=str(folder / "storage"), bind="127.0.0.1:0", credentials=SECRET
    )
    coordinator = Coordinator(settings, server.connector())
    try:
        coordinator.start()
        coordinator.dispatcher.wait_leading(CASE_S).results_known.result(CASE_S)
        with SECRET.channel(coordinator.address) as channel:
            ask = call(channel, "JobService", "List")
            jobs = ask(m.ListRequest(), metadata=SECRET.metadata(), timeout=CASE_S, wait_for_ready=True).jobs
        states = {job.job_key: job.state.name for job in jobs}
        assert states[_WHOLE] == "WAITING_FOR_SLOTS", states
        return states.get(_DAMAGED, "not listed")
    finally:
        coordinator.stop()
