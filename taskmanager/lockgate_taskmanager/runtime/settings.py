"""Settings of a task manager process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lockgate_common.security import Credentials
from lockgate_common.settings import SettingsError, check_numbers, check_page, check_process

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class TaskManagerSettings:
    """Everything one task manager process needs to know.

    zookeeper: `host:port[,host:port...]`; bind: `host:port` of the data exchange, port 0 picks a free one;
    advertise: `host:port` that other task managers use. Empty means the bound address, which must then be one that
    others can connect to; port 0 means the bound port;
    slots: how many subtasks of each vertex fit here; spark_master: empty means `local[<slots>]`;
    spark_niceness: of Spark's JVM beyond that of this process, with a local master;
    work_dir: folder for Spark's scratch files; leader_grace_ms: how long subtasks run on without a
    leader, 0 for no limit; target_batch_ms: target processing time of one micro-batch;
    batch_interval_ms: from the start of one that has read all there was to the start of the next, at least;
    max_batch_bytes: upper bound of one micro-batch's input; warmup_runs: sample jobs while it is idle after its start;
    replay_log_bytes: what one subtask may keep for receivers that start again, see ReplayLog; 0 for nothing;
    task_manager_id: empty means one is generated;
    connect_timeout_ms: how long to wait for ZooKeeper at the start; metrics: `host:port` of the page of metrics, empty
    or `off` for none; tokens_file: of those who may read it, see `TokenBook`. For jobs whose authors may not run code:
    private: paths and URIs of the cluster's own files; folders: the only ones to read and write, empty for all others;
    variables: names of this process's environment, with * and ?, that they may use as `${NAME}`.
    """

    zookeeper: str
    work_dir: str
    cluster: str = "default"
    bind: str = "127.0.0.1:0"
    advertise: str = ""
    slots: int = 2
    spark_master: str = ""
    spark_options: Mapping[str, str] = field(default_factory=dict)
    spark_niceness: int = 0
    credentials: Credentials = field(default_factory=Credentials)
    session_timeout_ms: int = 4000
    heartbeat_ms: int = 500
    leader_grace_ms: int = 600_000
    target_batch_ms: int = 300
    batch_interval_ms: int = 0
    max_batch_bytes: int = 32 * MIB
    replay_log_bytes: int = 64 * MIB
    warmup_runs: int = 6
    task_manager_id: str = ""
    tokens_file: str = ""
    metrics: str = ""
    connect_timeout_ms: int = 30_000
    private: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()

    @property
    def master(self) -> str:
        """The effective Spark master URL."""
        return self.spark_master or f"local[{self.slots}]"

    def check(self) -> None:
        """Raises SettingsError naming the first setting that cannot work."""
        names = {"cluster": self.cluster, "task_manager_id": self.task_manager_id or "made"}
        check_process(self.zookeeper, self.bind, self.advertise, names)
        check_page("metrics", self.metrics)
        if not self.work_dir:
            raise SettingsError("work_dir: it is empty; Spark needs a folder for its scratch files")
        check_numbers(self)
