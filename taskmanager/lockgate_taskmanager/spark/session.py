"""Starts Spark with settings for short jobs over small inputs, and clear errors when it cannot start."""

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

from lockgate_taskmanager.spark import access, connect
from lockgate_taskmanager.spark.errors import EngineError
from lockgate_taskmanager.spark.master import NO_DRIVER, Driver, reach
from lockgate_taskmanager.spark.niceness import raise_niceness

LOG = logging.getLogger(__name__)
HUGE_SPLIT_BYTES = 1 << 42
END_S = 10.0
_MASTER = re.compile(r"local(\[(\*|\d+)(,\s*\d+)?\])?|(spark|sc|k8s|mesos)://.+|yarn")

# When no master accepts the application Spark stops, and the start fails at any later point.
_GIVEN_UP = ("stopped SparkContext", '"org.apache.spark.SparkEnv$.get()" is null')

Session = Any  # pyspark.sql.SparkSession, classic or Connect


def is_local(master: str) -> bool:
    """True when the executors run in the driver on this machine: they see its files."""
    return master == "local" or master.startswith("local[")


# Two task managers that start on two cores are ready after 12 s instead of 16 with these: the second compiler waits
# until a method is really hot (loops are compiled as early as before), and the collector has no threads of its own.
_JAVA_OPTIONS = (
    "-XX:Tier4InvocationThreshold=25000 -XX:Tier4MinInvocationThreshold=10000 -XX:Tier4CompileThreshold=50000"
    " -XX:+UseSerialGC"
)
_BIND = "spark.driver.bindAddress"
_LOCAL = {
    _BIND: "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.network.crypto.saslFallback": "false",
    # Larger results take a detour through the block manager: 10 ms for 1.2 MB
    "spark.task.maxDirectResultSize": "64m",
}
# Spark's UI asks for no secret: it is off unless Spark's own configuration says otherwise, and no jobs are ended there.
# Its port is the first free one from 4040, and a host may have many task managers.
_UI = {"spark.ui.killEnabled": "false", "spark.port.maxRetries": "100"}
_FEW_IN_UI = {
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "100",
    "spark.sql.ui.retainedExecutions": "20",
}


def start(
    master: str,
    options: Mapping[str, str],
    slots: int,
    work_dir: str,
    java_options: str = "",
    driver: Driver = NO_DRIVER,
    scratch: str = "",
    niceness: int = 0,
) -> Session:
    """The process's one SparkSession. Raises EngineError, one sentence.

    java_options: of the JVM on this machine; scratch: the folder for its temporary files, `spark` in work_dir if empty;
    niceness: of the JVM, beyond that of this process, if it computes here; Linux only.
    """
    master = master or f"local[{max(1, slots)}]"
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["PYSPARK_PYTHON"] = options.get("spark.pyspark.python", sys.executable)
    if not _MASTER.fullmatch(master):
        raise EngineError(f"'{master}' is not a Spark master: use local[N], spark://HOST:PORT or sc://HOST:PORT")
    if master.startswith("sc://"):
        return connect.open_session(master, {**_sql_settings(slots), **options})
    on_master = master.startswith("spark://")
    here = {} if is_local(master) else driver.settings(reach(master) if on_master else "")
    _check_java()
    if on_master and here.get(_BIND, "0.0.0.0") != "0.0.0.0":
        os.environ.setdefault("SPARK_LOCAL_IP", here[_BIND])  # nothing else binds Spark's UI to an address
    # JVM and gateway are started with a fork, which must not run gRPC's fork handlers
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    settings = _settings(slots, scratch or str(Path(work_dir) / "spark"), work_dir, java_options) | _UI
    settings |= _LOCAL | _FEW_IN_UI if is_local(master) else _remote(slots) | here
    settings |= {"spark.master": master, "spark.app.name": driver.application, **options}
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        # it prints exceptions that are raised as well, with JVM stacks
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        conf = access.configured(settings)
        access.require_secret(conf, master)
        SparkContext(conf=conf)
        session = SparkSession.builder.getOrCreate()
        session.sparkContext.setLogLevel(options.get("spark.log.level", "FATAL"))  # failures are reported as exceptions
    except (PySparkException, Py4JError, OSError, RuntimeError) as error:
        if any(sign in str(error) for sign in _GIVEN_UP):
            raise EngineError(
                f"the server at {master} did not accept the application; is it a Spark master with the same secret?"
            ) from error
        line = next((line for line in str(error).splitlines() if "xception: " in line), str(error).splitlines()[0])
        if "JAVA_GATEWAY_EXITED" in line:
            line = "its JVM ended at once; Java 17 or newer is needed, and the JVM's output is above"
        raise EngineError(f"Spark does not start on master '{master}': {line.strip()}") from error
    process = driver_process(session)
    if niceness and is_local(master) and process is not None:
        raise_niceness(process.pid, niceness)
    return session


