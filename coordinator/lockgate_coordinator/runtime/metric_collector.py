"""The parts of a coordinator's page of metrics, read when they are asked for from what the process keeps anyway."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from lockgate_common.metrics.page import MetricsPage
from lockgate_common.metrics.process_part import ProcessPart
from lockgate_common.metrics.samples import Samples
from lockgate_common.serving.call_places import CallPlaces
from lockgate_ha.elector import Elector
from lockgate_proto.messages import CompletedCheckpoint, JobState, JobStatus

from lockgate_coordinator.runtime import metric_families as of
from lockgate_coordinator.runtime.dispatcher import Dispatcher
from lockgate_coordinator.runtime.errors import NotLeading
from lockgate_coordinator.runtime.meters import JobMeters
from lockgate_coordinator.runtime.settings import CoordinatorSettings
from lockgate_coordinator.runtime.term import LeaderTerm
from lockgate_coordinator.runtime.trace_export import TraceExport


def coordinator_page(
    coordinator_id: str,
    settings: CoordinatorSettings,
    elector: Elector,
    dispatcher: Dispatcher,
    streams: Mapping[str, CallPlaces],
    traces: TraceExport | None = None,
) -> MetricsPage:
    """The page. streams: by kind. traces: if any are sent. `render()` may be called on any thread that may wait."""

    def token() -> int:
        leader = elector.leader
        return leader.token if leader is not None else 0

    process = ProcessPart(
        "coordinator", coordinator_id, settings.cluster, settings.credentials, token, lambda: elector.is_connected
    )
    leadership = LeadershipPart(elector, dispatcher, streams)

    def sent(samples: Samples) -> None:
        for result, count in traces.outcomes.items() if traces is not None else ():
            samples.add(of.TRACES, count, str(result))

    return MetricsPage((process, leadership, TermPart(dispatcher), sent))


class LeadershipPart:
    """Of every coordinator."""

    def __init__(self, elector: Elector, dispatcher: Dispatcher, streams: Mapping[str, CallPlaces]) -> None:
        self._elector, self._dispatcher, self._streams = elector, dispatcher, streams

    def __call__(self, samples: Samples) -> None:
        """Adds its samples."""
        meters = self._dispatcher.meters
        is_leader = self._elector.grant is not None
        samples.add(of.IS_LEADER, float(is_leader))
        samples.add(of.SUSPENDED, float(is_leader and not self._elector.is_connected))
        samples.add(of.COORDINATORS, len(self._elector.contenders()))
        samples.add(of.GRANTS, meters.grants.total())
        samples.add(of.REVOCATIONS, meters.revocations.total())
        for outcome, count in meters.jobs_ended.items():
            samples.add(of.JOBS_ENDED, count, outcome)
        samples.add(of.FENCED_WRITES, meters.fenced_writes.total())
        samples.add_histogram(of.TAKEOVER, meters.takeovers)
        samples.add_histogram(of.ZOOKEEPER_WRITE, meters.writes)
        samples.add_histogram(of.ZOOKEEPER_READ, meters.reads)
        for kind, places in self._streams.items():
            samples.add(of.STREAMS, places.taken, kind)


class TermPart:
    """Of the leader: the cluster and its jobs. Nothing on a standby."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher

    def __call__(self, samples: Samples) -> None:
        """Adds its samples."""
        try:
            jobs, used, free, task_managers = self._dispatcher.call(_seen)
        except NotLeading:
            return
        samples.add(of.TASK_MANAGERS, task_managers)
        samples.add(of.SLOTS, used, "used")
        samples.add(of.SLOTS, free, "free")
        for state, count in Counter(status.state.name for status, *_ in jobs).items():
            samples.add(of.JOBS, count, state)
        for status, interval_ms, meters in jobs:
            _add_job(samples, status, meters)
            if interval_ms:
                samples.add(of.CHECKPOINT_INTERVAL, interval_ms / 1_000, status.job_key)


_Job = tuple[JobStatus, int, JobMeters]
"""The number is the interval of its checkpoints in ms; 0 while it is not known."""


def _seen(term: LeaderTerm) -> tuple[list[_Job], int, int, int]:
    """On the actor thread: jobs, used slots, free slots, task managers."""
    jobs = []
    for runner in term.jobs.values():
        options = runner.query(lambda master: master.attempts.graph.checkpoints)
        jobs.append((runner.status(), options.interval_ms if options is not None else 0, runner.meters))
    known = term.task_manager_statuses()
    free = sum(task_manager.free_slots for task_manager in known)
    return jobs, sum(task_manager.slots for task_manager in known) - free, free, len(known)


def _add_job(samples: Samples, status: JobStatus, meters: JobMeters) -> None:
    key = status.job_key
    samples.add(of.JOB_STATE, 1, key, status.state.name)
    if status.state in (JobState.RUNNING, JobState.FINISHING):
        samples.add(of.RUNNING_SINCE, meters.running_since_s, key)
    samples.add(of.JOB_ATTEMPT, status.attempt, key)
    samples.add(of.JOB_RESTARTS, status.restarts, key)
    samples.add(of.ATTEMPTS_DEPLOYED, meters.deployments.total(), key)
    for cause, count in meters.ends.items():
        samples.add(of.ATTEMPTS_ENDED, count, key, cause)
    samples.add(of.STORAGE_FAILING, float(status.storage_trouble is not None), key)
    if status.standby_copies is not None:
        samples.add(of.STANDBY_COPIES, status.standby_copies.wanted, key, "wanted")
        samples.add(of.STANDBY_COPIES, status.standby_copies.complete, key, "complete")
    for operator in status.operators:
        labels = (key, operator.vertex_id, operator.operator_id)
        for field, family in of.RECORDS.items():
            counter = meters.records.total((field, operator.operator_id), getattr(operator, field))
            samples.add(family, counter, *labels)
    for outcome, count in meters.checkpoints.items():
        assert isinstance(outcome, tuple)
        samples.add(of.CHECKPOINTS, count, key, *outcome)
    samples.add_histogram(of.CHECKPOINT_DURATION, meters.checkpoint_durations, key)
    if status.last_checkpoint is not None:
        _add_checkpoint(samples, key, status.last_checkpoint)


def _add_checkpoint(samples: Samples, key: str, newest: CompletedCheckpoint) -> None:
    samples.add(of.CHECKPOINT_SIZE, newest.size_bytes, key)
    samples.add(of.CHECKPOINT_WRITTEN, newest.written_bytes, key)
    samples.add(of.CHECKPOINT_ALIGNMENT, newest.longest_alignment_ms / 1e3, key)
    samples.add(of.CHECKPOINT_SYNC, newest.longest_sync_us / 1e6, key)
    samples.add(of.CHECKPOINT_COMPLETED, (newest.triggered_unix_ms + newest.duration_ms) / 1e3, key)
