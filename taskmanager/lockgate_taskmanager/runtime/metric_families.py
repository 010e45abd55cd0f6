"""The metrics of a task manager. Those of a subtask are there while it lives, and begin again with each attempt."""

from __future__ import annotations

from lockgate_common.metrics import process_part
from lockgate_common.metrics.family import Family, counter, gauge, histogram

_SUBTASK = ("job_key", "vertex", "subtask")

SLOTS = gauge("lockgate_taskmanager_slots", "Subtasks of each vertex that fit here.")
SUBTASKS = gauge("lockgate_taskmanager_subtasks", "Subtasks that live here now.")
CONNECTED = gauge("lockgate_taskmanager_leader_connected", "1 while a leader has registered this process.")
STREAMS_OPENED = counter("lockgate_taskmanager_control_streams_total", "Streams opened to a leader.")
FENCED = counter(
    "lockgate_fenced_messages_total", "Messages that were refused because a leader with a higher token is known."
)
EXCHANGE_STREAMS = gauge("lockgate_exchange_streams", "Open channels to subtasks of other task managers.")

TIME = counter(
    "lockgate_subtask_time_seconds_total",
    "The subtask's time: busy, idle (no input, or barriers are being aligned), backpressured (outputs are full).",
    (*_SUBTASK, "state"),
)
WATERMARK = gauge(
    "lockgate_subtask_watermark_timestamp_seconds",
    "Event time that it has reached, in seconds since 1970; its lag is time() minus this. None without event time, and "
    "while it is idle: others do not wait for it then.",
    _SUBTASK,
)
BACKLOG_RECORDS = gauge(
    "lockgate_subtask_backlog_records",
    "Records that a source has found and not read yet: of Kafka, of Parquet files, of a generator. None if not known.",
    _SUBTASK,
)
BACKLOG_BYTES = gauge(
    "lockgate_subtask_backlog_bytes", "The same for text, CSV and JSON files: bytes. None if not known.", _SUBTASK
)
BACKLOG_SPLITS = gauge(
    "lockgate_subtask_backlog_splits",
    "Files or other splits of a source that are not read to their ends. None if not known.",
    _SUBTASK,
)
BATCHES = counter("lockgate_subtask_batches_total", "Micro-batches with records, except the first.", _SUBTASK)
BATCH_DURATION = histogram(
    "lockgate_subtask_batch_duration_seconds",
    "Time of one micro-batch in the operators and Spark, except the first, which includes planning.",
    _SUBTASK,
)
ENGINE_JOBS = counter("lockgate_subtask_spark_jobs_total", "Queries that Spark has run for the subtask.", _SUBTASK)
ENGINE_TIME = counter(
    "lockgate_subtask_spark_seconds_total",
    "Time of those queries, from the call until their results are in this process; the subtask is busy meanwhile.",
    _SUBTASK,
)
INPUT_RECORDS = counter("lockgate_subtask_input_records_total", "Input records of those batches.", _SUBTASK)
INPUT_BYTES = counter("lockgate_subtask_input_bytes_total", "Input bytes of those batches.", _SUBTASK)
QUEUED_BYTES = gauge("lockgate_subtask_input_queue_bytes", "Bytes in all input channels.", _SUBTASK)
QUEUED_ELEMENTS = gauge("lockgate_subtask_input_queue_elements", "Elements in all input channels.", _SUBTASK)
QUEUE_FILL = gauge(
    "lockgate_subtask_input_queue_fill_ratio", "The fullest input channel; from 1 on its sender has to wait.", _SUBTASK
)
OUTPUT_BYTES = gauge(
    "lockgate_subtask_output_queue_bytes", "Bytes that wait to be sent to other task managers.", _SUBTASK
)
LOG_BYTES = gauge(
    "lockgate_subtask_replay_log_bytes",
    "What it keeps for receivers on other task managers that may start again; only where a part of the job can.",
    _SUBTASK,
)
LOGS_TOO_SMALL = gauge(
    "lockgate_subtask_replay_logs_too_small",
    "Channels with more since the newest checkpoint than is kept: the loss of a receiver restarts the whole job.",
    _SUBTASK,
)
STATE_SIZE = gauge(
    "lockgate_state_size_bytes",
    "State of an operator in the subtask's newest snapshot, by state backend.",
    (*_SUBTASK, "operator", "backend"),
)
SNAPSHOT_SYNC = gauge(
    "lockgate_subtask_snapshot_sync_seconds", "How long the newest snapshot paused the subtask.", _SUBTASK
)
SNAPSHOT_UPLOAD = gauge(
    "lockgate_subtask_snapshot_upload_seconds", "How long the newest snapshot took to be stored.", _SUBTASK
)
SNAPSHOT_ALIGNMENT = gauge(
    "lockgate_subtask_snapshot_alignment_seconds",
    "From the newest snapshot's first barrier to its last.",
    _SUBTASK,
)

FAMILIES = (*process_part.FAMILIES, *(known for known in list(globals().values()) if isinstance(known, Family)))
"""Every one that a task manager can show."""
