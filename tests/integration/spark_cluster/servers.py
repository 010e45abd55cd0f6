"""Spark's own servers out of PySpark's jars, as child processes: a standalone master, workers, Spark Connect."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pyspark
from lockgate_devtools.cluster.ports import HOST, choose
from lockgate_taskmanager.spark import class_archive

from tests.java import FIRST_COMPILER_ONLY

HOME = Path(pyspark.__file__).parent
SECRET = "of-master-workers-and-drivers"
JAVA_OPTIONS = f"{FIRST_COMPILER_ONLY} -XX:+UseSerialGC {class_archive.options_to_use()}".strip()
"""Of servers and executors, which live for a minute or two."""
OF_CLUSTER = {"spark.authenticate.secret": SECRET, "spark.executor.extraJavaOptions": JAVA_OPTIONS}
"""What a driver needs to take part in the cluster."""
TOKEN_NAME = "SPARK_CONNECT_AUTHENTICATE_TOKEN"
TOKEN = "of-server-and-clients"
_START_S = 180.0  # on a machine with other work; alone it takes ten


class SparkServer:
    """One JVM with a log of its own. It dies with `stop`, its executors included."""

    def __init__(self, folder: Path, name: str, command: Sequence[str], ready: str, memory: str = "256m") -> None:
        """ready: text in the log once it serves; memory: of its JVM."""
        self.log = folder / f"{name}.log"
        self._ready = ready
        variables = {
            "SPARK_HOME": str(HOME),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_DAEMON_MEMORY": memory,
            "SPARK_DAEMON_JAVA_OPTS": JAVA_OPTIONS,  # of master and workers
            "SPARK_SUBMIT_OPTS": JAVA_OPTIONS,
            TOKEN_NAME: TOKEN,
        }
        with self.log.open("wb") as out:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
                env={**os.environ, **variables},
            )

    def wait_ready(self) -> None:
        """Until it serves; fails with its last words."""
        deadline = time.monotonic() + _START_S
        turn = threading.Event()
        while self._ready not in (text := self.log.read_text(errors="replace")):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"{self.log.name} never said '{self._ready}': {text[-2000:]}")
            turn.wait(0.05)

    def stop(self) -> None:
        """SIGKILL for the whole group, and its end."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def standalone(folder: Path, workers: int) -> tuple[str, list[SparkServer]]:
    """A master and workers of one core each; the master's URL."""
    ports = choose(2 + workers)
    url = f"spark://{HOST}:{ports[0]}"
    settings = folder / "spark.conf"
    settings.touch(0o600)
    settings.write_text(f"spark.authenticate true\nspark.authenticate.secret {SECRET}\n")
    known = ["--properties-file", str(settings)]
    java = [str(HOME / "bin" / "spark-class"), "org.apache.spark.deploy.master.Master", "--host", HOST]
    master = SparkServer(
        folder, "master", [*java, "--port", str(ports[0]), "--webui-port", str(ports[1]), *known], "New state: ALIVE"
    )
    started = [master]
    try:
        master.wait_ready()
        for number, port in enumerate(ports[2:]):
            java[1] = "org.apache.spark.deploy.worker.Worker"
            work = folder / f"worker-{number}"
            options = [
                "--cores",
                "1",
                "--memory",
                "1g",
                "--webui-port",
                str(port),
                "--work-dir",
                str(work),
                *known,
                url,
            ]
            started.append(SparkServer(folder, work.name, [*java, *options], "Successfully registered with master"))
        for worker in started:
            worker.wait_ready()
    except BaseException:
        stop(started)
        raise
    return url, started


def connect(folder: Path, ports: Sequence[int] = ()) -> tuple[tuple[str, str], list[SparkServer]]:
    """A Spark Connect server on local[2]; its URL and that of its UI. ports: theirs; free ones by default.

    Clients need TOKEN. Without TLS they send it to `localhost` only.
    """
    port, ui = ports or choose(2)
    settings = {
        "spark.connect.grpc.binding.address": HOST,
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.host": HOST,
        "spark.driver.bindAddress": HOST,
        "spark.ui.port": str(ui),
        "spark.authenticate": "true",
    }
    pairs = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    server = "org.apache.spark.sql.connect.service.SparkConnectServer"
    command = [str(HOME / "bin" / "spark-submit"), "--master", "local[2]", *pairs, "--class", server, "spark-internal"]
    spark_server = SparkServer(folder, "connect", command, "Spark Connect server started at", "1g")
    try:
        spark_server.wait_ready()
    except BaseException:
        spark_server.stop()
        raise
    return (f"sc://localhost:{port}", f"http://{HOST}:{ui}"), [spark_server]


def stop(servers: Sequence[SparkServer]) -> None:
    """Stops all, the last one started first."""
    for server in reversed(servers):
        server.stop()
