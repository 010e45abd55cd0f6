"""The onlooker that sees everything and checks the invariants of the design while the run goes on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from lockgate_proto.codec import decode
from lockgate_proto.messages import (
    AttemptId,
    AttemptRecord,
    CheckpointMetadata,
    CompletedCheckpoint,
    JobResult,
    SourceState,
    StateKind,
)

from coordinator.runtime.metadata_files import crc32
from ha.store import Check, Create, Delete, Operation, Put
from tests.simulation.job import SimulatedJob, counts_of
from tests.simulation.storage import Outputs, Storage, Transaction, checksum_of
from tests.simulation.store import PATHS, ObservedZooKeeper
from tests.simulation.world import World


class Oracle:
    """Raises Violation through `world.violate`; the numbers in brackets are those of the design's invariants."""

    def __init__(
        self, world: World, server: ObservedZooKeeper, storage: Storage, outputs: Outputs, jobs: dict[str, SimulatedJob]
    ) -> None:
        self._world, self._server, self._storage, self._outputs, self._jobs = world, server, storage, outputs, jobs
        self.completed: dict[str, dict[int, CompletedCheckpoint]] = {key: {} for key in jobs}
        self.attempts: dict[str, int] = dict.fromkeys(jobs, 0)
        self._counters: dict[str, int] = dict.fromkeys(jobs, 0)
        self._epoch = 0
        self._visible: dict[tuple[str, str, int], int] = {}
        self._durable: dict[tuple[str, Transaction], int] = {}  # (sink, transaction) to the token that made it so
        self._late: set[str] = set()
        self._deployed: set[AttemptId] = set()
        self.acknowledged: dict[str, str] = {}  # job key to run id
        self._epoch_path = PATHS.epoch
        self._folders = {PATHS.checkpoints(key): key for key in jobs}
        self._places: dict[str, tuple[str, Callable[[str, bytes], None]]] = {}
        for key in jobs:
            self._places[PATHS.result(key)] = (key, self._result_set)
            self._places[PATHS.attempt(key)] = (key, self._attempt_set)
            self._places[PATHS.checkpoint_id(key)] = (key, self._counter_set)
        server.on_write = self._written
        storage.on_write = self._file_written
        storage.on_delete = self._file_deleted
        outputs.on_commit = self._committed

    # -- ZooKeeper ----------------------------------------------------------------------------------------------------

    def _written(self, operations: Sequence[Operation], _session: str) -> None:
        for one in operations:
            if isinstance(one, Check):
                continue
            if one.path == self._epoch_path:
                self._epoch_set(int(getattr(one, "data", b"") or b"0"))
            elif one.path in self._places:
                key, changed = self._places[one.path]
                if isinstance(one, Create | Put) and one.data:
                    changed(key, one.data)
            elif (parent := one.path.rpartition("/")[0]) in self._folders:
                key = self._folders[parent]
                if isinstance(one, Delete):
                    self._checkpoint_removed(key, int(one.path.rpartition("/")[2]))
                else:
                    self._checkpoint_added(key, decode(CompletedCheckpoint, one.data))

    def _epoch_set(self, token: int) -> None:
        if token < self._epoch or (token == self._epoch != 0):
            self._world.violate(f"[2] the epoch went from {self._epoch} to {token}")
        self._epoch = token

    def _result_set(self, key: str, data: bytes) -> None:
        result = decode(JobResult, data)
        if result.dirty:
            self._fresh(result.token, f"the result of {key}")
        self._world.note("ZOOKEEPER", f"result of {key}: {result.outcome} {result.error}")

    def _counter_set(self, key: str, data: bytes) -> None:
        number = int(data)
        if number < self._counters[key]:
            self._world.violate(f"[3] the checkpoint counter of {key} fell from {self._counters[key]} to {number}")
        self._counters[key] = number

    def _fresh(self, token: int, what: str) -> None:
        if token != self._epoch:
            self._world.violate(f"[2] {what} was written under token {token} although the epoch is {self._epoch}")

    def _attempt_set(self, key: str, data: bytes) -> None:
        record = decode(AttemptRecord, data)
        self._fresh(record.token, f"attempt {record.attempt} of {key}")
        if record.attempt < self.attempts[key]:
            self._world.violate(f"attempt {record.attempt} of {key} after attempt {self.attempts[key]}")
        self.attempts[key] = record.attempt
        self._world.note("ZOOKEEPER", f"{key} attempt {record.attempt} under token {record.token}")

    def _checkpoint_added(self, key: str, record: CompletedCheckpoint) -> None:
        number = record.checkpoint_id
        self._world.note("ZOOKEEPER", f"{key} checkpoint {number} completed under token {record.token}")
        self._fresh(record.token, f"checkpoint {number} of {key}")
        known = self.completed[key]
        if known and number <= max(known):
            self._world.violate(f"[3] checkpoint {number} of {key} was completed after {max(known)}")
        if number > self._counters[key]:
            self._world.violate(f"[3] checkpoint {number} of {key} was never reserved, the counter is at {number}")
        known[number] = record
        metadata = self._metadata_of(key, record)
        self._check_cut(self._jobs[key], metadata)

    def _metadata_of(self, key: str, record: CompletedCheckpoint) -> CheckpointMetadata:
        data = self._storage.files.get(record.pointer)
        if data is None or crc32(data) != record.checksum:
            self._world.violate(f"[6] checkpoint {record.checkpoint_id} of {key} points to metadata that is not there")
        metadata = decode(CheckpointMetadata, data)
        for state in metadata.subtasks:
            for operator in state.operators:
                handle = operator.handle
                path = handle.path if handle is not None else ""
                if path and (path not in self._storage.files or handle is None):
                    self._world.violate(f"[6] checkpoint {record.checkpoint_id} of {key} needs {path}: not there")
        return metadata

    def _checkpoint_removed(self, key: str, number: int) -> None:
        newest = self._newest(key)
        if number == newest and self._server.data(PATHS.result(key)) is None:
            self._world.violate(f"[3] checkpoint {number} of {key}, the newest, was deleted while the job runs")

    def _newest(self, key: str) -> int:
        return max(self.completed[key], default=0)

    # -- a consistent cut [1] -----------------------------------------------------------------------------------------

    def _check_cut(self, job: SimulatedJob, metadata: CheckpointMetadata) -> None:
        offsets: dict[str, int] = {}
        counts: dict[int, tuple[int, int]] = {}
        pending: set[Transaction] = set()
        for state in metadata.subtasks:
            for operator in state.operators:
                assert operator.handle is not None
                if operator.kind is StateKind.SOURCE_STATE:
                    source = decode(SourceState, operator.handle.inline)
                    offsets |= {one.split: one.offset for one in source.splits}
                    continue
                content = self._storage.files[operator.handle.path]
                if checksum_of(content) != operator.handle.checksum:
                    self._world.violate(f"[3] {operator.handle.path} was overwritten")
                if operator.kind is StateKind.KEYED_STATE:
                    counts |= dict(content)
                    continue
                sink = "ledger" if state.vertex_id == "ledger" else "table"
                self._durable |= {(sink, one): metadata.token for one in content}
                if sink == "ledger":
                    pending |= set(content)
        wanted = job.below(offsets)
        what = f"checkpoint {metadata.checkpoint_id} of {job.key}, attempt {metadata.attempt}"
        if counts != counts_of(wanted):
            self._world.violate(f"[1] {what}: counts {counts}, but the input below {offsets} gives {counts_of(wanted)}")
        committed = Counter(self._outputs.ledger.get(job.key, []))
        names = {(one.job, one.checkpoint_id, one.subtask) for one in self._outputs.files.values()}
        for one in pending:
            if (one.job, one.checkpoint_id, one.subtask) not in names:
                committed.update(one.rows)
        if committed != Counter(wanted):
            difference = (Counter(wanted) - committed, committed - Counter(wanted))
            self._world.violate(
                f"[1] {what}: ledger and input below {offsets} differ (missing, too many): {difference}"
            )

    # -- files and sinks ----------------------------------------------------------------------------------------------

    def _file_written(self, path: str, old: Any, new: Any) -> None:
        if old is not None and old != new:
            self._world.violate(f"[3] {path} got a second content")
        for key in self._jobs:
            if f"/{key}/" in path and self._server.data(PATHS.result(key)):
                self._late.add(path)  # by one that was replaced long ago: nothing can hold it back, it only takes room

    def _file_deleted(self, path: str) -> None:
        for key in self._jobs:
            for name in self._server.names(PATHS.checkpoints(key)):
                record = self.completed[key].get(int(name))
                if record is not None and path.startswith(record.pointer.removesuffix("_metadata")):
                    self._world.violate(f"[6] {path} was deleted while checkpoint {name} of {key} points to it")

    def _committed(self, sink: str, one: Transaction) -> None:
        """A transaction may be shown once a completed checkpoint holds it; an aborted one goes with a later one."""
        what = f"{sink}: transaction {one.checkpoint_id} of attempt {one.attempt}"
        if (sink, one) not in self._durable:
            self._world.violate(f"[6] {what} became visible, but no completed checkpoint of {one.job} holds it")
        place = (one.job, sink, one.subtask)
        if one.checkpoint_id <= self._visible.get(place, 0):
            self._world.violate(f"[2] {what} became visible after {self._visible[place]}")
        self._visible[place] = one.checkpoint_id
        self._world.note("OUTPUT", f"{one.job} {sink}[{one.subtask}] shows {one.checkpoint_id}")

    def deploying(self, attempt: AttemptId, token: int, restored_id: int) -> None:
        """A leader sends a deployment; when it leads it must restore the newest completed checkpoint [3].

        Said again after a broken stream it is the same deployment.
        """
        newest = self._newest(attempt.job_key)
        if attempt not in self._deployed and token == self._epoch and restored_id != newest:
            self._world.violate(f"[3] {attempt.job_key} restores {restored_id}, but {newest} is the newest completed")
        self._deployed.add(attempt)

    # -- the end ------------------------------------------------------------------------------------------------------

    def result(self, key: str) -> JobResult | None:
        """How the job ended, as stored."""
        data = self._server.data(PATHS.result(key))
        return decode(JobResult, data) if data else None

    def is_over(self) -> bool:
        """Whether every acknowledged job has a clean result."""
        if len(self.acknowledged) < len(self._jobs):
            return False
        results = [self.result(key) for key in self._jobs]
        return all(one is not None and not one.dirty for one in results)

    def check_end(self) -> None:
        """Everything must have come out exactly once [4, 5]."""
        for key, job in self._jobs.items():
            result = self.result(key)
            if result is None or result.outcome != "FINISHED":
                self._world.violate(f"[4] {key} has not finished: {result}")
            if result.run_id != self.acknowledged[key]:
                self._world.violate(f"[4] {key} ran as {result.run_id}, acknowledged was {self.acknowledged[key]}")
            ledger, wanted = Counter(self._outputs.ledger.get(key, [])), Counter(job.records)
            if ledger != wanted:
                self._world.violate(f"[5] {key}: missing {wanted - ledger}, too many {ledger - wanted}")
            table = self._outputs.table.get(key, {})
            if table != counts_of(job.records):
                self._world.violate(f"[5] {key}: the table says {table}, not {counts_of(job.records)}")
            counted = {one.operator_id: one.records_in for one in result.counters}
            if counted.get("append") != len(job.records):
                self._world.violate(f"{key}: the result counts {counted}, the input has {len(job.records)} records")
            if self._server.data(PATHS.job(key)) is not None:
                self._world.violate(f"{key} has ended, but its records stay")
            leftover = [path for path in self._storage.files if f"/{key}/" in path and path not in self._late]
            if leftover:
                self._world.violate(f"{key} has ended, but its files stay: {leftover[:3]}")
