"""Readers of what is in ZooKeeper and in the storage, as a coordinator reads it, and of what it sends to watchers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from lockgate_coordinator.runtime.errors import StorageError
from lockgate_coordinator.runtime.metadata_files import MetadataFiles, parse_metadata
from lockgate_ha import steps
from lockgate_ha.embedded import EmbeddedZooKeeper
from lockgate_ha.errors import StoreError
from lockgate_ha.paths import Paths
from lockgate_ha.protection import UNPROTECTED, Protection
from lockgate_ha.records import JobRecords
from lockgate_ha.session_store import SessionStore
from lockgate_ha.store import Create, Put
from lockgate_proto import messages as m
from lockgate_proto.codec import MalformedMessage, decode, encode, to_json
from lockgate_proto.status_changes import MisfittingChange, changed

from tests.fuzz.files import SECRET
from tests.fuzz.target import Target

_CHECKPOINT = m.CompletedCheckpoint(3, "file:///chk-3/_metadata", "crc32:00000000", token=1, metadata=b"inline")
_METADATA = m.CheckpointMetadata(
    format_version=1,
    checkpoint_id=3,
    job_key="k",
    run_id="r1",
    subtasks=(
        m.SubtaskState("count", 0, (m.OperatorState("n", m.StateKind.KEYED_STATE, m.StateHandle(inline=b"abc")),)),
    ),
)


def targets(folder: Path) -> list[Target]:
    """folder: an empty one for the files."""
    stored = [*_zookeeper("sealed", Protection("c", SECRET)), *_zookeeper("open", UNPROTECTED), *_metadata(folder)]
    return [*stored, _change()]


def _zookeeper(how: str, protection: Protection) -> Iterator[Target]:
    """Each node of a cluster, with the reads that come across it. Sealed ones are damaged as they are and resealed."""
    paths = Paths("c")
    server = EmbeddedZooKeeper()
    session = server.open(None, protection)
    steps.prepare(session, paths)
    records = JobRecords(SessionStore("c", session), "c")
    contender = f"{paths.contenders}/c-nonce-0000000001"
    leader = m.LeaderRecord(3, "a:7070", session.id, 7, "c1", instance="00")
    contents: dict[str, bytes] = {
        paths.job("k"): b"",
        paths.graph("k"): encode(m.JobRecord("k", "r1", graph=b"graph", graph_checksum="c", token=1)),
        paths.attempt("k"): encode(m.AttemptRecord(attempt=2, token=1)),
        paths.orders("k"): encode(m.JobOrders()),
        paths.checkpoint_id("k"): b"3",
        paths.checkpoints("k"): b"",
        paths.checkpoint("k", 3): encode(_CHECKPOINT),
        paths.result("k"): encode(m.JobResult("k", "r1", outcome="FINISHED", ended_unix_ms=9)),
        paths.leaders: encode(m.LeaderHistory((m.LeadershipRecord(2, "c0", "a:7070", 5, 6),))),
        paths.leader: encode(leader),
        contender: encode(leader),
    }
    sealed_at = {contender: paths.contenders}
    seal = {path: protection.seal(sealed_at.get(path, path), data) for path, data in contents.items()}
    for path in contents:
        session.transact([Create(path, seal[path], ephemeral=path in (paths.leader, contender))])

    def read() -> None:
        for call in (records.found, records.attempt, records.restart_point, records.deaths, records.result):
            call("k")
        records.require_whole("k")
        for record in (*records.jobs(), *records.results(), *records.leaders()):
            to_json(record)

    def look() -> None:
        steps.read_view(session, paths, {}, lambda: None)
        steps.check_mark(session, paths)

    reads: dict[str, Callable[[], None]] = dict.fromkeys(contents, read)
    reads |= dict.fromkeys((paths.leader, contender, paths.epoch, paths.base), look)
    whole = {path: node.data for path in reads if (node := session.get(path)) is not None}

    def target(name: str, path: str, sample: bytes, made: Callable[[bytes], bytes]) -> Target:
        def feed(data: bytes) -> None:
            session.transact([Put(path, made(data))])
            try:
                reads[path]()
            finally:
                session.transact([Put(path, whole[path])])

        return Target(f"zookeeper, {how}: {name}", feed, [sample], (StoreError,))

    for path in reads:
        if contents.get(path, b"1"):
            yield target(path, path, whole[path], lambda data: data)
            if protection is not UNPROTECTED and path in contents:
                place = sealed_at.get(path, path)
                yield target(
                    f"{path} by one that knows the secret",
                    path,
                    contents[path],
                    lambda data, place=place: protection.seal(place, data),  # type: ignore[misc]
                )


def _metadata(folder: Path) -> list[Target]:
    files = MetadataFiles(str(folder / "storage"), "c")
    sample = encode(_METADATA)
    place = folder / "_metadata"

    def in_file(data: bytes) -> object:
        place.write_bytes(data)
        return to_json(files.read(str(place)))

    return [
        Target("_metadata file", in_file, [sample], (StorageError,)),
        Target("inline metadata", lambda data: to_json(parse_metadata(data, "x")), [sample], (StorageError,)),
    ]


def _change() -> Target:
    """What is different in a status, as a client reads it."""
    status = m.JobStatus("k", subtasks=(m.SubtaskStatusView("v", 0, "a"), m.SubtaskStatusView("v", 1, "b")))
    subtasks = (m.SubtaskChange(0, m.SubtaskLoad(5)), m.SubtaskChange(1, m.SubtaskStatusView("v", 1, "c")))
    sample = m.StatusChange(("message", "attempt"), m.JobStatus(message="x", attempt=2), subtasks)

    def feed(data: bytes) -> object:
        return to_json(changed(status, decode(m.StatusChange, data)))

    return Target("change of a status", feed, [encode(sample)], (MalformedMessage, MisfittingChange))