def is_connect(subject: Any) -> bool:
    """True for a Spark Connect session, and for a DataFrame of one."""
    return type(subject).__module__.startswith("pyspark.sql.connect")


def driver_process(session: Session) -> subprocess.Popen[bytes] | None:
    """The JVM that this process started for the session; None for Spark Connect."""
    process: subprocess.Popen[bytes] | None = None if is_connect(session) else session.sparkContext._gateway.proc
    return process


def end(process: subprocess.Popen[bytes], limit_s: float | None = END_S) -> int:
    """Lets the JVM exit as it does when its parent process is gone; returns its exit status.

    A JVM that takes longer than limit_s, for example in a shutdown hook, is killed: waiting could take forever.
    """
    assert process.stdin is not None
    process.stdin.close()  # PySpark's gateway exits when its input closes
    try:
        return process.wait(limit_s)
    except subprocess.TimeoutExpired:
        LOG.warning("the JVM did not exit within %g s; killing it", limit_s)
        process.kill()
        return process.wait()


def another(session: Session) -> Session:
    """A second session with the same settings and its own views."""
    return connect.clone_session(session) if is_connect(session) else session.newSession()


def confine(session: Session) -> None:
    """SQL in it reads no files by their paths, and replaces no `${env:NAME}`. For jobs that may not run code."""
    session.conf.set("spark.sql.runSQLOnFiles", "false")
    session.conf.set("spark.sql.variable.substitute", "false")


def release(session: Session) -> None:
    """Releases a session made by `another`."""
    if is_connect(session):
        connect.end_session(session)


def stop(session: Session) -> None:
    """Stops the process's own session and, if it is ours, Spark in the JVM."""
    if is_connect(session):
        connect.end_session(session)
    else:
        session.stop()


def _settings(slots: int, scratch: str, work_dir: str, java_options: str) -> dict[str, str]:
    return _sql_settings(slots) | {
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.files.maxPartitionBytes": str(HUGE_SPLIT_BYTES),
        # Spark divides a file by the number of cores by default; a slot file must stay one partition.
        "spark.sql.files.minPartitionNum": "1",
        "spark.sql.warehouse.dir": str(Path(work_dir) / "warehouse"),
        "spark.local.dir": scratch,
        "spark.cleaner.periodicGC.interval": "10min",
        "spark.scheduler.mode": "FAIR",
        "spark.python.worker.reuse": "true",
        "spark.driver.extraJavaOptions": f'{_JAVA_OPTIONS} "-Djava.io.tmpdir={scratch}" {java_options}'.strip(),
    }


def _sql_settings(slots: int) -> dict[str, str]:
    """Settings of a session, not of the application."""
    return {
        "spark.sql.debug.maxToStringFields": "100000",  # plans are read as text
        "spark.sql.adaptive.enabled": "false",  # re-planning at run time costs more than it saves on small inputs
        "spark.sql.shuffle.partitions": str(max(1, slots)),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "131072",
    }


def _remote(slots: int) -> dict[str, str]:
    # Otherwise the first task manager would take the whole cluster
    return {"spark.cores.max": str(max(1, slots))}


def _check_java() -> None:
    home = os.environ.get("JAVA_HOME")
    if home and not os.access(Path(home) / "bin" / "java", os.X_OK):
        raise EngineError(f"JAVA_HOME is {home}, but there is no bin/java in it: point it at a Java 17 or newer")
    if not home and not shutil.which("java"):
        raise EngineError("Java was not found: install Java 17 or newer (Debian: apt install openjdk-17-jre-headless)")
