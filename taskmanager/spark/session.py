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

LOG = logging.getLogger(__name__)
HUGE_SPLIT_BYTES = 1 << 42
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


def start(master: str, options: Mapping[str, str], slots: int, work_dir: str) -> Session:
    """The process's one SparkSession. Raises EngineError with one sentence."""
    master = master or f"local[{max(1, slots)}]"
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if not _MASTER.fullmatch(master):
        raise EngineError(f"'{master}' is no Spark master: use local[N], spark://HOST:PORT or sc://HOST:PORT")
    if master.startswith("sc://"):
        return _connect(master, options)
    _check_java()
    # Jars load, the JVM starts and its gateway must not inherit gRPC's fork handlers
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(master).appName("lockgate")
    for name, value in {**_settings(master, slots, work_dir), **options}.items():
        builder = builder.config(name, value)
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # they print what is raised as well, with JVM stacks
    try:
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel(options.get("spark.log.level", "FATAL"))  # failures are reported as exceptions
    except (PySparkException, Py4JError, OSError, RuntimeError) as error:
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


def another(session: Session) -> Session:
    """A session beside this one, with views of its own."""
    return session.newSession()


def _settings(master: str, slots: int, work_dir: str) -> dict[str, str]:
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.ui.retainedJobs": "20",
        "spark.ui.retainedStages": "20",
        "spark.ui.retainedTasks": "100",
        "spark.sql.ui.retainedExecutions": "20",
        "spark.sql.adaptive.enabled": "false",  # re-planning at run time costs more than it saves on small inputs
        "spark.sql.shuffle.partitions": str(max(1, slots)),
        "spark.sql.files.maxPartitionBytes": str(HUGE_SPLIT_BYTES),
        # Spark divides a file by the number of cores unless told otherwise; a slot file must stay one partition.
        "spark.sql.files.minPartitionNum": "1",
        "spark.sql.debug.maxToStringFields": "100000",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "131072",
        "spark.sql.warehouse.dir": str(Path(work_dir) / "warehouse"),
        "spark.local.dir": str(Path(work_dir) / "spark"),
        "spark.cleaner.periodicGC.interval": "10min",
        "spark.scheduler.mode": "FAIR",
        "spark.python.worker.reuse": "true",
    }
    if is_local(master):
        settings["spark.driver.extraJavaOptions"] = _JAVA_OPTIONS
        settings["spark.driver.bindAddress"] = settings["spark.driver.host"] = "127.0.0.1"
    return settings


def _check_java() -> None:
    home = os.environ.get("JAVA_HOME")
    if home and not os.access(Path(home) / "bin" / "java", os.X_OK):
        raise EngineError(f"JAVA_HOME is {home}, but there is no bin/java in it: point it at a Java 17 or newer")
    if not home and not shutil.which("java"):
        raise EngineError("Java was not found: install Java 17 or newer (Debian: apt install openjdk-17-jre-headless)")


def _connect(master: str, options: Mapping[str, str]) -> Session:
    try:
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.remote(master)
        for name, value in {"spark.sql.session.timeZone": "UTC", **options}.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
        session.range(1).count()
    except ImportError as error:
        raise EngineError(f"Spark Connect needs more packages: pip install 'pyspark[connect]' ({error})") from error
    except Exception as error:  # the Connect client raises gRPC's errors as they are
        line = (str(error).splitlines() or [type(error).__name__])[0]
        raise EngineError(f"the Spark Connect server {master} does not answer: {line}") from error
    return session
