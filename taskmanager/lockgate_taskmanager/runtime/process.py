"""The task manager process."""

from __future__ import annotations

import gc
import logging
import os
import sys
import uuid
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue

from lockgate_common import open_files, private_folder
from lockgate_common.masking import masked
from lockgate_common.metrics.server import metrics_server
from lockgate_common.places import Places
from lockgate_common.security import SecurityError
from lockgate_common.settings import SettingsError
from lockgate_common.stop_deadline import ends_within
from lockgate_common.stop_signals import stop_signals
from lockgate_common.zookeeper_wait import NoZooKeeper, wait_for_zookeeper
from lockgate_ha.protection import Protection
from lockgate_ha.retrieval import LeaderRetrieval
from lockgate_ha.session import Connector
from lockgate_ha.zookeeper import connector

from lockgate_taskmanager.runtime.copy_keeper import CopyKeeper
from lockgate_taskmanager.runtime.metric_collector import task_manager_page
from lockgate_taskmanager.runtime.settings import TaskManagerSettings
from lockgate_taskmanager.runtime.start import Start
from lockgate_taskmanager.runtime.task_manager import TaskManager
from lockgate_taskmanager.runtime.warmup import Warmup
from lockgate_taskmanager.runtime.warmup_budget import Budget
from lockgate_taskmanager.state.backend import use_copies
from lockgate_taskmanager.state.local_copies import COPIES_PREFIX, LocalCopies
from lockgate_taskmanager.state.scratch import ScratchFolder
from lockgate_taskmanager.task.program import ProgramError, ProgramFactory

log = logging.getLogger(__name__)

USER_ERROR = 2
FAULT = 1
_STOP_S = 25.0  # of the subtasks, and then of Spark: supervisors wait for 60


def run(settings: TaskManagerSettings) -> int:
    """Runs until SIGTERM or SIGINT and returns the exit code: 0, 1 for an internal error, 2 for a user error.

    Call it on the main thread. Prints one line to stdout when Spark is warm, the exchange is open and ZooKeeper has
    answered.
    """
    # grpcio's fork handlers conflict with starting the JVM; nothing here forks later
    os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
    asked: SimpleQueue[int] = SimpleQueue()
    with stop_signals(asked.put):
        return _run(settings, Start(asked))


def _run(settings: TaskManagerSettings, start: Start) -> int:
    open_files.allow_many()
    try:
        settings.check()
        return _serve(replace(settings, task_manager_id=settings.task_manager_id or _fresh_id()), start)
    except (SettingsError, SecurityError, ProgramError, NoZooKeeper, OSError) as error:  # ProgramError: no Spark
        start.over()  # does not return where this came of being stopped
        print(f"error: {masked(str(error))}", file=sys.stderr, flush=True)
        return USER_ERROR
    except Exception:
        start.over()
        log.exception("the task manager failed")
        return FAULT


def _serve(settings: TaskManagerSettings, start: Start) -> int:
    from lockgate_taskmanager.spark.engine import SparkEngine  # slow to import
    from lockgate_taskmanager.spark.limits import Limits
    from lockgate_taskmanager.spark.master import Driver

    private_folder.make(Path(settings.work_dir))
    protection = Protection(settings.cluster, settings.credentials.secret)
    zookeeper = connector(
        settings.zookeeper, settings.session_timeout_ms, protection, settings.credentials.zookeeper
    )  # connects to nothing yet, but reports at once what is wrong with its files
    # The JVM first: it is started with a fork, which must not meet gRPC's threads.
    engine = SparkEngine(
        settings.master,
        dict(settings.spark_options),
        settings.slots,
        settings.work_dir,
        settings.target_batch_ms,
        settings.max_batch_bytes,
        driver=Driver(settings.task_manager_id, _host(settings.bind), _host(settings.advertise)),
        limits=Limits(Places((*settings.private, settings.work_dir), settings.folders), tuple(settings.variables)),
        batch_interval_ms=settings.batch_interval_ms,
        niceness=settings.spark_niceness,
    )
    engine.on_death(_follow_spark)
    start.set_cleanup(engine.close)
    try:
        engine.warm_up()
        gc.freeze()  # long-lived objects are excluded from collection: a full one takes 40 ms, in the middle of a batch
        manager = TaskManager(settings, engine)
        manager.on_failure = engine.suspect
        _take_part(manager, engine, settings, zookeeper, start.over())
    finally:
        with ends_within(_STOP_S):
            engine.close()
    return 0


def _take_part(
    manager: TaskManager,
    factory: ProgramFactory,
    settings: TaskManagerSettings,
    zookeeper: Connector,
    stop: SimpleQueue[int],
) -> None:
    warmup = Warmup(
        factory, settings.work_dir, manager.deployments.running, settings.warmup_runs, small_batches_of(settings)
    )
    manager.on_prepare = warmup.learn
    copies = LocalCopies(ScratchFolder(Path(settings.work_dir), COPIES_PREFIX))
    use_copies(copies)
    keeper = CopyKeeper(copies, manager.report_copies)
    manager.on_copies = keeper.keep
    retrieval = LeaderRetrieval(zookeeper, settings.cluster, manager.on_leader)
    page = task_manager_page(manager, settings, lambda: retrieval.is_connected)
    metrics = metrics_server(page, settings.metrics, settings.credentials, "taskmanager", settings.tokens_file)
    manager.start()
    try:
        if metrics is not None:
            metrics.start()
        retrieval.start()
        limit_ms = settings.connect_timeout_ms
        if not wait_for_zookeeper(
            retrieval.wait_answered,
            settings.zookeeper,
            limit_ms,
            lambda: not stop.empty(),
            lambda: retrieval.refusal,
            zookeeper.trouble,
        ):
            return
        print(
            f"lockgate taskmanager ready: id={manager.id} exchange={manager.exchange_address} "
            f"slots={settings.slots} pid={os.getpid()}{f' metrics={metrics.address}' if metrics is not None else ''}",
            flush=True,
        )
        if retrieval.current() is None:
            log.warning("no coordinator leads cluster %s at %s yet; waiting", settings.cluster, settings.zookeeper)
        warmup.start()
        keeper.start()
        stop.get()
        log.info("stopping")
    finally:
        with ends_within(_STOP_S):
            if metrics is not None:
                metrics.stop()
            retrieval.stop()
            manager.stop()
            warmup.stop()
            keeper.stop()
            use_copies(None)
            copies.close()


def small_batches_of(settings: TaskManagerSettings) -> Budget | None:
    """Those of the warm-up. A Spark cluster has other users, and pages that would list each of them."""
    from lockgate_taskmanager.spark.session import is_local  # slow to import

    return Budget() if settings.warmup_runs and is_local(settings.master) else None


def _follow_spark(why: str) -> None:
    """Ends the process at once: without Spark it would accept every attempt and fail it."""
    log.critical("%s; this task manager exits", why)
    logging.shutdown()
    os._exit(FAULT)


def _host(address: str) -> str:
    return address.rpartition(":")[0]


def _fresh_id() -> str:
    return f"tm-{uuid.uuid4().hex[:8]}"
