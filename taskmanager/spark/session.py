"""Starts Spark: settings for short jobs over small inputs, and clear errors when it cannot start."""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from taskmanager.spark.errors import EngineError
from taskmanager.spark.master import NOBODY, TIMEOUT_S, Driver, reach

LOG = logging.getLogger(__name__)
HUGE_SPLIT_BYTES = 1 << 42
END_S = 10.0
_MASTER = re.compile(r"local(\[(\*|\d+)(,\s*\d+)?\])?|(spark|sc|k8s|mesos)://.+|yarn")

Session = Any  # pyspark.sql.SparkSession, classic or Connect


def is_local(master: str) -> bool:
    """True when the executors run on this machine, in the driver: they see its files."""
    return master == "local" or master.startswith("local[")


# Two task managers that start on two cores are ready after 12 s instead of 16 with these: the second compiler waits
# until a method is really hot (loops are compiled as early as ever), and the collector has no threads of its own.
_JAVA_OPTIONS = (
    "-XX:Tier4InvocationThreshold=25000 -XX:Tier4MinInvocationThreshold=10000 -XX:Tier4CompileThreshold=50000"
    " -XX:+UseSerialGC"
)
_LOCAL = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}


def start(
    master: str,
    options: Mapping[str, str],
    slots: int,
    work_dir: str,
    java_options: str = "",
    driver: Driver = NOBODY,
) -> Session:
    """The process's one SparkSession. java_options: of the JVM on this machine. Raises EngineError, one sentence."""
    master = master or f"local[{max(1, slots)}]"
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["PYSPARK_PYTHON"] = options.get("spark.pyspark.python", sys.executable)
    if not _MASTER.fullmatch(master):
        raise EngineError(f"'{master}' is no Spark master: use local[N], spark://HOST:PORT or sc://HOST:PORT")
    if master.startswith("sc://"):
        return _connect(master, options, slots)
    here = {} if is_local(master) else driver.settings(reach(master) if master.startswith("spark://") else "")
    _check_java()
    # Jars load, the JVM starts and its gateway must not inherit gRPC's fork handlers
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(master).appName(driver.application)
    settings = _settings(slots, work_dir, java_options) | (_LOCAL if is_local(master) else _remote(slots) | here)
    for name, value in {**settings, **options}.items():
        builder = builder.config(name, value)
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # they print what is raised as well, with JVM stacks
    try:
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel(options.get("spark.log.level", "FATAL"))  # failures are reported as exceptions
    except (PySparkException, Py4JError, OSError, RuntimeError) as error:
        if "stopped SparkContext" in str(error):
            raise EngineError(
                f"what listens at {master} did not take the application; is it a Spark master?"
            ) from error
        line = next((one for one in str(error).splitlines() if "xception: " in one), str(error).splitlines()[0])
        if "JAVA_GATEWAY_EXITED" in line:
            line = "its JVM ended at once; Java 17 or newer is needed, and what the JVM said is above"
        raise EngineError(f"Spark does not start on master '{master}': {line.strip()}") from error
    return session


def is_connect(session: Session) -> bool:
    """True for a Spark Connect session."""
    return type(session).__module__.startswith("pyspark.sql.connect")


def driver_process(session: Session) -> subprocess.Popen[bytes] | None:
    """The JVM that this process started for the session; None for Spark Connect."""
    process: subprocess.Popen[bytes] | None = None if is_connect(session) else session.sparkContext._gateway.proc
    return process


def end(process: subprocess.Popen[bytes], limit_s: float | None = END_S) -> int:
    """Ends the JVM in its own time, as it does when the process that started it is gone; its exit status.

    One that takes longer than limit_s, say in a shutdown hook, is killed: who waits for its end could wait for ever.
    """
    assert process.stdin is not None
    process.stdin.close()  # PySpark's gateway ends with its input
    try:
        return process.wait(limit_s)
    except subprocess.TimeoutExpired:
        LOG.warning("the JVM did not end in %g s and is killed", limit_s)
        process.kill()
        return process.wait()


def another(session: Session) -> Session:
    """A session beside this one, with views of its own and the same settings."""
    return session.cloneSession() if is_connect(session) else session.newSession()


def release(session: Session) -> None:
    """Gives back what `another` has made: a Connect server keeps a session until it is told, or for an hour."""
    if is_connect(session):
        session.stop()


def _settings(slots: int, work_dir: str, java_options: str) -> dict[str, str]:
    return _sql_settings(slots) | {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.ui.retainedJobs": "20",
        "spark.ui.retainedStages": "20",
        "spark.ui.retainedTasks": "100",
        "spark.sql.ui.retainedExecutions": "20",
        "spark.sql.files.maxPartitionBytes": str(HUGE_SPLIT_BYTES),
        # Spark divides a file by the number of cores unless told otherwise; a slot file must stay one partition.
        "spark.sql.files.minPartitionNum": "1",
        "spark.sql.debug.maxToStringFields": "100000",
        "spark.sql.warehouse.dir": str(Path(work_dir) / "warehouse"),
        "spark.local.dir": str(Path(work_dir) / "spark"),
        "spark.cleaner.periodicGC.interval": "10min",
        "spark.scheduler.mode": "FAIR",
        "spark.python.worker.reuse": "true",
        "spark.driver.extraJavaOptions": f"{_JAVA_OPTIONS} {java_options}".strip(),
    }


def _sql_settings(slots: int) -> dict[str, str]:
    """Those that belong to a session and not to the application."""
    return {
        "spark.sql.adaptive.enabled": "false",  # re-planning at run time costs more than it saves on small inputs
        "spark.sql.shuffle.partitions": str(max(1, slots)),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "131072",
    }


def _remote(slots: int) -> dict[str, str]:
    # Or the first task manager would take the whole cluster
    return {"spark.cores.max": str(max(1, slots))}


def _check_java() -> None:
    home = os.environ.get("JAVA_HOME")
    if home and not os.access(Path(home) / "bin" / "java", os.X_OK):
        raise EngineError(f"JAVA_HOME is {home}, but there is no bin/java in it: point it at a Java 17 or newer")
    if not home and not shutil.which("java"):
        raise EngineError("Java was not found: install Java 17 or newer (Debian: apt install openjdk-17-jre-headless)")


def _connect(master: str, options: Mapping[str, str], slots: int) -> Session:
    reach(master)
    try:
        import grpc
        from pyspark.sql import SparkSession
        from pyspark.sql.connect.client import DefaultChannelBuilder
    except ImportError as error:  # PySpark's own error is an ImportError as well
        raise EngineError(f"Spark Connect needs more packages: pip install 'lockgate[connect]' ({error})") from error
    try:
        with DefaultChannelBuilder(master).toChannel() as channel:  # the session itself tries for ten minutes
            grpc.channel_ready_future(channel).result(timeout=TIMEOUT_S)
        builder = SparkSession.builder.remote(master)
        for name, value in {**_sql_settings(slots), **options}.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
        session.range(1).count()
    except grpc.FutureTimeoutError as error:
        raise EngineError(f"what listens at {master} does not speak Spark Connect (or its TLS is not ours)") from error
    except Exception as error:  # the Connect client raises gRPC's errors as they are
        line = (str(error).splitlines() or [type(error).__name__])[0]
        raise EngineError(f"the Spark Connect server {master} does not answer: {line}") from error
    return session
