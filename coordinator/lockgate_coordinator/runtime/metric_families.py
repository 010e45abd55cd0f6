"""The metrics of a coordinator. Those of the leader are missing on a standby, those of a job when the job has gone."""

from __future__ import annotations

from lockgate_common.metrics import process_part
from lockgate_common.metrics.family import Family, counter, gauge, histogram

_JOB = ("job_key",)
_OPERATOR = ("job_key", "vertex", "operator")


# Leadership, of every coordinator.
IS_LEADER = gauge("lockgate_coordinator_is_leader", "1 while this coordinator holds the grant, else 0.")
SUSPENDED = gauge(
    "lockgate_coordinator_suspended", "1 while this leader cannot reach ZooKeeper: tasks run on, nothing new begins."
)
COORDINATORS = gauge("lockgate_coordinators", "Coordinators in the line of candidates, the leader included.")
GRANTS = counter("lockgate_leadership_grants_total", "How often this process was made the leader.")
REVOCATIONS = counter("lockgate_leadership_revocations_total", "How often this process stopped being the leader.")
JOBS_ENDED = counter(
    "lockgate_jobs_ended_total", "Jobs that have ended under this coordinator; 0 on a standby.", ("outcome",)
)
FENCED_WRITES = counter(
    "lockgate_fenced_writes_total", "Writes that ZooKeeper refused because of a later grant; each ends a term."
)
TAKEOVER = histogram(
    "lockgate_takeover_seconds", "From the first sign of the former leader's loss to the grant of this one."
)
ZOOKEEPER_WRITE = histogram("lockgate_zookeeper_write_seconds", "Fenced writes of the leader, including failed ones.")
ZOOKEEPER_READ = histogram("lockgate_zookeeper_read_seconds", "Reads of the leader, including failed ones.")
STREAMS = gauge("lockgate_grpc_streams", "Open streams at this coordinator.", ("kind",))
TRACES = counter("lockgate_traces_total", "Traces for an OTLP receiver: sent, failed, dropped.", ("result",))

# The cluster, of the leader.
TASK_MANAGERS = gauge("lockgate_task_managers", "Task managers registered with the leader.")
SLOTS = gauge("lockgate_slots", "Slots of the registered task managers, used and free.", ("state",))
JOBS = gauge("lockgate_jobs", "Jobs that have not been cleaned up, by state.", ("state",))

# Jobs, of the leader.
JOB_STATE = gauge("lockgate_job_state", "1, with the job's present state.", ("job_key", "state"))
RUNNING_SINCE = gauge(
    "lockgate_job_running_since_timestamp_seconds",
    "When the job began to run under this leader, in seconds since 1970; only while it runs. A restart counts only"
    " after a completed checkpoint.",
    _JOB,
)
JOB_ATTEMPT = gauge("lockgate_job_attempt", "The number of the job's newest attempt.", _JOB)
JOB_RESTARTS = counter("lockgate_job_restarts_total", "Restarts since the job's submission.", _JOB)
ATTEMPTS_DEPLOYED = counter(
    "lockgate_job_attempts_deployed_total", "Attempts in which every subtask has run, under this leader.", _JOB
)
ATTEMPTS_ENDED = counter(
    "lockgate_job_attempts_ended_total",
    "Attempts given up under this leader, by cause.",
    ("job_key", "cause"),
)
STORAGE_FAILING = gauge(
    "lockgate_job_storage_failing", "1 while the job's snapshots cannot be stored or read, else 0.", _JOB
)
STANDBY_COPIES = gauge(
    "lockgate_job_standby_copies",
    "Standby copies of a job that asks for them: wanted, and complete for the newest checkpoint.",
    ("job_key", "state"),
)
RECORDS_IN = counter("lockgate_operator_records_in_total", "Records that an operator has taken in.", _OPERATOR)
RECORDS_OUT = counter("lockgate_operator_records_out_total", "Records that an operator has put out.", _OPERATOR)
RECORDS_LATE = counter(
    "lockgate_operator_records_late_total",
    "Records too late for their windows, or without a time.",
    _OPERATOR,
)
RECORDS_MALFORMED = counter(
    "lockgate_operator_records_malformed_total", "Lines that a source could not parse as records.", _OPERATOR
)
RECORDS_AHEAD = counter(
    "lockgate_operator_records_ahead_total", "Records too far ahead of the clock to advance event time.", _OPERATOR
)
RECORDS_FAILED = counter(
    "lockgate_operator_records_failed_total", "Records that failed in an operator and were skipped.", _OPERATOR
)
RECORDS_LOST = counter(
    "lockgate_operator_records_lost_total", "Records that restarts have skipped in the mode at_most_once.", _OPERATOR
)
RECORDS = {
    "records_in": RECORDS_IN,
    "records_out": RECORDS_OUT,
    "records_late": RECORDS_LATE,
    "records_malformed": RECORDS_MALFORMED,
    "records_ahead": RECORDS_AHEAD,
    "records_failed": RECORDS_FAILED,
    "records_lost": RECORDS_LOST,
}
"""By field of OperatorStatus."""

# Checkpoints, of the leader.
CHECKPOINTS = counter(
    "lockgate_checkpoints_total",
    "Checkpoints and savepoints under this leader; the reason is empty for completed ones.",
    ("job_key", "result", "reason"),
)
CHECKPOINT_DURATION = histogram(
    "lockgate_checkpoint_duration_seconds", "From the trigger of a completed checkpoint to its record.", _JOB
)
CHECKPOINT_SIZE = gauge("lockgate_checkpoint_size_bytes", "State and metadata of the newest checkpoint.", _JOB)
CHECKPOINT_WRITTEN = gauge(
    "lockgate_checkpoint_written_bytes", "The part of it that the newest checkpoint wrote itself.", _JOB
)
CHECKPOINT_ALIGNMENT = gauge(
    "lockgate_checkpoint_alignment_seconds", "The longest alignment of a subtask in the newest checkpoint.", _JOB
)
CHECKPOINT_SYNC = gauge(
    "lockgate_checkpoint_sync_seconds", "The longest pause of a subtask to freeze its state, in the newest one.", _JOB
)
CHECKPOINT_COMPLETED = gauge(
    "lockgate_checkpoint_completed_timestamp_seconds",
    "When the newest checkpoint was complete, in seconds since 1970; its age is time() minus this.",
    _JOB,
)
CHECKPOINT_INTERVAL = gauge(
    "lockgate_checkpoint_interval_seconds", "The job's setting; once the leader has read its records.", _JOB
)

FAMILIES = (*process_part.FAMILIES, *(known for known in list(globals().values()) if isinstance(known, Family)))
"""Every one that a coordinator can show."""
