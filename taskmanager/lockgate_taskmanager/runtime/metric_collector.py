"""A task manager's page of metrics, read when it is asked for from what its subtasks keep anyway."""

from __future__ import annotations

from collections.abc import Callable

from lockgate_common.metrics.page import MetricsPage
from lockgate_common.metrics.process_part import ProcessPart
from lockgate_common.metrics.samples import Samples
from lockgate_proto.messages import MemoryBackend, RocksdbBackend

from lockgate_taskmanager.runtime import metric_families as of
from lockgate_taskmanager.runtime.settings import TaskManagerSettings
from lockgate_taskmanager.runtime.subtask_task import SubtaskTask
from lockgate_taskmanager.runtime.task_manager import TaskManager


def task_manager_page(
    manager: TaskManager, settings: TaskManagerSettings, is_connected: Callable[[], bool]
) -> MetricsPage:
    """is_connected: to ZooKeeper."""
    process = ProcessPart(
        "taskmanager", manager.id, settings.cluster, settings.credentials, lambda: manager.fence.highest, is_connected
    )
    return MetricsPage((process, TaskManagerPart(manager, settings.slots)))


class TaskManagerPart:
    """All but what every process has."""

    def __init__(self, manager: TaskManager, slots: int) -> None:
        self._manager, self._slots = manager, slots

    def __call__(self, samples: Samples) -> None:
        """Adds its samples."""
        tasks = self._manager.deployments.live_tasks()
        samples.add(of.SLOTS, self._slots)
        samples.add(of.SUBTASKS, len(tasks))
        samples.add(of.CONNECTED, float(self._manager.control.is_connected))
        samples.add(of.STREAMS_OPENED, self._manager.control.streams.total())
        samples.add(of.FENCED, self._manager.fence.refused)
        samples.add(of.EXCHANGE_STREAMS, sum(task.outputs.remote_count() for task in tasks))
        newest: dict[tuple[str, str, int], SubtaskTask] = {}
        for task in tasks:  # an attempt that is being cancelled may still be here beside its successor
            assert task.id.attempt is not None
            newest[task.id.attempt.job_key, task.id.vertex_id, task.id.subtask] = task
        for labels, task in newest.items():
            _add_subtask(samples, task, labels)


def _add_subtask(samples: Samples, task: SubtaskTask, labels: tuple[str, str, int]) -> None:
    for share, seconds in task.shares.seconds().items():
        samples.add(of.TIME, seconds, *labels, share.value)
    behind_ms = task.load.behind_ms
    if behind_ms is not None:
        samples.add(of.WATERMARK, behind_ms / 1e3, *labels)
    waiting = task.load.backlog
    for family, found in (
        (of.BACKLOG_RECORDS, waiting.records),
        (of.BACKLOG_BYTES, waiting.bytes),
        (of.BACKLOG_SPLITS, waiting.splits),
    ):
        if found is not None:
            samples.add(family, found, *labels)
    effort = task.effort.total
    if effort is not None:
        samples.add(of.BATCHES, effort.batches, *labels)
        samples.add(of.INPUT_RECORDS, effort.records, *labels)
        samples.add(of.INPUT_BYTES, effort.size_bytes, *labels)
        samples.add_histogram(of.BATCH_DURATION, task.effort.durations, *labels)
    samples.add(of.ENGINE_JOBS, task.context.engine_time.jobs, *labels)
    samples.add(of.ENGINE_TIME, task.context.engine_time.seconds, *labels)
    if task.gate.channels:
        fill = task.gate.fill()
        samples.add(of.QUEUED_BYTES, fill.size_bytes, *labels)
        samples.add(of.QUEUED_ELEMENTS, fill.elements, *labels)
        samples.add(of.QUEUE_FILL, fill.fullest, *labels)
    samples.add(of.OUTPUT_BYTES, task.outputs.queued_bytes(), *labels)
    if kept := task.outputs.kept():
        samples.add(of.LOG_BYTES, sum(known.size_bytes for _, known in kept), *labels)
        samples.add(of.LOGS_TOO_SMALL, sum(known.since > 0 for _, known in kept), *labels)
    snapshot = task.newest_snapshot
    if snapshot is not None:
        samples.add(of.SNAPSHOT_SYNC, snapshot.sync_s, *labels)
        samples.add(of.SNAPSHOT_UPLOAD, snapshot.upload_s, *labels)
        samples.add(of.SNAPSHOT_ALIGNMENT, snapshot.alignment_s, *labels)
        for operator_id, size_bytes in snapshot.state_bytes:
            samples.add(of.STATE_SIZE, size_bytes, *labels, operator_id, _backend(task))


def _backend(task: SubtaskTask) -> str:
    choice = task.context.graph.state_backend
    kind = choice.backend if choice is not None else None
    match kind:
        case MemoryBackend():
            return "memory"
        case RocksdbBackend():
            return "rocksdb"
        case _:
            return "filesystem"
