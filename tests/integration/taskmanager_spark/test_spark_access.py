"""Other users of this machine at the ports of a task manager's Spark: none of them is let in without a secret."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from lockgate_taskmanager.spark.engine import SPARK_FOLDER, SparkEngine
from lockgate_taskmanager.state.scratch import ScratchFolder

from tests import spark_ports

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


def test_the_driver_deserializes_nothing_that_a_stranger_sends(engine: SparkEngine) -> None:
    answer = spark_ports.spark_question(int(setting(engine, "spark.driver.port")))
    assert spark_ports.MARK.encode() not in answer, "the endpoint has read the object and says that it does not know it"


def test_the_block_manager_deserializes_nothing_that_a_stranger_sends(engine: SparkEngine) -> None:
    executors = engine._session.sparkContext._jsc.sc().getExecutorMemoryStatus()
    answer = spark_ports.spark_block(int(str(executors.keys().head()).rpartition(":")[2]))
    assert b"ClassCastException" not in answer, "the object has been read before it was found to be another"


def test_the_secret_of_the_driver_is_not_exposed(engine: SparkEngine) -> None:
    assert setting(engine, "spark.authenticate") == "true"
    assert not engine._session.sparkContext.getConf().contains("spark.authenticate.secret")


def test_the_gateway_of_the_driver_takes_no_call_without_its_token(engine: SparkEngine) -> None:
    port = engine._session.sparkContext._gateway.gateway_parameters.port
    assert b"Authentication error" in spark_ports.py4j_call(port)


def test_nothing_of_spark_listens_beyond_loopback(engine: SparkEngine) -> None:
    found = spark_ports.listening(os.getpid())
    assert int(setting(engine, "spark.driver.port")) in found
    assert set(found.values()) == {"127.0.0.1"}


def setting(engine: SparkEngine, name: str) -> str:
    """As it is in the driver."""
    return str(engine._session.sparkContext.getConf().get(name))


def test_sparks_other_files_are_in_the_work_folder(engine: SparkEngine) -> None:
    folder = Path(engine._session._jvm.java.lang.System.getProperty("java.io.tmpdir"))
    assert folder.name.startswith("lockgate-spark-")
    assert folder.stat().st_mode & 0o077 == 0
    assert {path.name.partition("-")[0] for path in folder.iterdir()} >= {"blockmgr", "spark"}


KILLED = """
import os, signal, sys
from lockgate_taskmanager.spark.engine import SparkEngine
engine = SparkEngine("local[1]", work_dir=sys.argv[1])
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_leftovers_of_a_killed_process_are_removed_at_the_next_start(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert len(list(tmp_path.glob("lockgate-spark-*"))) == 1
    ScratchFolder(tmp_path, SPARK_FOLDER)
    assert list(tmp_path.glob("lockgate-spark-*")) == []
