"""The onlooker that sees everything and checks the invariants of the design while the run goes on."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from lockgate_proto.codec import decode
from lockgate_proto.messages import (
    AttemptId,
    AttemptRecord,
    ChannelSide,
    CheckpointMetadata,
    CompletedCheckpoint,
    Deploy,
    JobResult,
    SourceState,
    StateHandle,
    StateKind,
)

from coordinator.checkpoint.handles import handles
from coordinator.runtime.metadata_files import crc32
from ha.store import Check, Create, Delete, Operation, Put
from tests.simulation.job import SimulatedJob, counts_of
from tests.simulation.storage import Outputs, Record, Storage, Transaction, checksum_of
from tests.simulation.store import PATHS, ObservedZooKeeper
from tests.simulation.world import World


class Oracle:
    """Raises Violation through `world.violate`; the numbers in brackets are those of the design's invariants."""

    def __init__(
        self, world: World, server: ObservedZooKeeper, storage: Storage, outputs: Outputs, jobs: dict[str, SimulatedJob]
    ) -> None:
        self._world, self._server, self._storage, self._outputs, self._jobs = world, server, storage, outputs, jobs
        self.in_flight_seen = 0  # records in channel states of completed checkpoints
        self.completed: dict[str, dict[int, CompletedCheckpoint]] = {key: {} for key in jobs}
        self.attempts: dict[str, int] = dict.fromkeys(jobs, 0)
        self._counters: dict[str, int] = dict.fromkeys(jobs, 0)
        self._epoch = 0
        self._visible: dict[tuple[str, str, int], int] = {}
        self._durable: dict[tuple[str, Transaction], int] = {}  # (sink, transaction) to the token that made it so
        self._late: set[str] = set()
        self._needed: defaultdict[tuple[str, int], set[str]] = defaultdict(set)  # (job key, checkpoint) to state files
        self._deployed: set[AttemptId] = set()
        self.acknowledged: dict[str, str] = {}  # job key to run id
        self._allowed: dict[str, set[int]] = {}  # job key to parallelisms
        self._acknowledged_at: dict[str, int] = {}  # job key to attempt
        self._shaped: set[AttemptId] = set()
        self._stops: dict[str, int] = {}  # job key to savepoint
        self._cancelled: set[str] = set()
        self._cut: dict[str, dict[str, int]] = {}  # job key to how far the newest completed checkpoint has read
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
        self._cut[key] = _offsets(metadata)

    def _metadata_of(self, key: str, record: CompletedCheckpoint) -> CheckpointMetadata:
        data = self._storage.files.get(record.pointer)
        if data is None or crc32(data) != record.checksum:
            self._world.violate(f"[6] checkpoint {record.checkpoint_id} of {key} points to metadata that is not there")
        metadata = decode(CheckpointMetadata, data)
        for state in metadata.subtasks:
            found = [handle for operator in state.operators for handle in handles(operator)]
            found += [channel.handle for channel in state.channels if channel.handle is not None]
            for path in (handle.path for handle in found if handle.path):
                if path not in self._storage.files:
                    self._world.violate(f"[6] checkpoint {record.checkpoint_id} of {key} needs {path}: not there")
                self._needed[key, record.checkpoint_id].add(path)
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
                contents = [self._content(handle) for handle in handles(operator)]
                if operator.kind is StateKind.KEYED_STATE:
                    for content in contents:
                        counts |= dict(content)
                    continue
                content = contents[0]
                sink = "ledger" if state.vertex_id == "ledger" else "table"
                self._durable |= {(sink, one): metadata.token for one in content}
                if sink == "ledger":
                    pending |= set(content)
        counting, appending = (self._in_flight(metadata, target) for target in ("count", "ledger"))
        counts = _added(counts, counts_of(counting))
        wanted = job.below(offsets)
        what = f"checkpoint {metadata.checkpoint_id} of {job.key}, attempt {metadata.attempt}"
        if not _counts_fit(counts, counts_of(wanted), job.is_exact):
            self._world.violate(f"[1] {what}: counts {counts}, but the input below {offsets} gives {counts_of(wanted)}")
        committed = Counter(self._outputs.ledger.get(job.key, []))
        names = {(one.job, one.checkpoint_id, one.subtask) for one in self._outputs.files.values()}
        for one in pending:
            if (one.job, one.checkpoint_id, one.subtask) not in names:
                committed.update(one.rows)
        committed.update(appending)
        if not _records_fit(committed, Counter(wanted), job.is_exact):
            difference = (Counter(wanted) - committed, committed - Counter(wanted))
            self._world.violate(
                f"[1] {what}: ledger and input below {offsets} differ (missing, too many): {difference}"
            )

    def _content(self, handle: StateHandle) -> Any:
        content = self._storage.files[handle.path]
        if checksum_of(content) != handle.checksum:
            self._world.violate(f"[3] {handle.path} was overwritten")
        return content

    def _in_flight(self, metadata: CheckpointMetadata, target: str) -> list[Record]:
        """Records of the channel state that a vertex is still to get, by way of another one or not."""
        found: list[Record] = []
        for state in metadata.subtasks:
            for channel in state.channels:
                receiver = state.vertex_id if channel.side is ChannelSide.INPUT_CHANNEL else channel.vertex_id
                assert channel.handle is not None
                if receiver in (target, "spread"):
                    found += [record for records in self._content(channel.handle) for record in records]
        self.in_flight_seen += len(found)
        return found

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
                if record is None:
                    continue
                is_needed = path in self._needed[key, int(name)]
                if is_needed or path.startswith(record.pointer.removesuffix("_metadata")):
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

    # -- orders -------------------------------------------------------------------------------------------------------

    def asked_for(self, key: str, parallelism: int) -> None:
        """A client wants the aggregating vertices at this parallelism."""
        self._allowed.setdefault(key, set()).add(parallelism)

    def acknowledged_shape(self, key: str, parallelism: int) -> None:
        """It was told that they are from now on: only what is asked for later may replace it."""
        self._allowed[key] = {parallelism}
        self._acknowledged_at[key] = self.attempts[key]

    def shaped(self, deploy: Deploy) -> None:
        """An attempt that begins after a rescale was acknowledged is at that parallelism, or at a newer one."""
        assert deploy.attempt is not None
        key = deploy.attempt.job_key
        found = sum(one.vertex_id == "count" for one in deploy.placements)
        is_new = deploy.attempt not in self._shaped and deploy.attempt.attempt > self._acknowledged_at.get(key, 1 << 62)
        if is_new and found not in self._allowed[key]:
            self._world.violate(f"[4] {key} was rescaled to {self._allowed[key]}, but {deploy.attempt} has {found}")
        self._shaped.add(deploy.attempt)

    def acknowledged_stop(self, key: str, savepoint: int) -> None:
        """A client was told that the job ends with this savepoint."""
        self._stops[key] = savepoint

    def may_be_cancelled(self, key: str) -> None:
        """A client wants the job to end at once."""
        self._cancelled.add(key)

    def _check_cancelled(self, key: str, result: JobResult) -> None:
        """What is complete is shown, by every subtask, as long as none of them is hindered."""
        if result.error:
            self._world.violate(f"[5] {key} was cancelled among healthy task managers: {result.error}")
        shown = Counter(self._outputs.ledger.get(key, []))
        complete = self._jobs[key].below(self._cut.get(key, {}))
        if shown != Counter(complete):
            missing, strange = Counter(complete) - shown, shown - Counter(complete)
            self._world.violate(f"[5] {key}: missing {missing}, too many {strange}")
        table = self._outputs.table.get(key, {})
        if table != counts_of(complete):
            self._world.violate(f"[5] {key}: the table says {table}, not {counts_of(complete)}")

    def _after_stop(self, key: str, result: JobResult) -> list[Record]:
        """What must have come out of the job. Checks that a stop has kept its savepoint, whole."""
        if key in self._stops and result.stopped_with != self._stops[key]:
            self._world.violate(f"[4] {key} was stopped with {self._stops[key]}, its result says {result.stopped_with}")
        if not result.stopped_with:
            return self._jobs[key].records
        metadata = self._metadata_of(key, self.completed[key][result.stopped_with])
        return self._jobs[key].below(_offsets(metadata))

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
            if result is not None and result.outcome == "CANCELED" and key in self._cancelled:
                self._check_cancelled(key, result)
                continue
            if result is None or result.outcome != "FINISHED":
                self._world.violate(f"[4] {key} has not finished: {result}")
            if result.run_id != self.acknowledged[key]:
                self._world.violate(f"[4] {key} ran as {result.run_id}, acknowledged was {self.acknowledged[key]}")
            records = self._after_stop(key, result)
            ledger, wanted = Counter(self._outputs.ledger.get(key, [])), Counter(records)
            if not _records_fit(ledger, wanted, job.is_exact):
                self._world.violate(f"[5] {key}: missing {wanted - ledger}, too many {ledger - wanted}")
            table = self._outputs.table.get(key, {})
            if not _counts_fit(table, counts_of(records), job.is_exact):
                self._world.violate(f"[5] {key}: the table says {table}, not {counts_of(records)}")
            counted = {one.operator_id: one.records_in for one in result.counters}
            appended = counted.get("append", 0)
            if appended < len(records) or (job.is_exact and appended > len(records)):
                self._world.violate(f"{key}: the result counts {counted}, the input has {len(records)} records")
            if self._server.data(PATHS.job(key)) is not None:
                self._world.violate(f"{key} has ended, but its records stay")
            kept = f"/chk-{result.stopped_with}/"
            stay = [path for path in self._storage.files if f"/{key}/" in path and path not in self._late]
            leftover = [path for path in stay if kept not in path]
            if leftover:
                self._world.violate(f"{key} has ended, but its files stay: {leftover[:3]}")


def _offsets(metadata: CheckpointMetadata) -> dict[str, int]:
    """How far each split was read."""
    states = [one for subtask in metadata.subtasks for one in subtask.operators if one.kind is StateKind.SOURCE_STATE]
    sources = [decode(SourceState, one.handle.inline) for one in states if one.handle is not None]
    return {split.split: split.offset for source in sources for split in source.splits}


def _counts_fit(found: dict[int, tuple[int, int]], wanted: dict[int, tuple[int, int]], is_exact: bool) -> bool:
    """Whether counts are those of the input; at least once they may be higher, never lower."""
    if is_exact:
        return found == wanted
    return all(found.get(key, (0, 0))[part] >= one[part] for key, one in wanted.items() for part in (0, 1))


def _records_fit(found: Counter[Record], wanted: Counter[Record], is_exact: bool) -> bool:
    return found == wanted if is_exact else not wanted - found


def _added(one: dict[int, tuple[int, int]], other: dict[int, tuple[int, int]]) -> dict[int, tuple[int, int]]:
    """Counts and sums of two sets of records together."""
    sums = dict(one)
    for key, (count, total) in other.items():
        before = sums.get(key, (0, 0))
        sums[key] = (before[0] + count, before[1] + total)
    return sums
