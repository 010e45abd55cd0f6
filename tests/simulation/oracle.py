"""The onlooker that sees everything and checks the invariants of the design while the run goes on."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pyarrow as pa
from lockgate_common.checksums import checksum
from lockgate_coordinator.checkpoint.handles import handles
from lockgate_ha.store import Check, Create, Delete, Operation, Put
from lockgate_proto.codec import decode
from lockgate_proto.messages import (
    AssignSplits,
    AttemptId,
    AttemptRecord,
    ChannelSide,
    CheckpointMetadata,
    CompletedCheckpoint,
    Deploy,
    JobResult,
    Partitioning,
    SourceState,
    StateHandle,
    StateKind,
)
from lockgate_taskmanager.runtime.in_flight import decode_elements

from tests.layouts import begun, places
from tests.simulation.cut import Cut
from tests.simulation.flow import Counts, Offsets, Record, Seen, added, key_of, owner_of, records_of
from tests.simulation.job import SimulatedJob
from tests.simulation.programs import REFUSAL
from tests.simulation.storage import Outputs, Storage, Transaction, checksum_of
from tests.simulation.store import PATHS, ObservedZooKeeper
from tests.simulation.world import World

Widths = tuple[tuple[str, int], ...]
"""(vertex, parallelism)"""


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
        self._durable: set[Transaction] = set()
        self._late: set[str] = set()
        self._needed: defaultdict[tuple[str, int], set[str]] = defaultdict(set)  # (job key, checkpoint) to state files
        self._deployed: set[AttemptId] = set()
        self.acknowledged: dict[str, str] = {}  # job key to run id
        self._allowed: dict[str, set[Widths]] = {}  # job key to what it may be rescaled to
        self._acknowledged_at: dict[str, int] = {}  # job key to attempt
        self._shaped: set[AttemptId] = set()
        self.begun: Counter[tuple[str, int]] = Counter()  # how often each subtask was deployed, of all jobs
        self._shape: dict[str, Counter[str]] = {}  # job key to vertex to parallelism, as deployed last
        self.rescales = 0
        self.moved = 0  # records in flight that were deployed at another parallelism, once for each subtask
        self._stops: dict[str, int] = {}  # job key to savepoint
        self._savepoints: dict[str, dict[str, int]] = {key: {} for key in jobs}  # job key to request id to savepoint
        self._cancelled: set[str] = set()
        self.hopeless: set[str] = set()  # keys of jobs with which something is wrong for good
        self._shown: dict[tuple[str, int], Seen] = {}  # (job key, checkpoint) to what has come out by then
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
        for operation in operations:
            if isinstance(operation, Check):
                continue
            if operation.path == self._epoch_path:
                self._epoch_set(int(getattr(operation, "data", b"") or b"0"))
            elif operation.path in self._places:
                key, changed = self._places[operation.path]
                if isinstance(operation, Create | Put) and operation.data:
                    changed(key, operation.data)
            elif (parent := operation.path.rpartition("/")[0]) in self._folders:
                key = self._folders[parent]
                if isinstance(operation, Delete):
                    self._checkpoint_removed(key, int(operation.path.rpartition("/")[2]))
                else:
                    self._checkpoint_added(key, decode(CompletedCheckpoint, operation.data))

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
        self._check_cut(self._jobs[key], self._metadata_of(key, record))

    def _metadata_of(self, key: str, record: CompletedCheckpoint) -> CheckpointMetadata:
        data = self._storage.files.get(record.pointer)
        if data is None or checksum(data) != record.checksum:
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
        model, offsets = job.model, _offsets(metadata)
        wanted, to_come = model.below(offsets), model.seen(self._in_flight(job, metadata))
        what = f"checkpoint {metadata.checkpoint_id} of {job.key}, attempt {metadata.attempt}"
        cut = Cut(model, metadata, self._content)
        if cut.owned_twice:
            self._world.violate(f"[1] {what}: {cut.owned_twice}")
        self._durable |= {item for found in cut.sealed.values() for item in found}
        for name, found in cut.counts.items():
            come = added(found, to_come.counts(name))
            if not _counts_fit(come, wanted.counts(name), job.is_exact):
                self._world.violate(f"[1] {what}: {name} has {come}, the input below {offsets}: {wanted.counts(name)}")
        for name in model.tables:
            table = self._outputs.table_with((job.key, name), cut.sealed[name])
            if table != cut.counts[name]:
                self._world.violate(f"[5] {what}: once committed the table {name} says {table}, not {cut.counts[name]}")
        shown: dict[str, Counter[Record]] = {}
        for name in model.ledgers:
            shown[name] = Counter(self._outputs.ledgers.get((job.key, name), []))
            for item in dict.fromkeys(cut.sealed[name]):
                if not self._outputs.is_published(item):
                    shown[name].update(item.rows)
            _check_records(self._world, f"[1] {what}, {name}", shown[name] + to_come.at[name], wanted, name, job)
        out = {name: counter - to_come.at[name] for name, counter in wanted.at.items()}
        self._shown[job.key, metadata.checkpoint_id] = Seen(out)

    def _content(self, handle: StateHandle) -> Any:
        content = self._storage.files[handle.path]
        if checksum_of(content) != handle.checksum:
            self._world.violate(f"[3] {handle.path} was overwritten")
        return content

    def _in_flight(self, job: SimulatedJob, metadata: CheckpointMetadata) -> list[tuple[str, Record]]:
        """The records of the channel state, each with the vertex that is to get it."""
        widths = {shape.vertex_id: shape.parallelism for shape in metadata.vertices}
        broadcast = {(edge.source, edge.target) for edge in job.edges if edge.partitioning is Partitioning.BROADCAST}
        found: list[tuple[str, Record]] = []
        for state in metadata.subtasks:
            for channel in state.channels:
                assert channel.handle is not None
                here, there = (state.vertex_id, state.subtask), (channel.vertex_id, channel.subtask)
                is_input = channel.side is ChannelSide.INPUT_CHANNEL
                sender, receiver = (there, here) if is_input else (here, there)
                for element in decode_elements(pa.py_buffer(self._content(channel.handle))):
                    records = records_of(element) if isinstance(element, pa.Table) else []
                    self.in_flight_seen += len(records)
                    if (sender[0], receiver[0]) in broadcast:  # each subtask takes its own ones only
                        width = widths[receiver[0]]
                        records = [record for record in records if owner_of(key_of(record), width) == receiver[1]]
                    found += [(receiver[0], record) for record in records]
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

    def _committed(self, transaction: Transaction) -> None:
        """A transaction may be shown once a completed checkpoint holds it; an aborted one goes with a later one."""
        what = f"{transaction.vertex}: transaction {transaction.checkpoint_id} of attempt {transaction.attempt}"
        if transaction not in self._durable:
            self._world.violate(f"[6] {what} became visible, but no completed checkpoint of {transaction.job} holds it")
        place = (transaction.job, transaction.vertex, transaction.subtask)
        if transaction.checkpoint_id <= self._visible.get(place, 0):
            self._world.violate(f"[2] {what} became visible after {self._visible[place]}")
        self._visible[place] = transaction.checkpoint_id
        self._check_upserts(transaction, what)
        self._world.note(
            "OUTPUT", f"{transaction.job} {transaction.vertex}[{transaction.subtask}] shows {transaction.checkpoint_id}"
        )

    def _check_upserts(self, transaction: Transaction, what: str) -> None:
        """A row of a table is replaced by a newer one, never by itself or an older one. Counts rise with each row."""
        if transaction.vertex not in self._jobs[transaction.job].model.tables:
            return
        table = self._outputs.tables.get(transaction.sink, {})
        again = [(key, table[key], row) for key, row in transaction.rows if key in table and row[0] <= table[key][0]]
        if again or len(dict(transaction.rows)) < len(transaction.rows):
            self._world.violate(
                f"[5] {what} upserts rows again that the table has (key, there, new): {again or transaction}"
            )

    def deploying(self, attempt: AttemptId, token: int, restored_id: int) -> None:
        """A leader sends a deployment; when it leads it must restore the newest completed checkpoint [3].

        Said again after a broken stream it is the same deployment.
        """
        newest = self._newest(attempt.job_key)
        if attempt not in self._deployed and token == self._epoch and restored_id != newest:
            self._world.violate(f"[3] {attempt.job_key} restores {restored_id}, but {newest} is the newest completed")
        self._deployed.add(attempt)

    def given_out(self, order: AssignSplits) -> None:
        """A leader gives out splits: they begin where they did before, and nothing is skipped [3]."""
        subtask = order.subtask
        assert subtask is not None
        assert subtask.attempt is not None
        starts = self._jobs[subtask.attempt.job_key].model.starts
        for split in order.splits:
            first = starts.setdefault((subtask.vertex_id, split.split), split.offset)
            if split.offset != first:
                self._world.violate(f"[3] {order} gives out split {split.split} at {split.offset}, before at {first}")

    # -- orders -------------------------------------------------------------------------------------------------------

    def asked_for(self, key: str, widths: Widths) -> None:
        """A client wants vertices at these parallelisms."""
        self._allowed.setdefault(key, set()).add(widths)

    def acknowledged_shape(self, key: str, widths: Widths) -> None:
        """It was notified that they are from now on: only what is asked for later may replace it."""
        self._allowed[key] = {widths}
        self._acknowledged_at[key] = self.attempts[key]

    def shaped(self, deploy: Deploy) -> None:
        """An attempt that begins after a rescale was acknowledged is at that parallelism, or at a newer one."""
        assert deploy.attempt is not None
        key = deploy.attempt.job_key
        found = Counter(vertex for vertex, _ in places(deploy))
        is_new = deploy.attempt not in self._shaped and deploy.attempt.attempt > self._acknowledged_at.get(key, 1 << 62)
        if is_new and not any(all(found[name] == width for name, width in item) for item in self._allowed[key]):
            self._world.violate(f"[4] {key} was rescaled to {self._allowed[key]}, but {deploy.attempt} has {found}")
        if deploy.attempt not in self._shaped:
            self.begun.update(begun(deploy))
        self._shaped.add(deploy.attempt)
        self.moved += sum(channel.rows for state in deploy.restore for channel in state.channels if channel.moved)
        self.rescales += self._shape.setdefault(key, found) != found
        self._shape[key] = found

    def acknowledged_stop(self, key: str, savepoint: int) -> None:
        """A client was answered that the job ends with this savepoint."""
        self._stops[key] = savepoint

    def acknowledged_savepoint(self, key: str, savepoint: int, request_id: str) -> None:
        """A client was answered that it has this savepoint: it is the same however often it asks, whoever leads."""
        known = self._savepoints[key].setdefault(request_id, savepoint)
        if known != savepoint:
            self._world.violate(f"[4] {request_id} of {key} was answered with savepoints {known} and {savepoint}")

    def may_be_cancelled(self, key: str) -> None:
        """A client wants the job to end at once."""
        self._cancelled.add(key)

    def _check_cancelled(self, key: str, result: JobResult) -> None:
        """What is complete is shown by every subtask, or the result says why not: a process has died or stood still."""
        nothing = Seen({name: Counter() for name in self._jobs[key].model.everything().at})
        complete = self._shown.get((key, self._newest(key)), nothing)
        if not result.error:
            self._check_outputs(key, complete)
        elif self._world.is_hindered:
            self._check_nothing_beyond(key, complete)
        else:
            self._world.violate(f"[5] {key} was cancelled among healthy processes: {result.error}")

    def _check_nothing_beyond(self, key: str, complete: Seen) -> None:
        """Ledgers show nothing but what is complete [5]; at least once they may."""
        for name in self._jobs[key].model.ledgers if self._jobs[key].is_exact else ():
            found = Counter(self._outputs.ledgers.get((key, name), []))
            if too_many := found - complete.at[name]:
                self._world.violate(f"[5] {key} has ended, and {name} shows {too_many} beyond its newest checkpoint")

    def _after_stop(self, key: str, result: JobResult) -> Seen:
        """What must have come out of the job. Checks that a stop has kept its savepoint, whole."""
        if key in self._stops and result.stopped_with != self._stops[key]:
            self._world.violate(f"[4] {key} was stopped with {self._stops[key]}, its result says {result.stopped_with}")
        if not result.stopped_with:
            return self._jobs[key].model.everything()
        self._metadata_of(key, self.completed[key][result.stopped_with])
        return self._shown[key, result.stopped_with]

    def _check_kept(self, key: str, result: JobResult) -> list[str]:
        """The folders that outlive the job: every savepoint that was reported exists, whole [6]."""
        kept = {checkpoint.checkpoint_id for checkpoint in result.retained}
        if missing := set(self._savepoints[key].values()) - kept:
            self._world.violate(f"[6] savepoints {missing} of {key} are not in its result: {kept}")
        answers = Counter(name for checkpoint in result.retained for name in checkpoint.request_ids)
        if twice := [name for name, number in answers.items() if number > 1]:
            self._world.violate(f"[4] {twice} of {key} have more than one savepoint each")
        for number in kept:
            self._metadata_of(key, self.completed[key][number])
        return [f"/chk-{number}/" for number in kept]

    def needed_now(self, choice: Random) -> set[str]:
        """A file that the newest checkpoint of a running job needs; nothing when there is none."""
        newest = {key: self._newest(key) for key in self._jobs if self.completed[key] and self.result(key) is None}
        paths = sorted(path for key, number in newest.items() for path in self._needed[key, number])
        return {choice.choice(paths)} if paths else set()

    def _check_damaged(self, key: str, result: JobResult) -> bool:
        """A job that cannot read its newest snapshot ends, says which file it is, and keeps everything [6]."""
        damaged = sorted(path for path in self._storage.trouble.damaged if path in result.error)
        if result.outcome != "FAILED" or not damaged:
            return False
        newest = self._newest(key)
        if newest not in {checkpoint.checkpoint_id for checkpoint in result.retained}:
            self._world.violate(f"[6] {key} has failed, and its newest checkpoint {newest} is not kept: {result}")
        for checkpoint in result.retained:
            self._metadata_of(key, self.completed[key][checkpoint.checkpoint_id])
        self._check_nothing_beyond(key, self._shown[key, newest])
        return True

    def _check_hopeless(self, key: str, result: JobResult | None) -> None:
        """What is wrong with the job alone ends it, in words. A mistake of the coordinator touches no record of it."""
        if key == self._world.defective:
            if result is not None or self._server.data(PATHS.job(key)) is None:
                self._world.violate(f"[7] {key} is broken off, and not all of its records are left: {result}")
        elif result is None or result.outcome != "FAILED" or REFUSAL not in result.error:
            self._world.violate(f"[7] {key} refuses every record, and does not fail for it: {result}")

    def _check_outputs(self, key: str, wanted: Seen) -> None:
        """Ledgers and tables are what is wanted [5]."""
        job = self._jobs[key]
        for name in job.model.ledgers:
            found = Counter(self._outputs.ledgers.get((key, name), []))
            _check_records(self._world, f"[5] {key}, {name}", found, wanted, name, job)
        for name in job.model.tables:
            table = self._outputs.tables.get((key, name), {})
            if not _counts_fit(table, wanted.counts(name), job.is_exact):
                self._world.violate(f"[5] {key}: the table {name} says {table}, not {wanted.counts(name)}")

    # -- the end ------------------------------------------------------------------------------------------------------

    def result(self, key: str) -> JobResult | None:
        """How the job ended, as stored."""
        data = self._server.data(PATHS.result(key))
        return decode(JobResult, data) if data else None

    def is_over(self) -> bool:
        """Whether every acknowledged job has a clean result."""
        if len(self.acknowledged) < len(self._jobs):
            return False
        waiting = [key for key in self._jobs if key != self._world.defective]
        return all((job_result := self.result(key)) is not None and not job_result.dirty for key in waiting)

    def check_end(self) -> None:
        """Everything must have come out exactly once [4, 5]."""
        for key, job in self._jobs.items():
            result = self.result(key)
            if key in self.hopeless:
                self._check_hopeless(key, result)
                continue
            if result is not None and result.outcome == "CANCELED" and key in self._cancelled:
                self._check_cancelled(key, result)
                continue
            if result is not None and self._check_damaged(key, result):
                continue
            if result is None or result.outcome != "FINISHED":
                self._world.violate(f"[4] {key} has not finished: {result}")
            if result.run_id != self.acknowledged[key]:
                self._world.violate(f"[4] {key} ran as {result.run_id}, acknowledged was {self.acknowledged[key]}")
            wanted = self._after_stop(key, result)
            self._check_outputs(key, wanted)
            counted = {counter.operator_id: counter.records_in for counter in result.counters}
            for name in job.model.ledgers:
                appended, records = counted.get(f"{name}-append", 0), wanted.at[name].total()
                if appended < records or (job.is_exact and appended > records):
                    self._world.violate(f"{key}: the result counts {counted}, {records} records came to {name}")
            if self._server.data(PATHS.job(key)) is not None:
                self._world.violate(f"{key} has ended, but its records stay")
            kept = self._check_kept(key, result)
            stay = [path for path in self._storage.files if f"/{key}/" in path and path not in self._late]
            leftover = [path for path in stay if not any(folder in path for folder in kept)]
            if leftover:
                self._world.violate(f"{key} has ended, but its files stay: {leftover[:3]}")


def _offsets(metadata: CheckpointMetadata) -> Offsets:
    """How far each split was read."""
    return {
        (subtask.vertex_id, split.split): split.offset
        for subtask in metadata.subtasks
        for state in subtask.operators
        if state.kind is StateKind.SOURCE_STATE and state.handle is not None
        for split in decode(SourceState, state.handle.inline).splits
    }


def _counts_fit(found: Counts, wanted: Counts, is_exact: bool) -> bool:
    """Whether counts are those of the input; at least once they may be higher, never lower."""
    if is_exact:
        return found == wanted
    return all(found.get(key, (0, 0))[part] >= item[part] for key, item in wanted.items() for part in (0, 1))


def _check_records(world: World, what: str, found: Counter[Record], wanted: Seen, name: str, job: SimulatedJob) -> None:
    """Whether these are what is wanted at a vertex; at least once some may be there more often. None is invented."""
    missing, too_many = wanted.at[name] - found, found - wanted.at[name]
    if missing or (too_many and job.is_exact):
        world.violate(f"{what}: missing {missing}, too many {too_many}")
    if invented := set(found) - set(job.model.everything().at[name]):
        world.violate(f"{what}: {invented} are of no input")
